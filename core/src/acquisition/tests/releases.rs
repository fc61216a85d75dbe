//! Releases, by the holder and by the worker.

use super::*;

#[test]
fn a_release_is_tried_until_what_may_be_there_has_ended_by_itself() {
    let mut held = Bench::held_lease(LockMode::Write, 5, |_| {});
    held.settings.safety_margin = Some(Duration::from_secs(1));
    let mut doubtful = Bench::held_lease(LockMode::Read, 5, |_| {});
    let _ = doubtful.upgrade(None);
    doubtful.call();
    let mut waiting = Bench::waiting(LockMode::Write);
    waiting.call();
    // A lease; a call that may arrive at its deadline, and a lease; a place, and a call.
    for (mut bench, over) in [(held, 9_000), (doubtful, 11_000), (waiting, 20_000)] {
        let _ = bench.on(AcquisitionEvent::Abandon);
        bench.after(over + 4_999);
        assert!(!bench.on(AcquisitionEvent::TimerFired).deregister);
        assert!(bench.after(1).on(AcquisitionEvent::TimerFired).deregister, "{over}");
    }
    // An answer that requires one more release extends the time to give up.
    let mut bench = Bench::waiting(LockMode::Write);
    bench.call();
    let _ = bench.on(AcquisitionEvent::RequestEnded);
    bench.after(24_000);
    let _ = bench.on(AcquisitionEvent::TimerFired);
    let mut reply = bench.reply(ReleaseReply::NotFound);
    reply.envelope.server_now = 1_000_000;
    let outcome = Ok(reply);
    let again = bench
        .on(AcquisitionEvent::WorkerReleaseReply { wait_only: false, outcome })
        .wake_worker_at
        .unwrap();
    bench.after(1_500);
    assert!(again >= at(25_000) && !bench.on(AcquisitionEvent::TimerFired).deregister);
}

#[test]
fn a_release_does_not_wait_for_a_server_clock_that_was_set_back() {
    let doubt = || failed(CallErrorKind::TimedOut(None), Doubt::Until(1_002_000));
    let set_back = |bench: &Bench| {
        let mut reply = bench.reply(ReleaseReply::NotFound);
        reply.envelope.server_now -= 900_000;
        Ok(reply)
    };
    let mut bench = Bench::waiting(LockMode::Write);
    bench.call();
    let _ = bench.failed(doubt());
    let _ = bench.on(AcquisitionEvent::RequestEnded);
    assert_eq!(bench.worker_calls(), [Some(RELEASE), None]);
    // All that the attempt can have taken has expired at 20,000, and five seconds are added.
    let outcome = set_back(bench.after(100));
    let effects = bench.on(AcquisitionEvent::WorkerReleaseReply { wait_only: false, outcome });
    assert_eq!((effects.wake_worker_at, effects.deregister), (Some(at(25_000)), false));
    assert_eq!(bench.after(24_900).worker_calls(), [Some(RELEASE), None]);
    let outcome = set_back(bench.after(100));
    let effects = bench.on(AcquisitionEvent::WorkerReleaseReply { wait_only: false, outcome });
    assert!(effects.deregister, "it was the last one");

    // The same of an upgrade that was given up, whose read goes on.
    let mut bench = Bench::held_lease(LockMode::Read, 5, |_| {});
    let _ = bench.upgrade(None);
    bench.call();
    let _ = bench.failed(doubt());
    let _ = bench.on(AcquisitionEvent::RequestEnded);
    assert_eq!(bench.worker_calls(), [None, Some(END_WAIT)]);
    let outcome = set_back(bench.after(100));
    let _ = bench.on(AcquisitionEvent::WorkerReleaseReply { wait_only: true, outcome });
    for _ in 0..10 {
        let _ = bench.after(2_490).renewed_by(RenewReply::Renewed, 5, LEASE);
    }
    assert_eq!(bench.worker_calls()[1], Some(END_WAIT));
    let outcome = set_back(&bench);
    let _ = bench.on(AcquisitionEvent::WorkerReleaseReply { wait_only: true, outcome });
    assert!(bench.lease().pending_change().is_none());
}

#[test]
fn a_guard_that_is_dropped_is_released() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let effects = bench.on(AcquisitionEvent::Abandon);
    assert!(
        matches!(effects.hold_end, Some((LockMode::Write, "dropped", _))) && effects.notify_end
    );
    // Failed releases are repeated after pauses that double, up to four seconds.
    for (pause, again) in
        [(500, 500), (1_000, 1_500), (2_000, 3_500), (4_000, 7_500), (4_000, 11_500)]
    {
        assert_eq!(bench.worker_calls(), [Some(RELEASE), None]);
        let outcome = failed(CallErrorKind::TimedOut(None), Doubt::None);
        let effects = bench.on(AcquisitionEvent::WorkerReleaseReply { wait_only: false, outcome });
        assert_eq!(effects.wake_worker_at, Some(at(again)), "again");
        bench.after(pause);
    }
    assert_eq!(bench.worker_calls(), [Some(RELEASE), None]);
    assert!(bench.released(false, ReleaseReply::Released).deregister);
}

#[test]
fn a_release_of_its_holder_ends_it_unless_an_attempt_can_still_arrive() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let effects = bench.on(AcquisitionEvent::ReleaseStarted);
    assert!(matches!(effects.hold_end, Some((LockMode::Write, "released", _))));
    assert!(
        bench.after(10_000).on(AcquisitionEvent::TimerFired).loss.is_none(),
        "its end is no loss"
    );
    let effects = bench.given_back(ReleaseReply::Released);
    assert!(effects.deregister && effects.notify_end);

    let mut bench = Bench::waiting(LockMode::Write);
    bench.call();
    let _ = bench.failed(no_answer());
    bench.call();
    let grant = bench.grant(5, LEASE);
    assert!(matches!(bench.acquired(AcquireReply::Granted(grant)), RequestStep::Granted { .. }));
    let _ = bench.on(AcquisitionEvent::ReleaseStarted);
    assert!(!bench.given_back(ReleaseReply::Released).deregister);
    let effects = bench.on(AcquisitionEvent::Abandon);
    assert!(effects.hold_end.is_none(), "its end was reply");
    assert_eq!(bench.worker_calls(), [Some(RELEASE), None]);
}

#[test]
fn renewal_answered_while_releasing_returns_an_error_and_is_no_loss() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let _ = bench.on(AcquisitionEvent::ReleaseStarted);
    let effects = bench.on(AcquisitionEvent::RenewReply(no_answer()));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Unavailable);
    let grant = bench.grant(5, LEASE);
    let effects = bench.renewed(RenewReply::Revoked(grant));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::LeaseLost);
    assert_eq!(
        kind_of(bench.renewed(RenewReply::NotHeld).next_step.unwrap()),
        ErrorKind::LeaseLost
    );
    assert!(!bench.is_lost());
}

#[test]
fn an_end_means_nothing_to_what_is_over() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let _ = bench.on(AcquisitionEvent::LetExpire);
    assert_eq!(bench.state, AcquisitionState::Ended);
    for event in [
        AcquisitionEvent::Abandon,
        AcquisitionEvent::RequestEnded,
        AcquisitionEvent::TimerFired,
        AcquisitionEvent::ReleaseStarted,
        AcquisitionEvent::Downgrade,
    ] {
        let effects = bench.on(event);
        assert!(!effects.deregister && !effects.notify_end && effects.wake_worker_at.is_none());
    }
    assert_eq!(kind_of(bench.call()), ErrorKind::Cancelled);
}
