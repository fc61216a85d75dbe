use super::*;
use crate::protocol::ClientId;

fn raise(token: u64) -> RaiseTokenRequest {
    let id = ClientId::from_random([1; 11]).acquisition(1);
    RaiseTokenRequest { id, token }
}

fn reply(now: u64, status: &'static str) -> RespValue {
    RespValue::String(format!("{status} {now} 0").into())
}

#[test]
fn raise_token_read_returns_done_lost_or_ahead() {
    let asked = raise(1_700_000_090_000_999);
    assert_eq!(asked.read(reply(1_700_000_000_000, "raised")).unwrap(), RaiseTokenReply::Raised);
    assert_eq!(asked.read(reply(1_700_000_000_000, "not_held")).unwrap(), RaiseTokenReply::NotHeld);
    let ahead = asked.read(reply(1_700_000_000_000, "ahead")).unwrap();
    assert_eq!(ahead, RaiseTokenReply::TooFarAhead(Duration::from_secs(90)));
    assert!(asked.read(reply(1_700_000_000_000, "granted")).is_err());
}
