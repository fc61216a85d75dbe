//! Upgrades and downgrades.

use super::*;
use crate::acquisition::ChangeKind;

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
fn an_upgrade_begins_when_no_change_can_arrive_any_more() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let _ = bench.on(AcquisitionEvent::Downgrade);
    assert!(matches!(bench.worker_calls(), [None, Some(WorkerCall::Downgrade(_))]));
    let until = Some(at(1_000));
    assert!(matches!(bench.upgrade(until), RequestStep::WaitUntil(_)));
    let _ = bench.on(AcquisitionEvent::DowngradeReply(no_answer()));
    assert!(matches!(bench.upgrade(until), RequestStep::WaitUntil(_)), "it may arrive");
    assert_eq!(kind_of(bench.after(1_000).upgrade(until)), ErrorKind::TimedOut);
    let reply = RenewReply::Renewed(bench.grant(5, LEASE));
    let _ = bench.downgraded(reply);
    assert!(matches!(bench.upgrade(None), RequestStep::CallNow));
}

#[test]
fn a_claim_window_of_an_upgrade_ends_within_the_longest_hold() {
    let hold = |options: &mut LeaseOptions| options.max_hold = Some(Duration::from_secs(5));
    let mut bench = Bench::held_lease(LockMode::Read, 5, hold);
    bench.after(4_000);
    let _ = bench.upgrade(None);
    let RequestStep::Send { acquire, .. } = bench.call() else { panic!() };
    assert_eq!(acquire.wait.unwrap().claim_timeout, Duration::from_secs(1));
}

#[test]
fn a_wait_that_is_over_is_ended_until_no_attempt_of_it_can_arrive() {
    let mut bench = Bench::upgrading(5);
    let _ = bench.on(AcquisitionEvent::RequestEnded); // its call is under way, until 2,000
    assert_eq!(bench.worker_calls(), [None, Some(END_WAIT)]);
    let _ = bench.after(100).released(true, ReleaseReply::NotFound);
    assert_eq!(bench.worker_calls(), [None, None]);
    // The next request takes over what is in doubt.
    let _ = bench.on(AcquisitionEvent::Upgrade(WaitPolicy::strict_try(at(5_000))));
    bench.call();
    assert!(matches!(bench.acquired(AcquireReply::Busy), RequestStep::Busy));
    assert_eq!(bench.worker_calls(), [None, Some(END_WAIT)], "it lingers");
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
    assert!(ended.lease().pending_change().is_none());
}

/// A keep-alive that no replica has confirmed does not keep the gate open.
#[test]
fn a_downgrade_makes_a_lease_longer_and_is_a_contact_unless_replicas_must_confirm_it() {
    for (replicas, ends, sent) in [(0, 10_000, 1_000), (1, 9_000, 0)] {
        let mut bench = Bench::held_lease(LockMode::Write, 5, |options| {
            (options.confirmation.replicas, options.is_cacheable) = (replicas, true);
        });
        let _ = bench.after(1_000).on(AcquisitionEvent::Downgrade);
        let _ = bench.on(AcquisitionEvent::TimerFired);
        let grant = Grant { recall_mode: Some(LockMode::Write), ..bench.grant(5, LEASE) };
        let _ = bench.downgraded(RenewReply::Renewed(grant));
        assert_eq!((bench.mode(), bench.ends()), (LockMode::Read, at(ends)));
        let keepalive = bench.lease().keepalive.as_deref().unwrap();
        assert_eq!((keepalive.sent_at, keepalive.recall_mode), (at(sent), Some(LockMode::Write)));
    }
}

#[test]
fn a_downgrade_is_called_off_until_it_is_sent() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let _ = bench.on(AcquisitionEvent::Downgrade);
    let _ = bench.on(AcquisitionEvent::CancelDowngrade);
    assert_eq!(bench.worker_calls(), [None, None]);
    let _ = bench.on(AcquisitionEvent::Downgrade);
    let _ = bench.on(AcquisitionEvent::TimerFired);
    let _ = bench.on(AcquisitionEvent::CancelDowngrade);
    assert!(bench.lease().pending_change().is_some());
}

/// The holder reads, and the server has the write of an upgrade that was given up.
fn with_unwanted_write() -> Bench {
    let mut bench = Bench::upgrading(5);
    let _ = bench.on(AcquisitionEvent::RequestEnded);
    assert_eq!(bench.worker_calls(), [None, Some(END_WAIT)]);
    let grant = bench.grant(6, LEASE);
    let _ = bench.released(true, ReleaseReply::UpgradeGranted(grant));
    bench
}

#[test]
fn a_granted_upgrade_that_was_given_up_is_undone_if_the_next_one_fails() {
    let mut bench = with_unwanted_write();
    assert!(matches!(bench.upgrade(Some(bench.now)), RequestStep::CallNow));
    bench.call();
    let failure = failed(CallErrorKind::TimedOut(None), Doubt::None);
    assert_eq!(kind_of(bench.failed(failure)), ErrorKind::Unavailable);
    assert_eq!(bench.worker_calls(), [None, Some(END_WAIT)]);
    let grant = bench.grant(6, LEASE);
    let _ = bench.released(true, ReleaseReply::UpgradeGranted(grant));
    assert!(matches!(bench.worker_calls(), [None, Some(WorkerCall::Downgrade(_))]));
}

#[test]
fn the_downgrade_of_an_upgrade_that_was_given_up_is_not_called_off() {
    let mut bench = with_unwanted_write();
    let _ = bench.on(AcquisitionEvent::CancelDowngrade);
    assert_eq!(bench.lease().pending_change(), Some(ChangeKind::Downgrade));
    assert!(matches!(bench.worker_calls(), [None, Some(WorkerCall::Downgrade(_))]));
}

#[test]
fn the_limit_of_renewals_counts_all_of_an_upgrade_that_was_answered_late() {
    let manual = |options: &mut LeaseOptions| options.renewal = RenewalPolicy::Manual;
    let mut bench = Bench::held_lease(LockMode::Read, 5, manual);
    assert!(matches!(bench.upgrade(None), RequestStep::CallNow));
    bench.call();
    let mut reply = bench.reply(AcquireReply::Granted(bench.grant(6, LEASE)));
    bench.after(3_500);
    (reply.received_at, reply.sent_at) = (bench.now, at(0));
    let granted = bench.on(AcquisitionEvent::AcquireReply(Ok(reply))).next_step;
    assert!(matches!(granted, Some(RequestStep::Granted { token: 6, .. })), "{granted:?}");
    assert_eq!(bench.worker_calls(), [None, None]);
}

#[test]
fn downgrade_of_a_read_or_during_a_downgrade_sends_nothing() {
    let mut reading = Bench::held_lease(LockMode::Read, 5, |_| {});
    let mut downgrading = Bench::held_lease(LockMode::Write, 5, |_| {});
    let _ = downgrading.on(AcquisitionEvent::Downgrade);
    let _ = downgrading.on(AcquisitionEvent::TimerFired);
    for bench in [&mut reading, &mut downgrading] {
        let _ = bench.on(AcquisitionEvent::Downgrade);
        assert_eq!(bench.worker_calls(), [None, None]);
    }
}
