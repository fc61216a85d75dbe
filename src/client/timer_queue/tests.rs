use std::time::Duration;

use super::*;

const fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

#[test]
fn agenda_take_returns_earliest_wake_time_of_each_acquisition_in_order() {
    let mut agenda = TimerQueue::default();
    agenda.insert_earlier(1, at(30));
    agenda.insert_earlier(2, at(20));
    agenda.insert_earlier(1, at(10));
    agenda.insert_earlier(1, at(40));
    assert_eq!(agenda.next_due(), Some(at(10)));
    assert_eq!(agenda.pop_due(at(15)), Some(1));
    assert_eq!(agenda.pop_due(at(15)), None);
    assert_eq!(agenda.pop_due(at(50)), Some(2));
    assert_eq!(agenda.pop_due(at(50)), None, "the later looks at 1 are gone");
    agenda.insert_earlier(1, at(40));
    assert_eq!(agenda.pop_due(at(50)), Some(1), "noted again, it comes again");
}

#[test]
fn agenda_forget_removes_every_wake_time_of_the_acquisition() {
    let mut agenda = TimerQueue::default();
    for number in 0..100_000 {
        agenda.insert_earlier(number, at(30_000 + number));
        agenda.insert_earlier(number, at(10_000 + number));
        agenda.remove(number);
    }
    assert_eq!((agenda.order.len(), agenda.due.len(), agenda.next_due()), (0, 0, None));
}
