use std::time::Duration;

use super::*;

fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

/// A limit of a connection with a round trip of 10 ms.
fn new_limit(max: usize) -> CallLimit {
    CallLimit::new(max, Duration::from_millis(10), Duration::from_millis(500))
}

impl CallLimit {
    fn take(&self, calls: u32) {
        self.permits.try_acquire_many(calls).unwrap().forget();
    }

    fn limit(&self) -> usize {
        self.state.lock().unwrap().limit
    }

    fn receive(&self, replies: usize) {
        for _ in 0..replies {
            self.on_reply();
        }
    }
}

#[test]
fn late_reply_halves_the_limit_once_for_the_calls_in_flight() {
    let limit = new_limit(64);
    limit.take(64);
    limit.reduce(at(0), at(10));
    assert_eq!((limit.limit(), limit.permits.available_permits()), (32, 0));
    limit.reduce(at(5), at(11));
    limit.reduce(at(10), at(12));
    assert_eq!(limit.limit(), 32, "they were sent before");
    for _ in 0..32 {
        limit.return_permit();
    }
    assert_eq!(limit.permits.available_permits(), 0, "32 are in flight");
    limit.return_permit();
    assert_eq!(limit.permits.available_permits(), 1);
    limit.reduce(at(11), at(13));
    assert_eq!(limit.limit(), 16);
    limit.reduce(at(14), at(15));
    assert_eq!(limit.limit(), MIN_CALLS);
}

#[test]
fn free_permits_are_taken_first() {
    let limit = new_limit(64);
    limit.take(40);
    limit.reduce(at(0), at(10));
    assert_eq!(limit.permits.available_permits(), 0);
    for _ in 0..9 {
        limit.return_permit();
    }
    assert_eq!(limit.permits.available_permits(), 1, "31 of 32 are in flight");
}

#[test]
fn late_reply_of_few_calls_says_nothing_about_the_limit() {
    let limit = new_limit(64);
    limit.take(31);
    limit.reduce(at(0), at(10));
    assert_eq!(limit.limit(), 64);
}

/// The connection is the same, and the path to its server has become longer.
#[test]
fn shortest_round_trip_ages_while_the_limit_is_low() {
    let limit = new_limit(64);
    limit.take(64);
    for second in 0..25 {
        let sent = 1_000 * second;
        limit.observe_round_trip(Duration::from_millis(80));
        limit.on_late_reply(at(sent), at(sent + 80));
    }
    assert_eq!(limit.shortest_round_trip(), Duration::from_millis(80));
    assert_eq!(limit.limit(), MIN_CALLS);
    limit.on_late_reply(at(30_000), at(30_080));
    limit.receive(MIN_CALLS);
    assert_eq!(limit.limit(), MIN_CALLS + 1, "80 ms show no queue now");
}

/// The round trips of an earlier overload are longer than those since.
#[test]
fn shortest_round_trip_does_not_age_when_the_limit_falls_again() {
    let limit = new_limit(20);
    limit.take(20);
    limit.on_late_reply(at(0), at(80));
    limit.observe_round_trip(Duration::from_millis(80));
    limit.receive(16 + 17 + 18 + 19);
    assert_eq!(limit.limit(), 20);
    limit.on_late_reply(at(60_000), at(60_080));
    assert_eq!(limit.shortest_round_trip(), Duration::from_millis(10));
}

#[test]
fn limit_below_the_lowest_stays() {
    let limit = new_limit(2);
    limit.take(2);
    limit.reduce(at(0), at(10));
    limit.return_permit();
    assert_eq!((limit.limit(), limit.permits.available_permits()), (2, 1));
}

#[test]
fn replies_in_time_raise_the_limit_to_the_setting() {
    let limit = new_limit(20);
    limit.take(20);
    limit.reduce(at(0), at(10));
    limit.receive(15);
    assert_eq!(limit.limit(), 16);
    limit.receive(1);
    assert_eq!(limit.limit(), 17);
    limit.receive(17 + 18 + 19);
    assert_eq!(limit.limit(), 20);
    assert!(!limit.is_reduced.load(Ordering::Relaxed));
    limit.receive(100);
    for _ in 0..20 {
        limit.return_permit();
    }
    assert_eq!(limit.permits.available_permits(), 20);
}

#[test]
fn caller_with_less_time_than_a_round_trip_says_nothing_about_the_limit() {
    let limit = new_limit(64);
    limit.take(64);
    limit.on_timeout(at(0), at(9));
    limit.on_late_reply(at(0), at(19));
    assert_eq!(limit.limit(), 64);
    limit.on_timeout(at(0), at(20));
    assert_eq!(limit.limit(), 32);
    limit.on_late_reply(at(21), at(41));
    assert_eq!(limit.limit(), 16);
}

#[test]
fn late_reply_without_a_queue_raises_the_limit() {
    let limit = new_limit(18);
    limit.take(18);
    limit.on_timeout(at(0), at(20));
    for _ in 0..16 {
        limit.on_late_reply(at(21), at(40));
    }
    assert_eq!(limit.limit(), 17);
}

#[test]
fn shortest_round_trip_counts_within_bounds() {
    let limit = new_limit(64);
    limit.observe_round_trip(Duration::from_millis(3));
    limit.observe_round_trip(Duration::from_millis(7));
    let kept = |left| limit.min_reply_time(Duration::from_millis(left)).as_millis();
    assert_eq!([100, 8, 6, 4, 2].map(kept), [6, 6, 4, 3, 3], "one or two round trips");
    assert!(!limit.was_queued(at(0), at(5)) && limit.was_queued(at(0), at(6)));
    limit.observe_round_trip(Duration::from_micros(50));
    assert!(!limit.was_queued(at(0), at(4)) && limit.was_queued(at(0), at(5)), "noise");
    let slow = CallLimit::new(64, Duration::from_millis(400), Duration::from_millis(500));
    assert!(!slow.was_queued(at(0), at(499)) && slow.was_queued(at(0), at(500)), "from the first");
}
