use super::*;

fn wait(queue: &mut LocalQueue, mode: LockMode) -> u64 {
    queue.push(mode, oneshot::channel().0)
}

#[test]
fn a_reader_waits_behind_a_writer_and_goes_after_the_write() {
    let mut queue = LocalQueue::default();
    assert_eq!(queue.head(), None);
    wait(&mut queue, LockMode::Write);
    wait(&mut queue, LockMode::Write);
    wait(&mut queue, LockMode::Read);
    assert_eq!(queue.head(), Some(LockMode::Write));
    assert!(queue.pop(LockMode::Write).is_some());
    queue.start_reader_phase();
    assert_eq!(queue.head(), Some(LockMode::Read), "it waited by then");
    wait(&mut queue, LockMode::Read);
    assert!(queue.pop(LockMode::Read).is_some());
    assert_eq!(queue.head(), Some(LockMode::Write), "this one came later");
}

#[test]
fn queue_remove_keeps_the_other_requests_in_order() {
    let mut queue = LocalQueue::default();
    let tickets: Vec<u64> = (0..3).map(|_| wait(&mut queue, LockMode::Write)).collect();
    wait(&mut queue, LockMode::Read);
    assert!(queue.remove(LockMode::Write, tickets[1]).is_some());
    assert!(queue.remove(LockMode::Write, tickets[1]).is_none());
    assert_eq!(queue.len(), 3);
    assert!(queue.remove(LockMode::Write, tickets[0]).is_some());
    assert!(queue.remove(LockMode::Write, tickets[2]).is_some());
    assert_eq!(queue.head(), Some(LockMode::Read));
    assert_eq!(queue.take_all().len(), 1);
    assert!(queue.is_empty());
}
