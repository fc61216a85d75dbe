//! The replies of a sentinel to the four queries about a master.

use rwlease::testing::{ParsedReport, parse_sentinel_report};
use rwlease_core::resp::{Address, RespValue};

use crate::resp::{replies, text};

pub fn check(data: &[u8]) {
    let asked = Address { host: "asked".into(), port: 26379 };
    let Some(report) = parse_sentinel_report(replies(data), &asked) else { return };
    let known = report.known.as_ref().map_or(0, Vec::len);
    assert_eq!(report.peers.len() + report.bad_entries, known);
    let master = report.master.iter().map(|(address, _)| address);
    let mut addresses = master.chain(report.peers.iter().map(|(_, address)| address));
    assert!(addresses.all(|address| address.port != 0 && !address.host.is_empty()));
    assert_eq!(parse_sentinel_report(encode(&report), &asked), Some(report));
}

/// The replies with this report.
fn encode(report: &ParsedReport) -> Vec<RespValue> {
    let fields = |fields: &[(&str, &str)]| {
        let texts = fields.iter().flat_map(|(name, value)| [text(name), text(value)]);
        RespValue::Array(texts.collect())
    };
    let epoch = report.epoch.to_string();
    let port = |address: &Address| address.port.to_string();
    let (mut state, mut address) = (vec![("config-epoch", &*epoch)], RespValue::Nil);
    let port_of_master = report.master.as_ref().map(|(address, _)| port(address));
    if let (Some((master, run_id)), Some(port)) = (&report.master, &port_of_master) {
        state.extend([("ip", &*master.host), ("port", port)]);
        state.extend(run_id.as_deref().map(|run_id| ("runid", run_id)));
        address = RespValue::Array(vec![text(&*master.host), text(port)]);
    }
    // A sentinel without an address has port 0.
    let mut peers = report.peers.iter().peekable();
    let mut peer = |id: &String| match peers.next_if(|(peer, _)| peer == id) {
        Some((id, peer)) => fields(&[("runid", id), ("ip", &peer.host), ("port", &port(peer))]),
        None => fields(&[("runid", id), ("ip", "gone"), ("port", "0")]),
    };
    let known = report.known.as_ref().map(|known| known.iter().map(&mut peer).collect());
    vec![
        report.id.as_ref().map_or(RespValue::Nil, text),
        fields(&state),
        address,
        known.map_or(RespValue::Nil, RespValue::Array),
    ]
}
