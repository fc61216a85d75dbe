//! Giving back some of the permits.

use super::*;

/// Holds three of five permits.
fn three_permits() -> Bench {
    let permits = Some(PermitRequest { count: 3, limit: 5 });
    Bench::held_lease(LockMode::Read, 5, |options| options.permits = permits)
}

fn keeps(keep: u32) -> [Option<WorkerCall>; 2] {
    [None, Some(WorkerCall::ReleasePermits(ReleasePermitsRequest { keep }))]
}

#[test]
fn a_call_under_way_that_keeps_too_many_is_followed_by_another() {
    let mut bench = three_permits();
    let _ = bench.on(AcquisitionEvent::ReleasePermits { keep: 2 });
    assert_eq!(bench.worker_calls(), keeps(2));
    let _ = bench.on(AcquisitionEvent::ReleasePermits { keep: 1 });
    assert_eq!(bench.worker_calls(), [None, None], "one at a time");
    assert_eq!(bench.on_permits_released(2, 5).wake_worker_at, Some(at(0)));
    assert_eq!(bench.worker_calls(), keeps(1));
    let _ = bench.on_permits_released(1, 5);
    let _ = bench.on(AcquisitionEvent::ReleasePermits { keep: 2 });
    assert_eq!(bench.worker_calls(), keeps(1), "never more than before");
}

#[test]
fn a_call_that_fails_is_tried_again() {
    let mut bench = three_permits();
    let _ = bench.on(AcquisitionEvent::ReleasePermits { keep: 1 });
    let _ = bench.on(AcquisitionEvent::TimerFired);
    let effects = bench.on(AcquisitionEvent::ReleasePermitsReply { keep: 1, outcome: no_answer() });
    assert_eq!(effects.wake_worker_at, Some(at(500)));
    assert_eq!(bench.after(400).worker_calls(), [None, None]);
    assert_eq!(bench.after(100).worker_calls(), keeps(1));
}

#[test]
fn permits_that_are_gone_are_lost_and_what_took_their_place_is_released() {
    let mut gone = three_permits();
    let outcome = Ok(gone.reply(None));
    assert!(gone.on(AcquisitionEvent::ReleasePermitsReply { keep: 1, outcome }).loss.is_some());
    assert_eq!(gone.worker_calls(), [None, None]);
    let mut replaced = three_permits();
    assert!(replaced.on_permits_released(1, 6).loss.is_some());
    assert_eq!(replaced.worker_calls(), [None, Some(RELEASE)]);
}

#[test]
fn release_of_released_or_lost_permits_has_no_effect() {
    let mut released = three_permits();
    let _ = released.on(AcquisitionEvent::ReleasePermits { keep: 1 });
    let _ = released.on(AcquisitionEvent::TimerFired);
    let _ = released.on(AcquisitionEvent::ReleaseStarted);
    let outcome = Ok(released.reply(None));
    let effects = released.on(AcquisitionEvent::ReleasePermitsReply { keep: 1, outcome });
    assert!(effects.loss.is_none(), "the release answers for it");
    let mut lost = three_permits();
    let _ = lost.renewed(RenewReply::NotHeld);
    let _ = lost.on(AcquisitionEvent::ReleasePermits { keep: 1 });
    assert!(
        !lost.worker_calls().iter().flatten().any(|it| matches!(it, WorkerCall::ReleasePermits(_)))
    );
}
