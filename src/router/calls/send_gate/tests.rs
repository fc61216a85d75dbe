use super::*;

#[test]
fn request_is_sent_or_given_up_but_not_both() {
    let sent = SendGate::default();
    assert!(sent.pass() && sent.pass() && !sent.close());
    let given_up = SendGate::default();
    assert!(given_up.close() && !given_up.pass());
}

#[test]
fn attempt_of_another_task_counts_when_it_is_sent() {
    for is_sent in [false, true] {
        let (gate, attempt) = (SendGate::default(), Arc::<SendMarker>::default());
        assert!(gate.pass_later(&attempt));
        assert!(!is_sent || attempt.try_mark_sent(7));
        assert_eq!(gate.close(), !is_sent);
        assert!(!attempt.try_mark_sent(7), "it is sent once at most");
    }
    let (gate, attempt) = (SendGate::default(), Arc::<SendMarker>::default());
    assert!(gate.pass_later(&attempt) && attempt.cancel().is_none());
    gate.take_back(&attempt);
    assert!(gate.close(), "the attempt was not sent");
}

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
