use super::*;

fn seen(id: Option<&str>, term: u64) -> ReportedLeader {
    ReportedLeader { id: id.map(Into::into), term, ends: LocalInstant::default() }
}

#[test]
fn answer_without_the_last_term_is_older() {
    let known = seen(Some("b"), 20);
    assert!(known.is_newer_than(&seen(Some("a"), 10)));
    assert!(known.is_newer_than(&seen(None, 10)));
    assert!(!known.is_newer_than(&seen(Some("b"), 20)));
    assert!(!known.is_newer_than(&seen(Some("c"), 21)));
    assert!(!known.is_newer_than(&seen(None, 20)), "it resigned");
    assert!(!known.is_newer_than(&seen(None, 0)), "it resigned, and the lock is forgotten");
}
