//! Upgrades and downgrades.

use super::*;

#[test]
fn an_upgrade_has_the_terms_of_its_lease() {
    let mut bench = Bench::holding(LockMode::Read, 5, |options| {
        options.min_replicas = 2;
        options.max_hold = Some(Duration::from_secs(10));
    });
    bench.after(4_000);
    let _ = bench.on(AcquisitionEvent::Upgrade(WaitPolicy::Queue { deadline: None }));
    let RequestStep::Send { acquire, replicas, .. } = bench.call() else { panic!() };
    assert_eq!((acquire.lease, replicas), (Duration::from_secs(6), 2), "not past the longest hold");
    assert_eq!(acquire.kind, AcquireKind::Upgrade { token: 5 });
}

#[test]
fn a_late_push_of_the_read_is_no_upgrade() {
    let mut bench = Bench::upgrading(5);
    bench.acquired(AcquireReply::Queued { ticket: 0, ahead: 2 });
    assert!(matches!(bench.push(5, LEASE), RequestStep::CallNow));
    assert_eq!(bench.mode(), LockMode::Read);
    bench.call();
    bench.acquired(AcquireReply::Queued { ticket: 0, ahead: 2 });
    assert!(matches!(bench.push(6, LEASE), RequestStep::Granted { token: 6, .. }));
    assert_eq!(bench.mode(), LockMode::Write);
}

#[test]
fn an_upgrade_that_is_given_up_ends_its_wait_and_what_was_granted_becomes_a_read() {
    let mut bench = Bench::upgrading(5);
    bench.acquired(AcquireReply::Queued { ticket: 0, ahead: 2 });
    let _ = bench.on(AcquisitionEvent::RequestEnded);
    assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, Some(END_WAIT)]);
    let granted = bench.grant(6, LEASE);
    let _ = bench.released(true, ReleaseReply::UpgradeGranted(granted));
    let [None, Some(WorkerCall::Downgrade(downgrade))] =
        bench.on(AcquisitionEvent::TimerFired).worker_calls
    else {
        panic!()
    };
    assert_eq!(downgrade.token, 6);
    let told = bench.told(RenewReply::Renewed(granted));
    let _ = bench.on(AcquisitionEvent::DowngradeReply(Ok(told)));
    assert_eq!(bench.mode(), LockMode::Read);
}

#[test]
fn an_upgrade_begins_when_no_change_can_arrive_any_more() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    let _ = bench.on(AcquisitionEvent::Downgrade);
    assert!(matches!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [None, Some(WorkerCall::Downgrade(_))]
    ));
    let until = Some(at(1_000));
    let policy = WaitPolicy::Queue { deadline: until };
    assert!(matches!(
        bench.on(AcquisitionEvent::Upgrade(policy)).next_step,
        Some(RequestStep::WaitUntil(_))
    ));
    let _ = bench.on(AcquisitionEvent::DowngradeReply(no_answer()));
    assert!(
        matches!(
            bench.on(AcquisitionEvent::Upgrade(policy)).next_step,
            Some(RequestStep::WaitUntil(_))
        ),
        "it may arrive"
    );
    let next = bench.after(1_000).on(AcquisitionEvent::Upgrade(policy)).next_step.unwrap();
    assert_eq!(kind_of(next), ErrorKind::TimedOut);
    let told = bench.told(RenewReply::Renewed(bench.grant(5, LEASE)));
    let _ = bench.on(AcquisitionEvent::DowngradeReply(Ok(told)));
    let policy = WaitPolicy::Queue { deadline: None };
    assert!(matches!(
        bench.on(AcquisitionEvent::Upgrade(policy)).next_step,
        Some(RequestStep::CallNow)
    ));
}

#[test]
fn a_claim_window_of_an_upgrade_ends_within_the_longest_hold() {
    let hold = |options: &mut LeaseOptions| options.max_hold = Some(Duration::from_secs(5));
    let mut bench = Bench::holding(LockMode::Read, 5, hold);
    bench.after(4_000);
    let _ = bench.on(AcquisitionEvent::Upgrade(WaitPolicy::Queue { deadline: None }));
    let RequestStep::Send { acquire, .. } = bench.call() else { panic!() };
    assert_eq!(acquire.wait.unwrap().claim_timeout, Duration::from_secs(1));
}

#[test]
fn a_wait_that_is_over_is_ended_until_no_attempt_of_it_can_arrive() {
    let mut bench = Bench::upgrading(5);
    let _ = bench.on(AcquisitionEvent::RequestEnded); // its call is under way, until 2,000
    assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, Some(END_WAIT)]);
    let _ = bench.after(100).released(true, ReleaseReply::NotFound);
    assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, None]);
    // The next request takes over what is in doubt.
    let _ = bench.on(AcquisitionEvent::Upgrade(WaitPolicy::strict_try(at(5_000))));
    bench.call();
    assert!(matches!(bench.acquired(AcquireReply::Busy), RequestStep::Busy));
    assert_eq!(
        bench.on(AcquisitionEvent::TimerFired).worker_calls,
        [None, Some(END_WAIT)],
        "it lingers"
    );
    let _ = bench.on(AcquisitionEvent::ReleaseStarted);
    let effects = bench.given_back(ReleaseReply::Released);
    assert!(!effects.deregister, "the upgrade may still arrive");

    let mut ended = Bench::upgrading(5);
    let _ = ended.on(AcquisitionEvent::RequestEnded);
    let _ = ended.on(AcquisitionEvent::TimerFired);
    let _ = ended.after(100).released(true, ReleaseReply::NotFound);
    ended.after(2_900 + 20);
    let _ = ended.on(AcquisitionEvent::TimerFired);
    let _ = ended.after(500).released(true, ReleaseReply::NotFound);
    assert!(
        matches!(&ended.state, AcquisitionState::Held(holding) if holding.pending_change().is_none())
    );
}

#[test]
fn a_downgrade_makes_a_lease_longer_unless_replicas_must_confirm_it() {
    for (replicas, ends) in [(0, 10_000), (1, 9_000)] {
        let mut bench =
            Bench::holding(LockMode::Write, 5, |options| options.min_replicas = replicas);
        let _ = bench.after(1_000).on(AcquisitionEvent::Downgrade);
        let _ = bench.on(AcquisitionEvent::TimerFired);
        let told = bench.told(RenewReply::Renewed(bench.grant(5, LEASE)));
        let _ = bench.on(AcquisitionEvent::DowngradeReply(Ok(told)));
        assert_eq!((bench.mode(), bench.ends()), (LockMode::Read, at(ends)));
    }
}

/// A contact that no replica has confirmed does not keep the gate open.
#[test]
fn a_downgrade_of_a_cached_write_is_a_contact_unless_replicas_must_confirm_it() {
    for (replicas, sent) in [(0, 1_000), (1, 0)] {
        let mut bench = Bench::holding(LockMode::Write, 5, |options| {
            (options.min_replicas, options.is_cacheable) = (replicas, true);
        });
        let _ = bench.after(1_000).on(AcquisitionEvent::Downgrade);
        let _ = bench.on(AcquisitionEvent::TimerFired);
        let grant = Grant { recall_mode: Some(LockMode::Write), ..bench.grant(5, LEASE) };
        let told = bench.told(RenewReply::Renewed(grant));
        let _ = bench.on(AcquisitionEvent::DowngradeReply(Ok(told)));
        let AcquisitionState::Held(holding) = &bench.state else { panic!("it is not held") };
        let contact = holding.keepalive.as_deref().unwrap();
        assert_eq!((contact.sent_at, contact.recall_mode), (at(sent), Some(LockMode::Write)));
    }
}

#[test]
fn a_downgrade_is_called_off_until_it_is_sent() {
    let mut bench = Bench::holding(LockMode::Write, 5, |_| {});
    let _ = bench.on(AcquisitionEvent::Downgrade);
    let _ = bench.on(AcquisitionEvent::CancelDowngrade);
    assert_eq!(bench.on(AcquisitionEvent::TimerFired).worker_calls, [None, None]);
    let _ = bench.on(AcquisitionEvent::Downgrade);
    let _ = bench.on(AcquisitionEvent::TimerFired);
    let _ = bench.on(AcquisitionEvent::CancelDowngrade);
    assert!(
        matches!(&bench.state, AcquisitionState::Held(holding) if holding.pending_change().is_some())
    );
}

#[test]
fn a_change_that_is_told_of_the_loss_loses_the_lease_and_what_took_its_place() {
    let mut upgrading = Bench::upgrading(5);
    let told = upgrading.told(AcquireReply::NotHeld);
    let effects = upgrading.on(AcquisitionEvent::AcquireReply(Ok(told)));
    assert!(effects.loss.is_some_and(|lost| lost.by_server));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Lost);
    assert_eq!(upgrading.on(AcquisitionEvent::TimerFired).worker_calls, [None, Some(RELEASE)]);
    let mut downgrading = Bench::holding(LockMode::Write, 5, |_| {});
    let _ = downgrading.on(AcquisitionEvent::Downgrade);
    let _ = downgrading.on(AcquisitionEvent::TimerFired);
    let told = downgrading.told(RenewReply::NotHeld);
    assert!(downgrading.on(AcquisitionEvent::DowngradeReply(Ok(told))).loss.is_some());
    assert_eq!(downgrading.on(AcquisitionEvent::TimerFired).worker_calls, [None, Some(RELEASE)]);
}
