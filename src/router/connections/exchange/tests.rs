use super::*;

fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

#[test]
fn activity_quiet_since_begins_at_first_command_and_at_each_reply() {
    let activity = LastActivity::default();
    activity.on_send(at(5));
    activity.on_send(at(7));
    assert_eq!(activity.last(), at(5));
    assert_eq!(activity.idle_since(at(7)), at(7));
    activity.on_receive(at(9));
    assert_eq!(activity.idle_since(at(7)), at(9), "the second question has no answer yet");
    activity.on_send(at(11));
    activity.on_send(at(12));
    assert_eq!(activity.last(), at(11));
}
