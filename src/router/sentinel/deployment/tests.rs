use super::*;
use crate::backend::fake::address;
use crate::router::sentinel::report::ReportedMaster;

/// A report of a sentinel that knows these others.
fn says(sentinel: &str, master: &str, known: &[&str]) -> SentinelReport {
    SentinelReport {
        source: address(sentinel),
        id: Some(sentinel.into()),
        epoch: 1,
        master: Some(ReportedMaster { address: address(master), run_id: None }),
        malformed: None,
        peer_count: Some(known.len()),
        known: Some(known.iter().map(|id| (*id).into()).collect()),
        peers: Vec::new(),
    }
}

#[test]
fn contradiction_names_two_sentinels_and_their_masters() {
    for other in [says("z", "b", &[]), says("z", "b", &["y"])] {
        let reports = [says("2", "a", &["1"]), other, says("1", "a", &["2"])];
        let why = contradiction(&reports).unwrap();
        assert!(["1:1", "z:1", "a:1", "b:1"].iter().all(|it| why.contains(it)), "{why}");
    }
}

#[test]
fn contradiction_is_none_in_a_failover_or_where_little_is_told() {
    let unknown = SentinelReport { known: None, ..says("2", "b", &[]) };
    let nameless = SentinelReport { id: None, ..says("2", "b", &[]) };
    let no_master = SentinelReport { master: None, ..says("2", "b", &[]) };
    for second in [
        says("2", "a", &[]),
        says("2", "b", &["1"]),
        says("2", "b", &["3"]),
        unknown,
        nameless,
        no_master,
    ] {
        assert_eq!(contradiction(&[says("1", "a", &["3"]), second.clone()]), None);
        assert_eq!(contradiction(&[second, says("1", "a", &["3"])]), None);
    }
    // By a third one alone.
    let chain = [says("1", "a", &["2"]), says("3", "b", &["2"]), says("2", "b", &[])];
    assert_eq!(contradiction(&chain), None);
    assert_eq!(contradiction(&[]), None);
}
