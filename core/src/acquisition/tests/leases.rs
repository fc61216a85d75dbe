//! Renewals of a lease, and its loss.

use super::*;
use crate::protocol::ConfirmationError;

/// The answer to the upgrade tells of the write. Until then the read ends when it did before.
#[test]
fn renewal_answered_other_while_upgrading_changes_no_deadline_and_is_not_repeated_at_once() {
    let mut bench = Bench::upgrading(5);
    bench.after(3_000);
    assert!(bench.is_renewed());
    let ends = bench.ends();
    let grant = bench.grant(6, LEASE);
    let effects = bench.renewed(RenewReply::Other(grant));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Unavailable);
    assert_eq!((bench.ends(), bench.is_lost()), (ends, false));
    assert_eq!(bench.worker_calls(), [None, None]);
    assert!(matches!(bench.push(6, LEASE), RequestStep::Granted { token: 6, .. }));
    let [Some(WorkerCall::Renew { renew, .. }), None] = bench.worker_calls() else { panic!() };
    assert_eq!((renew.mode, renew.token), (LockMode::Write, 6), "the claim");
    // An answer to another renewal of the read, which comes after the upgrade.
    let mut late = bench.reply(RenewReply::Other(grant));
    late.sent_at = at(3_000);
    let _ = bench.on(AcquisitionEvent::RenewReply(Ok(late)));
    assert!(!bench.is_lost());
}

#[test]
fn a_revoked_lease_ends_earlier_if_a_failover_has_lost_its_renewal() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    bench.after(3_000);
    let renewed = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::Renewed(renewed));
    assert_eq!(bench.ends(), at(12_000));
    bench.after(3_000);
    let _ = bench.renewed_by(RenewReply::Revoked, 5, Duration::from_secs(3));
    assert_eq!(bench.ends(), at(9_000));
    assert!(!bench.after(2_999).is_lost());
    let _ = bench.after(1).on(AcquisitionEvent::TimerFired);
    assert!(bench.is_lost());
}

#[test]
fn a_revoked_lease_that_has_ended_is_lost() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let effects = bench.after(3_000).renewed_by(RenewReply::Revoked, 5, Duration::ZERO);
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::LeaseLost);
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let whole = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::NotHeld);
    let effects = bench.renewed(RenewReply::Revoked(whole));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::LeaseLost);
}

#[test]
fn an_upgrade_that_is_refused_as_revoked_has_the_lease_renewed_at_once() {
    let mut bench = Bench::upgrading(5);
    assert_eq!(kind_of(bench.acquired(AcquireReply::Revoked)), ErrorKind::LeaseRevoked);
    let sends = bench.worker_calls();
    assert!(matches!(sends[0], Some(WorkerCall::Renew { .. })), "{sends:?}");
    let mut late = Bench::upgrading(5);
    assert_eq!(kind_of(late.after(60_000).acquired(AcquireReply::Revoked)), ErrorKind::LeaseLost);
}

#[test]
fn an_answer_from_before_a_revocation_does_not_extend_the_lease() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let early = bench.reply(RenewReply::Renewed(bench.grant(5, LEASE + Duration::from_secs(3))));
    bench.after(1_000);
    let _ = bench.renewed_by(RenewReply::Revoked, 5, Duration::from_secs(8));
    let effects = bench.on(AcquisitionEvent::RenewReply(Ok(early)));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::LeaseRevoked);
    assert_eq!(bench.ends(), at(9_000));
    assert_eq!(bench.after(5_000).worker_calls(), [None, None]);
}

#[test]
fn an_upgrade_that_is_granted_after_a_revocation_is_renewed() {
    let mut bench = Bench::upgrading(5);
    let _ = bench.renewed_by(RenewReply::Revoked, 5, LEASE);
    let granted = bench.grant(6, LEASE);
    let next = bench.acquired(AcquireReply::Granted(granted));
    assert!(matches!(next, RequestStep::Granted { token: 6, .. }), "{next:?}");
    bench.after(3_000);
    assert!(bench.is_renewed());
    let grant = bench.grant(6, LEASE);
    let _ = bench.renewed(RenewReply::Renewed(grant));
    assert_eq!(bench.ends(), at(12_000));
}

#[test]
fn a_renewal_that_fails_is_tried_again_and_the_lease_is_uncertain_meanwhile() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    bench.after(3_000);
    let _ = bench.on(AcquisitionEvent::TimerFired);
    let effects = bench.on(AcquisitionEvent::RenewReply(no_answer()));
    assert!(
        effects.notify_waiters
            && matches!(effects.telemetry, Some(TelemetryEvent::RenewalFailed { .. }))
    );
    assert!(bench.is_uncertain());
    bench.after(900);
    assert!(bench.is_renewed());
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::Renewed(grant));
    assert!(!bench.is_uncertain());
}

#[test]
fn renewal_that_no_replica_confirms_recalls_a_cached_lease_all_the_same() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |options| {
        (options.confirmation.replicas, options.is_cacheable) = (1, true);
    });
    assert!(bench.after(3_000).is_renewed());
    let ends = bench.ends();
    let mut renewed = |recall_mode| {
        let grant = Grant { recall_mode, ..bench.grant(5, LEASE) };
        let mut reply = bench.reply(RenewReply::Renewed(grant));
        reply.confirmed = Err(ConfirmationError::TooFewReplicas { confirmed: 0, wanted: 1 });
        let effects = bench.on(AcquisitionEvent::RenewReply(Ok(reply)));
        assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Unavailable);
        assert!(effects.notify_waiters);
        let keepalive = bench.lease().keepalive.as_deref().unwrap();
        assert_eq!((bench.ends(), keepalive.sent_at), (ends, at(0)), "it counts for nothing else");
        keepalive.recall_mode
    };
    assert_eq!(renewed(Some(LockMode::Read)), Some(LockMode::Read));
    assert_eq!(renewed(None), Some(LockMode::Read), "no renewal takes a recall back");
}

/// A renewal may be late by a sixth of the lease.
#[test]
fn a_renewal_that_is_late_makes_the_lease_uncertain() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let due = 3_000; // a third of the lease
    bench.after(due + 1_499);
    assert!(!bench.is_uncertain());
    bench.after(1);
    assert!(bench.is_uncertain());
}

#[test]
fn a_claim_is_not_counted_as_a_renewal() {
    for (renewal, claims) in [(RenewalPolicy::Manual, 1), (RenewalPolicy::Limited(1), 2)] {
        let wait = WaitPolicy::Queue { deadline: None };
        let mut bench = Bench::new(LockMode::Write, |options| options.renewal = renewal, wait);
        bench.call();
        bench.acquired(QUEUED);
        bench.push(5, Duration::from_millis(1_500));
        let mut sent = 0;
        for _ in 0..5 {
            let [renewal, _] = bench.worker_calls();
            sent += u32::from(renewal.is_some());
            let grant = bench.grant(5, LEASE);
            if renewal.is_some() {
                let _ = bench.renewed(RenewReply::Renewed(grant));
            }
            bench.after(3_000);
        }
        assert_eq!(sent, claims, "{renewal:?}");
    }
    let mut bench =
        Bench::held_lease(LockMode::Read, 5, |options| options.renewal = RenewalPolicy::Manual);
    let _ = bench.upgrade(None);
    bench.call();
    bench.acquired(AcquireReply::Queued { ticket: 0, ahead: 1 });
    bench.push(6, Duration::from_millis(1_500));
    assert!(bench.is_renewed());
}

/// Returns the time left in the event that the lease is at risk.
fn risk(effects: &Effects) -> Option<Duration> {
    match effects.telemetry {
        Some(TelemetryEvent::AtRisk { left, .. }) => Some(left),
        _ => None,
    }
}

#[test]
fn a_lease_is_at_risk_after_half_of_it_without_a_renewal_and_says_so_once() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    assert!(bench.after(3_000).is_renewed(), "and there is no answer");
    assert_eq!(bench.lease().at_risk_from(), Some(at(4_500)));
    assert_eq!(risk(&bench.after(1_499).on(AcquisitionEvent::TimerFired)), None);
    let effects = bench.after(1).on(AcquisitionEvent::TimerFired);
    assert_eq!(risk(&effects), Some(LEASE / 2));
    assert!(effects.notify_waiters);
    assert_eq!(effects.wake_worker_at, Some(at(9_000)), "the end is next");
    assert_eq!(risk(&bench.after(1).on(AcquisitionEvent::TimerFired)), None, "again");
    // A success ends the episode, and the next one is reported.
    let _ = bench.renewed_by(RenewReply::Renewed, 5, LEASE);
    assert_eq!(bench.lease().at_risk_from(), Some(at(4_501 + 4_500)));
    assert!(bench.after(3_000).is_renewed());
    assert!(risk(&bench.after(1_500).on(AcquisitionEvent::TimerFired)).is_some());
}

#[test]
fn a_lease_whose_renewal_fails_is_at_risk_when_half_of_it_is_left() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    assert!(bench.after(3_000).is_renewed());
    let effects = bench.on(AcquisitionEvent::RenewReply(no_answer()));
    assert_eq!(bench.lease().at_risk_from(), Some(at(4_500)));
    assert!(effects.wake_worker_at.is_some_and(|at_last| at_last <= at(4_500)));
    let _ = bench.after(1_000).worker_calls();
    assert!(risk(&bench.after(500).on(AcquisitionEvent::TimerFired)).is_some());
    // A failure that is known late is reported at once.
    let mut bench = Bench::held_lease(LockMode::Write, 5, |options| {
        options.renewal = RenewalPolicy::Manual;
    });
    assert_eq!(bench.lease().at_risk_from(), None);
    let effects = bench.after(6_000).on(AcquisitionEvent::RenewReply(no_answer()));
    assert!(effects.wake_worker_at.is_some_and(|due| due <= at(6_000)), "{effects:?}");
    assert_eq!(risk(&bench.on(AcquisitionEvent::TimerFired)), Some(LEASE / 3));
}

/// The cache sends its keep-alives, and the worker no renewals.
#[test]
fn a_cached_lease_whose_keep_alive_is_not_answered_is_at_risk_after_half_of_it() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |options| {
        (options.renewal, options.is_cacheable) = (RenewalPolicy::Manual, true);
    });
    assert_eq!(bench.lease().at_risk_from(), Some(at(4_500)));
    assert!(!bench.after(2_999).is_uncertain());
    assert!(bench.after(1).is_uncertain(), "a sixth after a sixth");
    let effects = bench.after(1_500).on(AcquisitionEvent::TimerFired);
    assert!(effects.notify_waiters && risk(&effects).is_none(), "not for cached locks");
    let _ = bench.renewed_by(RenewReply::Renewed, 5, LEASE);
    assert_eq!(bench.lease().at_risk_from(), Some(at(9_000)));
    assert!(!bench.is_uncertain());
}

/// The reply comes after a third of the lease, when a renewal is due. It is no claim.
#[test]
fn the_limit_of_renewals_counts_all_of_a_lease_whose_grant_was_answered_late() {
    let policy = WaitPolicy::Queue { deadline: None };
    let granted_late = |renewal, reserved| {
        let change = |options: &mut LeaseOptions| {
            (options.renewal, options.reserved) = (renewal, reserved);
        };
        let mut bench = Bench::new(LockMode::Write, change, policy);
        bench.call();
        let mut reply = bench.reply(AcquireReply::Granted(bench.grant(5, LEASE)));
        bench.after(3_500);
        (reply.received_at, reply.sent_at) = (bench.now, at(0));
        let granted = bench.on(AcquisitionEvent::AcquireReply(Ok(reply))).next_step;
        assert!(matches!(granted, Some(RequestStep::Granted { .. })), "{granted:?}");
        if reserved {
            let _ = bench.on(AcquisitionEvent::BeginUse);
        }
        bench
    };
    for reserved in [false, true] {
        let mut manual = granted_late(RenewalPolicy::Manual, reserved);
        assert_eq!(manual.worker_calls(), [None, None], "{reserved}");
        let mut once = granted_late(RenewalPolicy::Limited(1), reserved);
        assert!(once.is_renewed(), "{reserved}");
        let _ = once.renewed_by(RenewReply::Renewed, 5, LEASE);
        assert_eq!(once.after(4_000).worker_calls(), [None, None], "{reserved}");
    }
    let change = |options: &mut LeaseOptions| {
        (options.renewal, options.is_cacheable) = (RenewalPolicy::Manual, true);
    };
    let mut pushed = Bench::new(LockMode::Write, change, policy);
    pushed.call();
    let _ = pushed.acquired(QUEUED);
    assert!(matches!(pushed.push(5, LEASE), RequestStep::Granted { .. }));
    assert!(pushed.is_renewed(), "the claim");
    let _ = pushed.renewed_by(RenewReply::Renewed, 5, LEASE);
    assert_eq!(pushed.after(4_000).worker_calls(), [None, None]);
}

#[test]
fn a_reserved_lease_whose_claim_failed_is_claimed_in_use() {
    let change = |options: &mut LeaseOptions| {
        (options.renewal, options.reserved) = (RenewalPolicy::Manual, true);
    };
    let mut bench = Bench::new(LockMode::Write, change, WaitPolicy::Queue { deadline: None });
    bench.call();
    let _ = bench.acquired(QUEUED);
    assert!(matches!(bench.push(5, LEASE), RequestStep::Granted { .. }));
    assert!(bench.is_renewed(), "the claim");
    let _ = bench.on(AcquisitionEvent::RenewReply(no_answer()));
    let _ = bench.on(AcquisitionEvent::BeginUse);
    assert!(bench.after(1_000).is_renewed(), "the claim again");
    let _ = bench.renewed_by(RenewReply::Renewed, 5, LEASE);
    assert_eq!(bench.after(4_000).worker_calls(), [None, None]);
}

#[test]
fn a_lease_that_is_revoked_released_or_lost_is_not_at_risk() {
    let mut revoked = Bench::held_lease(LockMode::Write, 5, |_| {});
    let _ = revoked.after(3_000).renewed_by(RenewReply::Revoked, 5, LEASE);
    let mut released = Bench::held_lease(LockMode::Write, 5, |_| {});
    let _ = released.on(AcquisitionEvent::ReleaseStarted);
    let mut lost = Bench::held_lease(LockMode::Write, 5, |_| {});
    let _ = lost.renewed(RenewReply::NotHeld);
    for bench in [revoked, released, lost] {
        assert_eq!(bench.lease().at_risk_from(), None);
    }
}

#[test]
fn a_reserved_lease_at_risk_is_reported_again_in_use() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |options| options.reserved = true);
    assert!(bench.after(3_000).is_renewed(), "and there is no answer");
    let effects = bench.after(1_500).on(AcquisitionEvent::TimerFired);
    assert!(effects.notify_waiters && risk(&effects).is_none(), "no guard has it");
    let _ = bench.on(AcquisitionEvent::BeginUse);
    assert!(risk(&bench.on(AcquisitionEvent::TimerFired)).is_some());
}

/// The loss comes between the last look at a reserved lease and its use.
#[test]
fn a_reserved_lease_that_is_lost_before_its_use_is_reported_then() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |options| options.reserved = true);
    assert!(!bench.renewed(RenewReply::NotHeld).loss.unwrap().is_reported, "no guard has it");
    assert!(bench.on(AcquisitionEvent::BeginUse).loss.unwrap().is_reported);
}

#[test]
fn a_lease_of_a_redlock_member_reports_no_risk_and_no_loss() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |options| options.is_member = true);
    assert!(bench.after(3_000).is_renewed(), "and there is no answer");
    let effects = bench.after(1_500).on(AcquisitionEvent::TimerFired);
    assert!(effects.notify_waiters && risk(&effects).is_none());
    let lost = bench.renewed(RenewReply::NotHeld).loss.unwrap();
    assert!(lost.by_server && !lost.is_reported);
}

#[test]
fn a_lease_with_a_shortest_time_requests_it_and_keeps_it_at_the_release() {
    let least = Duration::from_secs(20);
    let options = |options: &mut LeaseOptions| options.at_least = Some(least);
    let mut bench = Bench::new(LockMode::Write, options, WaitPolicy::Queue { deadline: None });
    let RequestStep::Send { acquire, .. } = bench.call() else { panic!() };
    assert_eq!(acquire.lease, least);
    bench.after(100);
    // The reply to a repeated call: the lease was granted 50 ms before.
    let grant = Grant::new(5, bench.server_now() - 50 + 20_000);
    assert!(matches!(bench.acquired(AcquireReply::Granted(grant)), RequestStep::Granted { .. }));
    let until = bench.server_now() - 50 + 20_000;
    assert_eq!(bench.lease().keep_until, Some(until));
    let [Some(WorkerCall::Renew { renew, .. }), None] = bench.after(3_000).worker_calls() else {
        panic!()
    };
    assert_eq!(renew.lease, least - Duration::from_secs(3), "to the end of the shortest time");
    let _ = bench.renewed_by(RenewReply::Renewed, 5, renew.lease);
    let _ = bench.after(3_000).on(AcquisitionEvent::Abandon);
    let release = ReleaseRequest { wait_only: false, keep_until: Some(until) };
    assert_eq!(bench.worker_calls(), [Some(WorkerCall::Release(release)), None]);
    // A lease that replaced it is a late duplicate, which nobody has used.
    let mut replaced = Bench::held_lease(LockMode::Write, 5, options);
    assert!(replaced.lease().keep_until.is_some());
    assert!(replaced.renewed_by(RenewReply::Renewed, 9, LEASE).loss.is_some());
    let _ = replaced.on(AcquisitionEvent::Abandon);
    assert_eq!(replaced.worker_calls(), [Some(WorkerCall::Release(ReleaseRequest::ALL)), None]);
}

#[test]
fn a_pushed_lease_with_a_shortest_time_is_held_when_the_server_keeps_it_for_that_time() {
    let least = Duration::from_secs(20);
    let options = |options: &mut LeaseOptions| options.at_least = Some(least);
    let mut pushed = Bench::new(LockMode::Write, options, WaitPolicy::Queue { deadline: None });
    pushed.call();
    let _ = pushed.acquired(QUEUED);
    // The pushed grant lasts for its window. The holder could die before its claim is carried out.
    assert!(matches!(pushed.after(500).push(6, LEASE / 6), RequestStep::CallNow));
    let RequestStep::Send { acquire, .. } = pushed.call() else { panic!() };
    assert_eq!(acquire.lease, least);
    let claimed = pushed.after(100).server_now();
    let grant = Grant::new(6, claimed + 20_000);
    assert!(matches!(pushed.acquired(AcquireReply::Granted(grant)), RequestStep::Granted { .. }));
    assert_eq!(pushed.lease().keep_until, Some(claimed + 20_000));
}
