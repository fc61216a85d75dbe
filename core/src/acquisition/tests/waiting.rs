//! A place in the queue: polls, and grants that are pushed.

use super::*;

#[test]
fn a_waiter_polls_by_its_place_and_ends_with_its_time() {
    let until = Some(at(5_000));
    let mut bench = Bench::new(LockMode::Read, |_| {}, WaitPolicy::Queue { deadline: until });
    bench.call();
    let next = bench.acquired(QUEUED);
    assert!(matches!(next, RequestStep::WaitUntil(wake) if wake == at(1_000)), "{next:?}");
    assert!(matches!(
        bench.after(999).on(AcquisitionEvent::Wake).next_step,
        Some(RequestStep::WaitUntil(_))
    ));
    assert!(matches!(
        bench.after(1).on(AcquisitionEvent::Wake).next_step,
        Some(RequestStep::CallNow)
    ));
    let RequestStep::Send { acquire, .. } = bench.call() else { panic!() };
    assert_eq!(acquire.wait.unwrap().ticket, 1);
    bench.acquired(QUEUED);
    let next = bench.after(4_000).on(AcquisitionEvent::Wake).next_step.unwrap();
    assert_eq!(kind_of(next), ErrorKind::TimedOut);
    assert!(matches!(bench.state, AcquisitionState::Releasing(_)), "it leaves the queue");
}

/// The scripts refuse a larger limit.
#[test]
fn a_queue_without_a_limit_has_the_largest_that_the_fast_paths_take() {
    for (most, sent) in [(0, 0), (10_000, 10_000), (u64::MAX, 999_999_999_999)] {
        let mut bench = Bench::waiting(LockMode::Read);
        bench.settings.max_queue_len = most;
        let RequestStep::Send { acquire, .. } = bench.call() else { panic!() };
        assert_eq!(acquire.wait.unwrap().max_queue_len, sent);
    }
}

#[test]
fn a_place_in_the_queue_is_told_once() {
    let mut bench = Bench::waiting(LockMode::Read);
    for is_first in [true, false] {
        bench.call();
        let reply = bench.reply(QUEUED);
        let effects = bench.on(AcquisitionEvent::AcquireReply(Ok(reply)));
        assert_eq!(matches!(effects.telemetry, Some(TelemetryEvent::Queued { .. })), is_first);
    }
}

/// A grant that no client receives lapses with the claim timeout of the last call.
#[test]
fn the_next_poll_falls_into_the_window_of_the_last_call() {
    for (is_subscribed, first, second) in [(false, 750, 3_000), (true, 3_000, 3_000)] {
        let mut bench = Bench::waiting(LockMode::Read);
        for wake in [first, first + second] {
            let _ = bench.on(AcquisitionEvent::Call { is_subscribed });
            let next = bench.acquired(AcquireReply::Queued { ticket: 7, ahead: 11 });
            assert!(
                matches!(next, RequestStep::WaitUntil(until) if until == at(wake)),
                "{is_subscribed}: {next:?}"
            );
            bench.after(wake - bench.now.as_duration().as_millis() as u64);
        }
    }
}

/// The reply to a poll may wait for its confirmation, and the claim for the group before it.
#[test]
fn claim_window_of_a_confirmed_request_covers_two_confirmations() {
    for (replicas, window) in [(0, 1_500), (1, 2_000)] {
        for is_subscribed in [true, false] {
            let wait = WaitPolicy::Queue { deadline: None };
            let mut bench = Bench::new(
                LockMode::Write,
                |options| options.confirmation.replicas = replicas,
                wait,
            );
            let sent = bench.on(AcquisitionEvent::Call { is_subscribed }).next_step;
            let Some(RequestStep::Send { acquire, .. }) = sent else { panic!("{sent:?}") };
            assert_eq!(acquire.wait.unwrap().claim_timeout, Duration::from_millis(window));
            let next = bench.acquired(AcquireReply::Queued { ticket: 7, ahead: 11 });
            let poll = if is_subscribed { 3_000 } else { 750 };
            assert!(
                matches!(next, RequestStep::WaitUntil(at_last) if at_last == at(poll)),
                "{next:?}"
            );
        }
    }
}

#[test]
fn waiters_that_missed_a_message_poll_one_after_another() {
    for (ahead, turn) in [(0, 0), (3, 3), (90, 90)] {
        let mut bench = Bench::waiting(LockMode::Read);
        bench.call();
        bench.acquired(AcquireReply::Queued { ticket: 7, ahead });
        assert!(bench.on(AcquisitionEvent::PushMissed).notify_waiters);
        let next = bench.on(AcquisitionEvent::Wake).next_step.unwrap();
        match next {
            RequestStep::CallNow => assert_eq!(ahead, 0),
            RequestStep::WaitUntil(wake) => assert_eq!(wake, at(turn)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_pushed_grant_that_ends_soon_or_that_replicas_must_confirm_is_polled_for() {
    let pushed = |replicas: u32, late: u64| {
        let wait = WaitPolicy::Queue { deadline: None };
        let mut bench =
            Bench::new(LockMode::Write, |options| options.confirmation.replicas = replicas, wait);
        bench.call();
        bench.acquired(QUEUED);
        bench.hear_grant(5, Duration::from_millis(1_500));
        bench.after(late).on(AcquisitionEvent::Wake).next_step.unwrap()
    };
    assert!(matches!(pushed(0, 700), RequestStep::Granted { .. }));
    assert!(matches!(pushed(0, 800), RequestStep::CallNow));
    assert!(matches!(pushed(1, 0), RequestStep::CallNow));
}

#[test]
fn a_push_that_came_before_a_newer_one_does_not_count() {
    let mut bench = Bench::waiting(LockMode::Write);
    bench.call();
    bench.acquired(QUEUED);
    for token in [6, 5] {
        bench.hear_grant(token, LEASE);
    }
    assert!(matches!(
        bench.on(AcquisitionEvent::Wake).next_step,
        Some(RequestStep::Granted { token: 6, .. })
    ));
}

#[test]
fn a_time_that_is_up_just_after_a_poll_says_nothing_against_the_server() {
    let poll = |silence: u64| {
        let until = Some(at(2_000));
        let mut bench = Bench::new(LockMode::Read, |_| {}, WaitPolicy::Queue { deadline: until });
        bench.call();
        bench.acquired(QUEUED);
        bench.after(2_000 - silence).call();
        kind_of(bench.after(silence).failed(no_answer()))
    };
    let upgrade = |silence: u64| {
        let mut bench = Bench::held_lease(LockMode::Read, 5, |_| {});
        let _ = bench.upgrade(Some(at(2_000)));
        bench.call();
        bench.acquired(AcquireReply::Queued { ticket: 0, ahead: 1 });
        bench.after(2_000 - silence).call();
        kind_of(bench.after(silence).failed(no_answer()))
    };
    for poll in [poll, upgrade] {
        assert_eq!([poll(499), poll(500)], [ErrorKind::TimedOut, ErrorKind::Unavailable]);
    }
}

#[test]
fn waiter_that_the_server_has_no_memory_for_polls_on() {
    let mut upgrading = Bench::upgrading(5);
    upgrading.acquired(AcquireReply::Queued { ticket: 0, ahead: 1 });
    let mut waiting = Bench::waiting(LockMode::Write);
    waiting.call();
    waiting.acquired(QUEUED);
    for mut bench in [waiting, upgrading] {
        bench.call();
        let full = ServerError { code: "OOM".into(), message: "no".into() };
        let next = bench.failed(failed(CallErrorKind::Rejected(full), Doubt::None));
        assert!(matches!(next, RequestStep::WaitUntil(_)), "{next:?}");
    }
}
