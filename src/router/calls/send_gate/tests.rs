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
