use super::*;

/// The task that sends confirmed calls can meet the caller that gives one up.
#[test]
fn give_up_of_unsent_call_prevents_send_and_of_sent_call_returns_its_limit() {
    let sent = SendMarker::default();
    assert!(sent.try_mark_sent(7));
    assert_eq!(sent.cancel(), Some(7));
    let given_up = SendMarker::default();
    assert_eq!(given_up.cancel(), None);
    assert!(!given_up.try_mark_sent(7));
    assert_eq!(given_up.cancel(), None);
    let latest = SendMarker::default();
    assert!(latest.try_mark_sent(u64::MAX));
    assert!(latest.cancel().is_some());
}
