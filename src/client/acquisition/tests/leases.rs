//! Renewals of a lease, and its loss.

use super::*;

#[test]
fn a_lease_is_renewed_while_its_limits_allow_it_and_ends_by_itself() {
    let mut bench =
        Bench::holding(LockMode::Read, 5, |options| options.renewal = RenewalPolicy::Limited(1));
    bench.after(2_000);
    assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, None]);
    bench.after(1_000);
    assert!(matches!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [Some(WorkerCall::Renew { .. }), None]
    ));
    assert_eq!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [None, None],
        "it is on its way"
    );
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::Renewed(grant));
    assert_eq!(bench.ends(), at(12_000));
    bench.after(5_000);
    assert_eq!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [None, None],
        "there was one renewal"
    );
    let effects = bench.after(4_000).on(AcquisitionEvent::TimerFired);
    assert!(
        bench.is_lost() && effects.notify_end && effects.loss.is_some_and(|lost| !lost.by_server)
    );
    let late = bench.renewed(RenewReply::Renewed(grant));
    assert!(bench.is_lost() && late.loss.is_none(), "for good, and told once");
}

#[test]
fn another_token_is_another_lease_unless_an_upgrade_explains_it() {
    let renew = |bench: &mut Bench, token: u64, sent: LocalInstant| {
        let mut told = bench.told(RenewReply::Other(bench.grant(token, LEASE)));
        told.sent_at = sent;
        let _ = bench.on(AcquisitionEvent::RenewReply(Ok(told)));
        bench.is_lost()
    };
    for token in [4, 6] {
        let mut bench = Bench::holding(LockMode::Read, 5, |_| {});
        bench.after(1_000);
        assert!(renew(&mut bench, token, at(1_000)), "{token}");
        // The lease in its place is released.
        assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, Some(RELEASE)]);
    }
    let mut upgrading = Bench::upgrading(5);
    assert!(!renew(&mut upgrading, 6, at(0)), "granted, and not heard of yet");
    let mut given_up = Bench::upgrading(5);
    let _ = given_up.on(AcquisitionEvent::RequestEnded);
    assert!(!renew(&mut given_up, 6, at(0)), "granted all the same");
    let mut granted = Bench::upgrading(5);
    granted.after(1_000);
    let grant = granted.grant(6, LEASE);
    assert!(matches!(
        granted.acquired(AcquireReply::Granted(grant)),
        RequestStep::Granted { token: 6, .. }
    ));
    assert!(!renew(&mut granted, 5, at(900)), "sent before the upgrade");
    assert!(renew(&mut granted, 5, at(1_100)), "the server has lost the upgrade");
}

/// The answer to the upgrade tells of the write. Until then the read ends when it did before.
#[test]
fn renewal_answered_other_while_upgrading_changes_no_deadline_and_is_not_repeated_at_once() {
    let mut bench = Bench::upgrading(5);
    bench.after(3_000);
    assert!(matches!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [Some(WorkerCall::Renew { .. }), None]
    ));
    let ends = bench.ends();
    let grant = bench.grant(6, LEASE);
    let effects = bench.renewed(RenewReply::Other(grant));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Unavailable);
    assert_eq!((bench.ends(), bench.is_lost()), (ends, false));
    assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, None]);
    assert!(matches!(bench.push(6, LEASE), RequestStep::Granted { token: 6, .. }));
    let [Some(WorkerCall::Renew { renew, .. }), None] =
        bench.on(AcquisitionEvent::TimerFired).worker_calls
    else {
        panic!()
    };
    assert_eq!((renew.mode, renew.token), (LockMode::Write, 6), "the claim");
    // An answer to another renewal of the read, which comes after the upgrade.
    let mut late = bench.told(RenewReply::Other(grant));
    late.sent_at = at(3_000);
    let _ = bench.on(AcquisitionEvent::RenewReply(Ok(late)));
    assert!(!bench.is_lost());
}

#[test]
fn renewal_says_the_mode_the_token_and_the_permits_that_are_held() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    let renewal = |bench: &mut Bench| {
        let [Some(WorkerCall::Renew { renew, .. }), _] =
            bench.after(3_500).on(AcquisitionEvent::TimerFired).worker_calls
        else {
            panic!()
        };
        (renew.mode, renew.token, renew.permits)
    };
    assert_eq!(renewal(&mut bench), (LockMode::Write, 5, 0));
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::Renewed(grant));
    let _ = bench.on(AcquisitionEvent::Downgrade);
    let _ = bench.on(AcquisitionEvent::TimerFired);
    let downgraded = bench.told(RenewReply::Renewed(grant));
    let _ = bench.on(AcquisitionEvent::DowngradeReply(Ok(downgraded)));
    assert_eq!(renewal(&mut bench), (LockMode::Read, 5, 0));
    let permits = PermitRequest { count: 7, limit: 10 };
    let mut bench = Bench::holding(LockMode::Read, 5, |options| options.permits = Some(permits));
    let _ = bench.on(AcquisitionEvent::ReleasePermits { keep: 3 });
    assert_eq!(renewal(&mut bench), (LockMode::Read, 5, 3));
}

#[test]
fn lease_replaced_at_renewal_is_not_kept_and_its_release_gives_up() {
    let replaced = || {
        let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
        let grant = bench.grant(6, LEASE);
        let _ = bench.renewed(RenewReply::Other(grant));
        bench
    };
    let mut kept = replaced();
    assert!(!kept.on(AcquisitionEvent::LetExpire).deregister);
    let mut bench = replaced();
    let _ = bench.on(AcquisitionEvent::TimerFired);
    for _ in 0..100 {
        let _ = bench
            .on(AcquisitionEvent::WorkerReleaseReply { only_wait: false, outcome: no_answer() });
        let _ = bench.after(1_000).on(AcquisitionEvent::TimerFired);
    }
    assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, None]);
    assert!(
        matches!(&bench.state, AcquisitionState::Held(holding) if holding.pending_change().is_none())
    );
    let mut good = Bench::holding(LockMode::Write, 5, |_| {});
    assert!(good.on(AcquisitionEvent::LetExpire).deregister);
}

#[test]
fn a_revoked_lease_ends_at_its_deadline() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    let grant = bench.grant(5, LEASE);
    let effects = bench.renewed(RenewReply::Revoked(grant));
    assert!(matches!(effects.telemetry, Some(TelemetryEvent::Renewed { outcome: "revoked", .. })));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Revoked);
    assert!(
        matches!(&bench.state, AcquisitionState::Held(it) if it.is_at_risk(bench.now) && !it.is_lost())
    );
    bench.after(5_000);
    assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, None]);
    assert_eq!(bench.ends(), at(9_000));
}

#[test]
fn a_revoked_lease_ends_earlier_if_a_failover_has_lost_its_renewal() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    bench.after(3_000);
    let renewed = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::Renewed(renewed));
    assert_eq!(bench.ends(), at(12_000));
    bench.after(3_000);
    let as_granted = bench.grant(5, Duration::from_secs(3));
    let _ = bench.renewed(RenewReply::Revoked(as_granted));
    assert_eq!(bench.ends(), at(9_000));
    assert!(!bench.after(2_999).is_lost());
    let _ = bench.after(1).on(AcquisitionEvent::TimerFired);
    assert!(bench.is_lost());
}

#[test]
fn a_revoked_lease_that_has_ended_is_lost() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    let over = bench.grant(5, Duration::ZERO);
    let effects = bench.after(3_000).renewed(RenewReply::Revoked(over));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Lost);
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    let whole = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::NotHeld);
    let effects = bench.renewed(RenewReply::Revoked(whole));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Lost);
}

#[test]
fn an_upgrade_that_is_refused_as_revoked_has_the_lease_renewed_at_once() {
    let mut bench = Bench::upgrading(5);
    assert_eq!(kind_of(bench.acquired(AcquireReply::Revoked)), ErrorKind::Revoked);
    let sends = bench.on(AcquisitionEvent::TimerFired).worker_calls;
    assert!(matches!(sends[0], Some(WorkerCall::Renew { .. })), "{sends:?}");
    let mut late = Bench::upgrading(5);
    assert_eq!(kind_of(late.after(60_000).acquired(AcquireReply::Revoked)), ErrorKind::Lost);
}

#[test]
fn an_answer_from_before_a_revocation_does_not_extend_the_lease() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    let early = bench.told(RenewReply::Renewed(bench.grant(5, LEASE + Duration::from_secs(3))));
    bench.after(1_000);
    let left = bench.grant(5, Duration::from_secs(8));
    let _ = bench.renewed(RenewReply::Revoked(left));
    let effects = bench.on(AcquisitionEvent::RenewReply(Ok(early)));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Revoked);
    assert_eq!(bench.ends(), at(9_000));
    assert_eq!(bench.after(5_000).on(AcquisitionEvent::TimerFired).worker_calls, [None, None]);
}

#[test]
fn an_upgrade_that_is_granted_after_a_revocation_is_renewed() {
    let mut bench = Bench::upgrading(5);
    let left = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::Revoked(left));
    let granted = bench.grant(6, LEASE);
    let next = bench.acquired(AcquireReply::Granted(granted));
    assert!(matches!(next, RequestStep::Granted { token: 6, .. }), "{next:?}");
    bench.after(3_000);
    assert!(matches!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [Some(WorkerCall::Renew { .. }), None]
    ));
    let grant = bench.grant(6, LEASE);
    let _ = bench.renewed(RenewReply::Renewed(grant));
    assert_eq!(bench.ends(), at(12_000));
}

#[test]
fn a_renewal_that_fails_is_tried_again_and_the_lease_is_uncertain_meanwhile() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    bench.after(3_000);
    let _ = bench.on(AcquisitionEvent::TimerFired);
    let effects = bench.on(AcquisitionEvent::RenewReply(no_answer()));
    assert!(
        effects.notify_waiters
            && matches!(effects.telemetry, Some(TelemetryEvent::RenewalFailed { .. }))
    );
    assert!(
        matches!(&bench.state, AcquisitionState::Held(holding) if holding.is_at_risk(bench.now))
    );
    bench.after(900);
    assert!(matches!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [Some(WorkerCall::Renew { .. }), None]
    ));
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(RenewReply::Renewed(grant));
    assert!(
        matches!(&bench.state, AcquisitionState::Held(holding) if !holding.is_at_risk(bench.now))
    );
}

/// A renewal may be late by a sixth of the lease.
#[test]
fn a_renewal_that_is_late_makes_the_lease_uncertain() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    let due = 3_000; // a third of the lease
    bench.after(due + 1_500);
    assert!(!bench.is_shaky());
    bench.after(1);
    assert!(bench.is_shaky());
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
            let [renewal, _] = bench.on(AcquisitionEvent::TimerFired).worker_calls;
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
        Bench::holding(LockMode::Read, 5, |options| options.renewal = RenewalPolicy::Manual);
    let _ = bench.on(AcquisitionEvent::Upgrade(WaitPolicy::Queue { deadline: None }));
    bench.call();
    bench.acquired(AcquireReply::Queued { ticket: 0, ahead: 1 });
    bench.push(6, Duration::from_millis(1_500));
    assert!(matches!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [Some(WorkerCall::Renew { .. }), None]
    ));
}
