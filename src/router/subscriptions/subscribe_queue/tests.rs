use super::*;

fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

fn sent(channel: &'static str) -> SubscribeQueue {
    let mut joins = SubscribeQueue::default();
    joins.push(channel.into(), true);
    assert!(joins.next(at(0)).is_some());
    joins
}

#[test]
fn a_join_is_sent_again_when_the_connection_is_silent() {
    let mut joins = sent("a");
    assert!(joins.take_overdue(at(999), at(0)).is_empty());
    assert!(joins.take_overdue(at(1500), at(600)).is_empty(), "heard of meanwhile");
    assert_eq!(joins.take_overdue(at(1600), at(600)).len(), 1);
    assert!(joins.take_overdue(at(1601), at(600)).is_empty(), "just sent");
    assert_eq!(joins.confirm(&"a".into()), Some(true), "after ASK");
    assert!(joins.take_overdue(at(60_000), at(600)).is_empty());
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for_without_end() {
    let mut joins = sent("a");
    assert!(joins.take_overdue(at(9_999), at(9_998)).is_empty());
    assert_eq!(joins.take_overdue(at(10_000), at(9_999)).len(), 1);
}

#[test]
fn client_subscription_of_each_channel_is_confirmed_once() {
    let (mut joins, channel) = (sent("a"), Bytes::from("a"));
    joins.mark_sent(at(1), channel.clone(), false);
    joins.leave(&channel);
    for _ in 0..2 {
        assert_eq!(joins.confirm(&channel), Some(false), "they were sent");
    }
    assert_eq!(joins.confirm(&channel), None);
    assert_eq!(joins.confirm(&"b".into()), None, "nobody requested it");
    assert_eq!(joins.expected.len(), 0);
}

#[test]
fn joins_leave_removes_queued_and_sent_channels() {
    let mut joins = sent("a");
    joins.push("b".into(), false);
    assert!(joins.leave(&"a".into()));
    assert!(!joins.leave(&"b".into()), "it was never sent");
    assert!(joins.next(at(1)).is_none());
    assert!(joins.take_overdue(at(60_000), at(0)).is_empty());
    joins.push("b".into(), false);
    assert!(joins.next(at(1)).is_some(), "wanted again");
    assert!(joins.next(at(1)).is_none());
}
