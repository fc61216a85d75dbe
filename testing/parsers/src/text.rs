//! Short texts: pushed messages, transfers, labels and records of clients, tokens, ids, redirects.

use std::time::UNIX_EPOCH;

use rwlease::testing::{is_label, parse_redirect};
use rwlease::{FencingToken, LeaseTransfer};
use rwlease_core::protocol::{
    AcquisitionId, ClientInfo, GrantMessage, LockKey, LockKind, PushMessage, parse_record_reply,
};
use rwlease_core::resp::{RespValue, ServerError};

use crate::resp;

pub fn check(data: &[u8]) {
    check_message(data);
    let text = String::from_utf8_lossy(data);
    check_transfer(&text);
    check_record(&text);
    check_label(&text);
    check_id(&text);
    check_redirect(&text);
    if let Ok(token) = text.parse::<FencingToken>() {
        assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
    }
    let _ = LockKey::new(LockKind::ReadWrite, "rwlease:", &text);
}

fn check_message(data: &[u8]) {
    let Some(message) = PushMessage::read(data) else { return };
    let again = match &message {
        PushMessage::Recall { id, mode } => format!("0 {} {id}", mode.letter()),
        PushMessage::ForceReleased { id, token } => format!("0 f {id} {token}"),
        PushMessage::Grants(GrantMessage { server_now, has_more_work, grants }) => {
            let grant = |(id, grant): &(String, _)| {
                let grant: &rwlease_core::protocol::Grant = grant;
                format!(" {id} {} {}", grant.token, grant.deadline)
            };
            let grants: String = grants.iter().map(grant).collect();
            format!("{server_now} {}{grants}", u8::from(*has_more_work))
        }
    };
    assert_eq!(PushMessage::read(again.as_bytes()), Some(message));
}

fn check_transfer(text: &str) {
    let Ok(transfer) = text.parse::<LeaseTransfer>() else { return };
    let again = transfer.to_string();
    assert!(again.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(again.parse::<LeaseTransfer>().unwrap() == transfer, "{text:?}");
    let _ = transfer.deadline();
}

fn record_of(text: &str) -> Option<ClientInfo> {
    let zero = || RespValue::Int(0);
    let found = vec![resp::text("found"), zero(), zero(), resp::text(text)];
    parse_record_reply(RespValue::Array(found)).unwrap()
}

fn check_record(text: &str) {
    let Some(client) = record_of(text) else { return };
    let started = client.started_at.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let again = format!("1 {started} {}", client.description());
    assert_eq!(record_of(&again), Some(client));
}

/// Each label that the settings accept can be read by other clients.
fn check_label(text: &str) {
    if text.is_empty() || !is_label(text) {
        return;
    }
    let client = ClientInfo::new(text.into(), "host".into(), 1, "rwlease/1".into());
    assert_eq!(record_of(&format!("1 0 {}", client.description())), Some(client));
}

fn check_id(text: &str) {
    let Some(id) = AcquisitionId::parse(text) else { return };
    assert_eq!(id.as_str(), text);
    let count = AcquisitionId::counter_of(text, &id.client()).unwrap();
    assert!(id.client().acquisition(count) == id);
}

/// The longest host name of DNS. Errors with more text are cut.
const MAX_HOST_LEN: usize = 253;

fn check_redirect(text: &str) {
    let Some((slot, Some((host, port)))) = parse_redirect(&ServerError::parse(text)) else {
        return;
    };
    if host.len() > MAX_HOST_LEN {
        return;
    }
    let again = ServerError::new("MOVED", &format!("{} [{host}]:{port}", slot.get()));
    assert_eq!(parse_redirect(&again), Some((slot, Some((host, port)))));
}
