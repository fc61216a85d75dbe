use super::*;
use crate::backend::fake::{address, server_error, text};

const RUN_ID: &str = "0123456789abcdef0123456789abcdef01234567";

fn list(words: &[&str]) -> RespValue {
    RespValue::Array(words.iter().map(|word| text(word)).collect())
}

fn read(replies: Vec<RespValue>) -> Result<SentinelReport, ConnectionError> {
    SentinelReport::read(replies, &address("s"), &AddressTranslator::default(), |_| ())
}

fn state(host: &str, epoch: &str) -> RespValue {
    let all = ["name", "m", "ip", host, "port", "1", "runid", RUN_ID, "config-epoch", epoch];
    let others = ["num-other-sentinels", "2"];
    list(&[&all[..], &others].concat())
}

#[test]
fn report_read_returns_epoch_master_and_peer_sentinels() {
    let peers = RespValue::Array(vec![
        list(&["runid", "", "ip", "u", "port", "1"]),
        list(&["runid", "replaced", "ip", "u", "port", "0"]),
        RespValue::Int(7),
        list(&["runid", "other", "ip", "t", "port", "1"]),
    ]);
    let report = read(vec![text("id"), state("a", "7"), list(&["a", "1"]), peers]).unwrap();
    assert_eq!((report.id.as_deref(), report.epoch, report.peer_count), (Some("id"), 7, Some(2)));
    let run_id = Some(RUN_ID[..12].into());
    assert_eq!(report.master, Some(ReportedMaster { address: address("a"), run_id }));
    assert_eq!(report.peers, [SentinelPeer { sentinel: "other".into(), address: address("t") }]);
    assert_eq!(report.known, Some(vec!["replaced".into(), "other".into()]));
}

#[test]
fn report_read_during_failover_prefers_the_address_to_the_state() {
    let report =
        read(vec![text("id"), state("a", "8"), list(&["b", "1"]), RespValue::Nil]).unwrap();
    assert_eq!(report.master, Some(ReportedMaster { address: address("b"), run_id: None }));
    assert_eq!(report.epoch, 8);
}

#[test]
fn report_read_with_refused_commands_leaves_fields_unknown() {
    let refused = || RespValue::Error(server_error("NOPERM no"));
    let report = read(vec![refused(), refused(), list(&["a", "1"]), refused()]).unwrap();
    assert_eq!((report.id.as_deref(), report.epoch, report.peer_count), (None, 0, None));
    assert_eq!(report.known, None);
    assert_eq!(report.address(), Some(&address("a")));
    let failure = read(vec![text("id"), refused(), refused(), refused()]).unwrap_err();
    assert!(failure.is_permanent);
    let unknown = RespValue::Error(server_error("ERR unknown command 'SENTINEL'"));
    assert!(!read(vec![unknown.clone(), unknown.clone(), unknown]).unwrap_err().is_permanent);
}

#[test]
fn report_read_of_unknown_name_or_malformed_address_has_no_master() {
    let unknown = || RespValue::Error(server_error("ERR No such master with that name"));
    let report = read(vec![text("id"), unknown(), RespValue::Nil, unknown()]).unwrap();
    assert_eq!(report.master, None);
    let odd_hosts = [list(&["a"]), list(&["a", "x"]), list(&["a", "0"]), list(&["a", "65536"])];
    for odd in
        odd_hosts.into_iter().chain([RespValue::Int(1), RespValue::Array(vec![RespValue::Nil; 2])])
    {
        let peers = RespValue::Array(vec![list(&["runid", "other", "ip", "t", "port", "1"])]);
        let report = read(vec![text("id"), state("a", "1"), odd, peers]).unwrap();
        assert!(report.master.is_none() && report.malformed.is_some(), "{report:?}");
        assert_eq!(report.peers.len(), 1, "the others are known all the same");
    }
    assert!(read(Vec::new()).unwrap().master.is_none());
}
