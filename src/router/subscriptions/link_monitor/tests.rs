use super::*;

fn at(seconds: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_secs(seconds))
}

/// Has waited for the answer to a join since the first second.
fn waiting() -> LinkMonitor {
    let mut pulse = LinkMonitor::new(at(0));
    let join = LinkCommand::Subscribe { channel: "a".into(), asking: false };
    assert!(pulse.on_command(at(1), join).is_none());
    assert!(pulse.next_subscribe(at(1)).is_some());
    pulse
}

#[test]
fn a_server_that_sends_messages_is_not_given_up() {
    let mut pulse = waiting();
    for second in 2..9 {
        pulse.record_activity(at(second));
        assert!(
            matches!(pulse.check(at(second)), MonitorAction::Resend(commands) if commands.is_empty())
        );
    }
    assert!(matches!(pulse.check(at(9)), MonitorAction::Resend(commands) if commands.len() == 1));
    assert!(matches!(pulse.check(at(10)), MonitorAction::Silent));
}

#[test]
fn a_server_that_answers_one_join_of_two_and_no_more_is_given_up() {
    let mut pulse = waiting();
    pulse.subscribe_queue.push("b".into(), false);
    assert!(pulse.next_subscribe(at(1)).is_some());
    pulse.on_event(at(2), &PubSubEvent::Subscribed { channel: "a".into() }).unwrap();
    assert!(matches!(pulse.check(at(3)), MonitorAction::Resend(commands) if commands.len() == 1));
    assert!(matches!(pulse.check(at(4)), MonitorAction::Silent));
}

#[test]
fn confirmation_that_nobody_requested_ends_the_link() {
    let mut pulse = waiting();
    let confirmed = |channel: &'static str| PubSubEvent::Subscribed { channel: channel.into() };
    assert!(pulse.on_event(at(2), &confirmed("a")).is_ok());
    for unasked in ["a", "b"] {
        assert_eq!(pulse.on_event(at(3), &confirmed(unasked)).unwrap_err(), UNASKED);
    }
    assert_eq!(pulse.channels.len(), 1);
}

#[test]
fn name_of_a_joined_channel_keeps_no_read_buffer() {
    let mut pulse = waiting();
    let buffer = Bytes::from(vec![b'a'; 1 << 16]);
    pulse.on_event(at(2), &PubSubEvent::Subscribed { channel: buffer.slice(..1) }).unwrap();
    assert!(buffer.is_unique(), "it can be used again");
}

#[test]
fn channel_joined_after_ask_is_probed_after_asking() {
    let mut pulse = LinkMonitor::new(at(0));
    let join = LinkCommand::Subscribe { channel: "a".into(), asking: true };
    assert!(pulse.on_command(at(0), join).is_none());
    assert!(pulse.next_subscribe(at(0)).is_some());
    // It is sent again, and both are confirmed.
    assert!(matches!(pulse.check(at(1)), MonitorAction::Resend(commands) if commands.len() == 1));
    for _ in 0..2 {
        pulse.on_event(at(1), &PubSubEvent::Subscribed { channel: "a".into() }).unwrap();
    }
    let MonitorAction::Resend(commands) = pulse.check(at(20)) else {
        panic!("no probe");
    };
    assert!(matches!(&*commands, [LinkCommand::Subscribe { asking: true, .. }]), "{commands:?}");
}
