use super::*;

fn open(writes: bool) -> AtomicGate {
    let word = AtomicGate::new(writes);
    word.open();
    word
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let word = open(true);
    assert!(word.try_enter_reader() && word.try_enter_reader() && !word.try_enter_writer());
    assert_eq!(word.load().readers(), 2);
    assert!(!word.leave_read() && !word.leave_read(), "nobody wants to know");
    assert!(word.try_enter_writer() && !word.try_enter_writer() && !word.try_enter_reader());
    assert!(!word.leave_write(false));
    assert!(word.load().is_unused());
    assert_eq!(word.load().grant_count(), 3);
    assert!(!open(false).try_enter_writer(), "a read lease has no writer");
}

#[test]
fn word_with_queued_requests_admits_guards_only_from_the_queue() {
    let word = open(true);
    word.set_queued(true);
    assert!(!word.try_enter_reader() && !word.try_enter_writer());
    assert!(word.enter_queued_reader() && !word.enter_queued_writer());
    assert!(word.leave_read(), "the last one tells");
    assert!(word.enter_queued_writer() && !word.enter_queued_reader());
    assert!(word.leave_write(false));
    word.set_queued(false);
    assert!(word.try_enter_reader());
}

#[test]
fn word_closed_admits_no_guard_and_the_last_guard_notifies() {
    let word = open(true);
    assert!(word.try_enter_reader());
    assert_eq!(word.close().readers(), 1);
    assert!(!word.try_enter_reader() && !word.enter_queued_reader() && !word.enter_queued_writer());
    assert!(word.leave_read());
    let closing = open(true);
    assert!(closing.try_enter_writer());
    assert!(closing.leave_write(true), "its block of tokens is used up");
    assert!(!closing.load().is_open() && !closing.try_enter_reader());
}

#[test]
fn a_writer_becomes_a_reader_in_one_step() {
    let word = open(true);
    assert!(word.try_enter_writer());
    assert!(!word.downgrade());
    assert!(word.try_enter_reader() && !word.try_enter_writer());
    assert_eq!(word.load().readers(), 2);
    assert!(word.forbid_writers().readers() == 2 && !word.load().allows_writers());
    word.set_notify_last(true);
    assert!(!word.leave_read() && word.leave_read());
    word.set_notify_last(false);
    assert!(word.try_enter_reader() && !word.leave_read(), "the recall is over");
}
