//! Calls of a request, and how it handles their answers.

use super::*;

#[test]
fn a_grant_is_held_from_its_sending_less_the_margin() {
    let mut bench = Bench::waiting(LockMode::Write);
    bench.settings.safety_margin = Some(Duration::from_millis(300));
    bench.call();
    bench.after(1_000);
    let mut reply = bench.reply(AcquireReply::Granted(bench.grant(5, LEASE)));
    reply.sent_at = at(0);
    assert!(matches!(
        bench.on(AcquisitionEvent::AcquireReply(Ok(reply))).next_step,
        Some(RequestStep::Granted { .. })
    ));
    assert_eq!(bench.ends(), at(8_700));
}

#[test]
fn accepted_longer_lease_ends_by_the_margin_of_its_length() {
    let settings = AcquisitionConfig::default();
    let options = LeaseOptions { lease: Duration::from_millis(40), ..default_options() };
    let from = ClientId::from_random([0; 11]).acquisition(1);
    let goal = AcquireKind::Transfer { mode: LockMode::Write, from, token: 5 };
    let policy = WaitPolicy::strict_try(at(1_000));
    let state = AcquisitionState::new(goal, &options, policy, at(0));
    let mut bench = Bench { state, settings, now: at(0), kind: LockKind::ReadWrite };
    bench.call();
    let grant = bench.grant(5, Duration::from_secs(60));
    assert!(matches!(bench.acquired(AcquireReply::Granted(grant)), RequestStep::Granted { .. }));
    assert_eq!(bench.ends(), at(59_500), "of 60 s, not of 40 ms");
    // A renewal does not shorten it, and its answer has the same deadline.
    let _ = bench.after(20_000).renewed(RenewReply::Renewed(grant));
    assert_eq!(bench.ends(), at(59_500));
}

#[test]
fn an_answer_that_took_longer_than_the_lease_is_no_grant() {
    let mut bench = Bench::waiting(LockMode::Write);
    bench.call();
    let mut reply = bench.reply(AcquireReply::Granted(bench.grant(5, LEASE)));
    reply.received_at = bench.now.saturating_add(LEASE);
    let effects = bench.after(9_000).on(AcquisitionEvent::AcquireReply(Ok(reply)));
    assert!(matches!(effects.telemetry, Some(TelemetryEvent::GrantExpired { .. })));
    assert_eq!(kind_of(effects.next_step.unwrap()), ErrorKind::Unavailable);
    assert!(matches!(bench.state, AcquisitionState::Releasing(_)));
}

#[test]
fn refused_try_is_released_only_if_an_earlier_attempt_can_still_arrive() {
    let refused = |first: Option<ScriptResult<AcquireReply>>| {
        let mut bench = Bench::new(LockMode::Write, |_| {}, WaitPolicy::strict_try(at(5_000)));
        bench.call();
        if let Some(first) = first {
            assert!(matches!(bench.failed(first), RequestStep::CallNow));
            bench.call();
        }
        assert!(matches!(bench.acquired(AcquireReply::Busy), RequestStep::Busy));
        bench.state
    };
    assert_eq!(refused(None), AcquisitionState::Ended);
    assert!(matches!(refused(Some(no_answer())), AcquisitionState::Releasing(_)));
    assert_eq!(
        refused(Some(failed(CallErrorKind::TimedOut(None), Doubt::None))),
        AcquisitionState::Ended
    );
}

#[test]
fn call_that_only_the_dead_block_is_repeated_until_they_are_removed() {
    let queue_full = || AcquireReply::QueueFull { waiters: 3 };
    let swept = |policy: WaitPolicy, refusal: fn() -> AcquireReply| {
        let mut bench = Bench::new(LockMode::Write, |_| {}, policy);
        for _ in 0..3 {
            bench.call();
            let mut reply = bench.reply(refusal());
            reply.envelope.has_more_work = true;
            assert!(matches!(bench.failed(Ok(reply)), RequestStep::CallNow));
        }
        bench.call();
        bench.acquired(refusal())
    };
    let strict_try = WaitPolicy::strict_try(at(5_000));
    let cached_try = WaitPolicy::Try { deadline: at(5_000), cached_wait: Duration::from_secs(1) };
    for (policy, refusal) in [
        (strict_try, (|| AcquireReply::Busy) as fn() -> AcquireReply),
        (strict_try, || AcquireReply::Recalling),
        (cached_try, queue_full),
    ] {
        assert!(matches!(swept(policy, refusal), RequestStep::Busy));
    }
    let full = swept(WaitPolicy::Queue { deadline: None }, queue_full);
    let RequestStep::Failed(AcquisitionError::QueueFull { waiters: 3 }) = full else {
        panic!("{full:?}")
    };
}

#[test]
fn a_try_waits_for_caches_alone_and_not_longer_than_it_may() {
    let for_cached = Duration::from_millis(50);
    let begin = |until| {
        let policy = WaitPolicy::Try { deadline: at(until), cached_wait: for_cached };
        let mut bench = Bench::new(LockMode::Write, |_| {}, policy);
        let RequestStep::Send { acquire, .. } = bench.call() else { panic!() };
        assert!(acquire.wait.unwrap().only_for_cached);
        bench
    };
    for refusal in
        [AcquireReply::Busy, AcquireReply::Recalling, AcquireReply::QueueFull { waiters: 3 }]
    {
        let mut bench = begin(5_000);
        assert!(matches!(bench.acquired(refusal), RequestStep::Busy));
        assert_eq!(bench.state, AcquisitionState::Ended);
    }
    for (until, ends) in [(5_000, 50), (20, 20)] {
        let mut bench = begin(until);
        let queued = bench.acquired(AcquireReply::Queued { ticket: 7, ahead: 0 });
        assert!(matches!(queued, RequestStep::WaitUntil(wake) if wake == at(ends)), "{queued:?}");
        let next = bench.after(ends).on(AcquisitionEvent::Wake).next_step;
        assert!(matches!(next, Some(RequestStep::Busy)), "{next:?}");
        assert!(matches!(bench.state, AcquisitionState::Releasing(_)), "its place is given up");
    }
}

#[test]
fn try_that_replicas_must_confirm_waits_for_caches_and_the_confirmation() {
    for (replicas, ends) in [(0, 50), (1, 300)] {
        let for_cached = Duration::from_millis(50);
        let policy = WaitPolicy::Try { deadline: at(5_000), cached_wait: for_cached };
        let mut bench =
            Bench::new(LockMode::Write, |options| options.confirmation.replicas = replicas, policy);
        bench.call();
        let queued = bench.acquired(QUEUED);
        assert!(matches!(queued, RequestStep::WaitUntil(wake) if wake == at(ends)), "{queued:?}");
    }
}

#[test]
fn failed_acquire_is_released_only_after_a_server_has_queued_it() {
    let fail = |answered: bool, reason: CallErrorKind, kind: ErrorKind| {
        let until = Some(at(100));
        let mut bench = Bench::new(LockMode::Read, |_| {}, WaitPolicy::Queue { deadline: until });
        bench.call();
        if answered {
            bench.acquired(QUEUED);
            bench.call();
        }
        assert_eq!(kind_of(bench.after(100).failed(failed(reason, Doubt::None))), kind);
        bench.state
    };
    let no_right = || no_right("User locker has no permissions to run the 'evalsha' command");
    let loading = || ServerError { code: "LOADING".into(), message: "no".into() };
    let reasons: [(&dyn Fn() -> CallErrorKind, ErrorKind); 7] = [
        (&|| CallErrorKind::Overloaded, ErrorKind::Unavailable),
        (&unconnected, ErrorKind::Rejected),
        (&no_right, ErrorKind::Rejected),
        (&|| rejected("MISCONF"), ErrorKind::Rejected),
        (&|| rejected("WRONGTYPE"), ErrorKind::Rejected),
        (&|| CallErrorKind::TimedOut(Some(loading())), ErrorKind::Unavailable),
        (&|| CallErrorKind::TooManyRedirects(20), ErrorKind::Unavailable),
    ];
    let no_memory = fail(false, rejected("OOM"), ErrorKind::Rejected);
    assert_eq!(no_memory, AcquisitionState::Ended, "a waiter waits until there is memory");
    for (reason, kind) in reasons {
        assert_eq!(fail(false, reason(), kind), AcquisitionState::Ended, "{}", reason());
        let state = fail(true, reason(), kind);
        assert!(
            matches!(state, AcquisitionState::Releasing(_)),
            "it has a place in the queue: {}",
            reason()
        );
    }
}

fn unconnected() -> CallErrorKind {
    CallErrorKind::Unconnected { message: "wrong password".into(), is_invalid: false }
}

fn rejected(code: &str) -> CallErrorKind {
    CallErrorKind::Rejected(ServerError { code: code.into(), message: "no".into() })
}

fn no_right(detail: &str) -> CallErrorKind {
    CallErrorKind::Rejected(ServerError { code: "NOPERM".into(), message: detail.into() })
}

#[test]
fn a_script_that_fails_changes_nothing_of_a_mutex() {
    let fail = |kind: LockKind, first: Option<ScriptResult<AcquireReply>>| {
        let policy = WaitPolicy::strict_try(at(5_000));
        let mut bench = Bench::new(LockMode::Write, |_| {}, policy);
        bench.kind = kind;
        bench.call();
        if let Some(first) = first {
            assert!(matches!(bench.failed(first), RequestStep::CallNow));
            bench.call();
        }
        let failure =
            failed(no_right("ACL failure in script: no permissions to run 'set'"), Doubt::None);
        assert_eq!(kind_of(bench.failed(failure)), ErrorKind::Rejected);
        bench.state
    };
    assert_eq!(fail(LockKind::SetNxMutex, None), AcquisitionState::Ended);
    let others = [
        (LockKind::SetNxMutex, Some(no_answer()), "the first attempt may arrive"),
        (LockKind::ReadWrite, None, "the script may have made some changes"),
    ];
    for (kind, first, why) in others {
        assert!(matches!(fail(kind, first), AcquisitionState::Releasing(_)), "{why}");
    }
}

#[test]
fn an_overloaded_node_is_called_again_while_there_is_time_to_be_answered() {
    for (left, again) in [(501, true), (500, false)] {
        let mut bench = Bench::new(LockMode::Read, |_| {}, WaitPolicy::strict_try(at(left)));
        bench.call();
        let next = bench.failed(failed(CallErrorKind::Overloaded, Doubt::None));
        assert_eq!(matches!(next, RequestStep::CallNow), again, "{next:?}");
    }
}

#[test]
fn reply_with_more_waiters_to_grant_calls_grant_waiters() {
    let mut bench = Bench::waiting(LockMode::Write);
    bench.call();
    let mut reply = bench.reply(AcquireReply::Granted(bench.grant(5, LEASE)));
    reply.envelope.has_more_work = true;
    assert!(bench.on(AcquisitionEvent::AcquireReply(Ok(reply))).grant_waiters);
    let mut reply = bench.reply(RenewReply::Renewed(bench.grant(5, LEASE)));
    assert!(!bench.on(AcquisitionEvent::RenewReply(Ok(reply))).grant_waiters);
    reply = bench.reply(RenewReply::Renewed(bench.grant(5, LEASE)));
    reply.envelope.has_more_work = true;
    assert!(bench.on(AcquisitionEvent::RenewReply(Ok(reply))).grant_waiters);
    let _ = bench.on(AcquisitionEvent::ReleaseStarted);
    let mut reply = bench.reply(ReleaseReply::Released);
    reply.envelope.has_more_work = true;
    assert!(bench.on(AcquisitionEvent::ReleaseReply(reply)).grant_waiters);
    let mut late = bench.reply(ReleaseReply::NotFound);
    late.envelope.has_more_work = true;
    let outcome = Ok(late);
    assert!(
        bench.on(AcquisitionEvent::WorkerReleaseReply { wait_only: false, outcome }).grant_waiters,
        "also when it is over"
    );
}
