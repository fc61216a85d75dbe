//! A message that a lease was ended by force.

use super::*;

impl Bench {
    /// Whether the worker asks the server.
    fn asks(&mut self) -> bool {
        matches!(self.worker_calls(), [Some(WorkerCall::Holds { .. }), None])
    }

    /// A message arrives that this lease was ended by force.
    fn hear_end(&mut self, token: u64) -> Effects {
        self.on(AcquisitionEvent::ForceReleased { token })
    }
}

#[test]
fn ended_message_loses_the_lease_only_after_the_server_confirms() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    let heard = bench.hear_end(5);
    assert_eq!(heard.wake_worker_at, Some(bench.now), "long before a renewal is due");
    assert!(!bench.is_lost());
    assert!(bench.asks());
    assert!(!bench.asks(), "it is on its way");
    let ends = bench.ends();
    // A failover has brought the lease back, or the message was forged.
    assert!(bench.asked(Some(5)).loss.is_none());
    assert_eq!((bench.is_lost(), bench.ends()), (false, ends));
    bench.hear_end(5);
    assert!(bench.asks());
    assert!(bench.on(AcquisitionEvent::HoldsReply(no_answer())).loss.is_none());
    assert!(!bench.asks(), "the next renewal tells");
    bench.hear_end(5);
    assert!(bench.asks());
    let lost = bench.asked(None);
    assert!(lost.notify_end && lost.loss.is_some_and(|lost| lost.by_server));
    assert!(bench.is_lost());
}

/// A message that arrives while the server is asked may be about something later.
#[test]
fn the_server_is_asked_once_more_of_what_is_heard_meanwhile() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    bench.hear_end(5);
    assert!(bench.asks());
    for _ in 0..3 {
        bench.hear_end(5);
        assert!(!bench.asks(), "one question at a time");
    }
    assert_eq!(bench.asked(Some(5)).wake_worker_at, Some(bench.now));
    assert!(bench.asks());
    bench.asked(Some(5));
    assert!(!bench.asks());
}

/// The user renews it, or nobody does: the question does not extend it.
#[test]
fn a_lease_that_nobody_renews_is_asked_about_and_not_made_longer() {
    let mut bench =
        Bench::held_lease(LockMode::Read, 5, |options| options.renewal = RenewalPolicy::Manual);
    bench.hear_end(5);
    assert!(bench.asks());
    bench.asked(None);
    assert!(bench.is_lost());
}

#[test]
fn a_renewal_that_is_due_is_the_question() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    bench.after(4_000).hear_end(5);
    assert!(bench.is_renewed());
    bench.renewed(RenewReply::NotHeld);
    assert!(bench.is_lost());
    assert_eq!(bench.worker_calls(), [None, None]);
}

#[test]
fn ended_message_for_another_lease_sends_no_request() {
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    bench.hear_end(4);
    assert_eq!(bench.worker_calls(), [None, None]);
    // A lease that is being released, or a request under way.
    bench.on(AcquisitionEvent::ReleaseStarted);
    bench.hear_end(5);
    assert_eq!(bench.worker_calls(), [None, None]);
    let mut bench = Bench::waiting(LockMode::Write);
    bench.call();
    bench.hear_end(5);
    assert!(matches!(bench.state, AcquisitionState::Requesting(_)));
}

/// The message and the answer that grants arrive on two connections.
#[test]
fn an_end_that_is_heard_of_before_the_grant_is_asked_about_after_it() {
    for (ended, is_asked) in [(4, false), (5, true), (6, true)] {
        let mut bench = Bench::new(LockMode::Write, |_| {}, WaitPolicy::Queue { deadline: None });
        bench.call();
        for token in [ended, 3] {
            bench.hear_end(token);
        }
        let granted = bench.reply(AcquireReply::Granted(bench.grant(5, LEASE)));
        let held = bench.on(AcquisitionEvent::AcquireReply(Ok(granted)));
        assert!(matches!(held.next_step, Some(RequestStep::Granted { token: 5, .. })));
        assert_eq!(held.wake_worker_at == Some(bench.now), is_asked, "{ended}");
        assert_eq!(bench.asks(), is_asked, "{ended}");
    }
    // The claim of a pushed grant serves as the question.
    let mut bench = Bench::waiting(LockMode::Write);
    bench.call();
    bench.acquired(QUEUED);
    bench.hear_end(5);
    assert!(matches!(bench.push(5, LEASE), RequestStep::Granted { .. }));
    assert!(bench.is_renewed());
    bench.renewed(RenewReply::NotHeld);
    assert!(bench.is_lost());
}

/// The upgrade may have been granted and then ended by force before its answer arrived.
#[test]
fn an_upgrade_that_was_ended_by_force_is_asked_about() {
    let mut bench = Bench::upgrading(5);
    bench.hear_end(6);
    assert!(bench.asks());
    bench.asked(Some(6));
    assert!(!bench.is_lost(), "it was granted");
    // Another lease of this acquisition has taken its place, and is released.
    let mut bench = Bench::held_lease(LockMode::Write, 5, |_| {});
    bench.hear_end(5);
    bench.on(AcquisitionEvent::TimerFired);
    bench.asked(Some(6));
    assert!(bench.is_lost());
    assert_eq!(bench.worker_calls(), [None, Some(RELEASE)]);
}
