//! A place in the queue: polls, and grants that are pushed.

use super::*;

#[test]
fn a_place_in_a_full_server_s_queue_is_waited_for() {
    let mut bench = Bench::waiting(Mode::Read);
    bench.call();
    bench.acquired(QUEUED);
    bench.call();
    let full = || ServerError { code: "OOM".into(), detail: "no".into() };
    let next = bench.on(Event::Acquired(failed(Reason::Refused(full()), None))).next;
    assert!(matches!(next, Some(Next::Wait(_))), "{next:?}");
    let mut first = Bench::waiting(Mode::Read);
    first.call();
    let next = first.on(Event::Acquired(failed(Reason::Refused(full()), None))).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::Refused);
}

#[test]
fn a_waiter_polls_by_its_place_and_ends_with_its_time() {
    let until = Some(at(5_000));
    let mut bench = Bench::new(Mode::Read, |_| {}, WaitPolicy::Queue { until });
    bench.call();
    let next = bench.acquired(QUEUED);
    assert!(matches!(next, Next::Wait(wake) if wake == at(1_000)), "{next:?}");
    assert!(matches!(bench.after(999).on(Event::Wake).next, Some(Next::Wait(_))));
    assert!(matches!(bench.after(1).on(Event::Wake).next, Some(Next::Again)));
    let Next::Send { acquire, .. } = bench.call() else { panic!() };
    assert_eq!(acquire.wait.unwrap().ticket, 1);
    bench.acquired(QUEUED);
    let next = bench.after(4_000).on(Event::Wake).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::TimedOut);
    assert!(matches!(bench.state, State::Releasing(_)), "it leaves the queue");
}

#[test]
fn a_place_in_the_queue_is_told_once() {
    let mut bench = Bench::waiting(Mode::Read);
    for is_first in [true, false] {
        bench.call();
        let told = bench.told(QUEUED);
        let effects = bench.on(Event::Acquired(Ok(told)));
        assert_eq!(matches!(effects.note, Some(Note::Queued { .. })), is_first);
    }
}

/// A grant that nobody hears of lapses with the window that the last call gave.
#[test]
fn the_next_poll_falls_into_the_window_of_the_last_call() {
    for (hears, first, second) in [(false, 750, 3_000), (true, 3_000, 3_000)] {
        let mut bench = Bench::waiting(Mode::Read);
        for wake in [first, first + second] {
            let _ = bench.on(Event::Call { hears });
            let next = bench.acquired(Acquired::Queued { ticket: 7, ahead: 11 });
            assert!(matches!(next, Next::Wait(until) if until == at(wake)), "{hears}: {next:?}");
            bench.after(wake - bench.now.since_origin().as_millis() as u64);
        }
    }
}

#[test]
fn waiters_that_missed_a_message_poll_one_after_another() {
    for (ahead, turn) in [(0, 0), (3, 3), (90, 90)] {
        let mut bench = Bench::waiting(Mode::Read);
        bench.call();
        bench.acquired(Acquired::Queued { ticket: 7, ahead });
        assert!(bench.on(Event::Missed).changed);
        let next = bench.on(Event::Wake).next.unwrap();
        match next {
            Next::Again => assert_eq!(ahead, 0),
            Next::Wait(wake) => assert_eq!(wake, at(turn)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_pushed_grant_is_held_and_claimed_at_once() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    bench.acquired(QUEUED);
    let window = Duration::from_millis(1_500);
    assert!(matches!(bench.push(5, window), Next::Held { by: By::Push, token: 5, .. }));
    assert!(bench.ends() <= bench.now.after(window));
    let [Some(Sending::Renew { renew, .. }), None] = bench.on(Event::Look).sends else { panic!() };
    assert_eq!(renew.lease, LEASE);
}

#[test]
fn a_pushed_grant_that_ends_soon_or_that_replicas_must_confirm_is_polled_for() {
    let pushed = |replicas: u32, late: u64| {
        let wait = WaitPolicy::Queue { until: None };
        let mut bench = Bench::new(Mode::Write, |options| options.replicas = replicas, wait);
        bench.call();
        bench.acquired(QUEUED);
        let mut bound = ClockBound::default();
        bound.observe(bench.now, bench.now, bench.server_now());
        let pushed = Pushed {
            grant: bench.grant(5, Duration::from_millis(1_500)),
            now: bench.server_now(),
            received: bench.now,
            from: node(),
            bound: Some(bound),
        };
        let _ = bench.on(Event::Pushed(Box::new(pushed)));
        bench.after(late).on(Event::Wake).next.unwrap()
    };
    assert!(matches!(pushed(0, 700), Next::Held { .. }));
    assert!(matches!(pushed(0, 800), Next::Again));
    assert!(matches!(pushed(1, 0), Next::Again));
}

#[test]
fn a_push_that_came_before_a_newer_one_does_not_count() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    bench.acquired(QUEUED);
    for token in [6, 5] {
        let pushed = Pushed {
            grant: bench.grant(token, LEASE),
            now: bench.server_now(),
            received: bench.now,
            from: node(),
            bound: Some({
                let mut bound = ClockBound::default();
                bound.observe(bench.now, bench.now, bench.server_now());
                bound
            }),
        };
        let _ = bench.on(Event::Pushed(Box::new(pushed)));
    }
    assert!(matches!(bench.on(Event::Wake).next, Some(Next::Held { token: 6, .. })));
}

#[test]
fn a_time_that_is_up_just_after_a_poll_says_nothing_against_the_server() {
    let poll = |silence: u64| {
        let until = Some(at(2_000));
        let mut bench = Bench::new(Mode::Read, |_| {}, WaitPolicy::Queue { until });
        bench.call();
        bench.acquired(QUEUED);
        bench.after(2_000 - silence).call();
        kind_of(bench.after(silence).on(Event::Acquired(no_answer())).next.unwrap())
    };
    assert_eq!([poll(499), poll(500)], [ErrorKind::TimedOut, ErrorKind::Unavailable]);
}
