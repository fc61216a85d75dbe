//! Calls of a request, and how it handles their answers.

use super::*;

#[test]
fn a_grant_is_held_from_its_sending_less_the_margin() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.settings.margin = Some(Duration::from_millis(300));
    bench.call();
    bench.after(1_000);
    let mut told = bench.told(Acquired::Granted(bench.grant(5, LEASE)));
    told.sent = at(0);
    assert!(matches!(bench.on(Event::Acquired(Ok(told))).next, Some(Next::Held { .. })));
    assert_eq!(bench.ends(), at(8_700));
}

#[test]
fn accepted_longer_lease_ends_by_the_margin_of_its_length() {
    let settings = Settings::default();
    let options = LeaseOptions { lease: Duration::from_millis(40), ..LeaseOptions::of(&settings) };
    let from = ClientId::from_random([0; 11]).acquisition(1);
    let goal = Goal::TakeUp { mode: Mode::Write, from, token: 5 };
    let policy = WaitPolicy::strict_try(at(1_000));
    let state = State::new(goal, &options, policy, at(0));
    let mut bench = Bench { state, settings, now: at(0), kind: Kind::ReadWrite };
    bench.call();
    let grant = bench.grant(5, Duration::from_secs(60));
    assert!(matches!(bench.acquired(Acquired::Granted(grant)), Next::Held { .. }));
    assert_eq!(bench.ends(), at(59_500), "of 60 s, not of 40 ms");
    // A renewal does not shorten it, and its answer has the same deadline.
    let _ = bench.after(20_000).renewed(Renewed::Held(grant));
    assert_eq!(bench.ends(), at(59_500));
}

#[test]
fn an_answer_that_took_longer_than_the_lease_is_no_grant() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    let mut told = bench.told(Acquired::Granted(bench.grant(5, LEASE)));
    told.received = bench.now.after(LEASE);
    let effects = bench.after(9_000).on(Event::Acquired(Ok(told)));
    assert!(matches!(effects.note, Some(Note::GrantedLate { .. })));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Unavailable);
    assert!(matches!(bench.state, State::Releasing(_)));
}

#[test]
fn grant_or_renewal_not_confirmed_by_replicas_returns_unavailable() {
    let mut bench =
        Bench::new(Mode::Write, |options| options.replicas = 1, WaitPolicy::Queue { until: None });
    bench.call();
    let next = bench.acquired(Acquired::Granted(bench.grant(5, LEASE)));
    assert_eq!(kind_of(next), ErrorKind::Unavailable);
    assert!(matches!(bench.state, State::Releasing(_)), "it is given back");
    let mut bench = Bench::holding(Mode::Write, 5, |options| options.replicas = 1);
    let (grant, ends) = (bench.after(1_000).grant(5, LEASE), bench.ends());
    let effects = bench.renewed(Renewed::Held(grant));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Unavailable);
    assert_eq!(bench.ends(), ends);
    let mut told = bench.told(Renewed::Held(grant));
    told.confirmed = 1;
    assert!(bench.on(Event::Renewed(Ok(told))).next.is_none());
    assert!(bench.ends() > ends);
}

#[test]
fn refused_try_is_released_only_if_an_earlier_attempt_can_still_arrive() {
    let refused = |first: Option<Outcome<Acquired>>| {
        let mut bench = Bench::new(Mode::Write, |_| {}, WaitPolicy::strict_try(at(5_000)));
        bench.call();
        if let Some(first) = first {
            assert!(matches!(bench.on(Event::Acquired(first)).next, Some(Next::Again)));
            bench.call();
        }
        assert!(matches!(bench.acquired(Acquired::Refused), Next::Refused));
        bench.state
    };
    assert_eq!(refused(None), State::Ended);
    assert!(matches!(refused(Some(no_answer())), State::Releasing(_)));
    assert_eq!(refused(Some(failed(Reason::TimedOut(None), None))), State::Ended);
}

#[test]
fn a_try_waits_for_caches_alone_and_not_longer_than_it_may() {
    let for_cached = Duration::from_millis(50);
    let begin = |until| {
        let policy = WaitPolicy::Try { until: at(until), for_cached };
        let mut bench = Bench::new(Mode::Write, |_| {}, policy);
        let Next::Send { acquire, .. } = bench.call() else { panic!() };
        assert!(acquire.wait.unwrap().only_cached);
        bench
    };
    for refusal in [Acquired::Refused, Acquired::Cached, Acquired::Full { waiters: 3 }] {
        let mut bench = begin(5_000);
        assert!(matches!(bench.acquired(refusal), Next::Refused));
        assert_eq!(bench.state, State::Ended);
    }
    for (until, ends) in [(5_000, 50), (20, 20)] {
        let mut bench = begin(until);
        let queued = bench.acquired(Acquired::Queued { ticket: 7, ahead: 0 });
        assert!(matches!(queued, Next::Wait(wake) if wake == at(ends)), "{queued:?}");
        let next = bench.after(ends).on(Event::Wake).next;
        assert!(matches!(next, Some(Next::Refused)), "{next:?}");
        assert!(matches!(bench.state, State::Releasing(_)), "its place is given up");
    }
}

#[test]
fn failed_acquire_is_released_only_after_a_server_has_queued_it() {
    let fail = |answered: bool, reason: Reason, kind: ErrorKind| {
        let until = Some(at(100));
        let mut bench = Bench::new(Mode::Read, |_| {}, WaitPolicy::Queue { until });
        bench.call();
        if answered {
            bench.acquired(QUEUED);
            bench.call();
        }
        let next = bench.after(100).on(Event::Acquired(failed(reason, None))).next.unwrap();
        assert_eq!(kind_of(next), kind);
        bench.state
    };
    let no_right = || no_right("User locker has no permissions to run the 'evalsha' command");
    let reasons: [(fn() -> Reason, ErrorKind); 3] = [
        (|| Reason::Overloaded, ErrorKind::Unavailable),
        (|| Reason::Permanent, ErrorKind::Refused),
        (no_right, ErrorKind::Refused),
    ];
    for (reason, kind) in reasons {
        assert_eq!(fail(false, reason(), kind), State::Ended, "{}", reason());
        let state = fail(true, reason(), kind);
        assert!(matches!(state, State::Releasing(_)), "it has a place in the queue: {}", reason());
    }
}

fn no_right(detail: &str) -> Reason {
    Reason::Refused(ServerError { code: "NOPERM".into(), detail: detail.into() })
}

#[test]
fn a_script_that_fails_changes_nothing_of_a_mutex() {
    let fail = |kind: Kind, first: Option<Outcome<Acquired>>| {
        let policy = WaitPolicy::strict_try(at(5_000));
        let mut bench = Bench::new(Mode::Write, |_| {}, policy);
        bench.kind = kind;
        bench.call();
        if let Some(first) = first {
            assert!(matches!(bench.on(Event::Acquired(first)).next, Some(Next::Again)));
            bench.call();
        }
        let failure = failed(no_right("ACL failure in script: no permissions to run 'set'"), None);
        let next = bench.on(Event::Acquired(failure)).next.unwrap();
        assert_eq!(kind_of(next), ErrorKind::Refused);
        bench.state
    };
    assert_eq!(fail(Kind::Mutex, None), State::Ended);
    let others = [
        (Kind::Mutex, Some(no_answer()), "the first attempt may arrive"),
        (Kind::ReadWrite, None, "the script may have made some changes"),
    ];
    for (kind, first, why) in others {
        assert!(matches!(fail(kind, first), State::Releasing(_)), "{why}");
    }
}

#[test]
fn masters_that_name_each_other_are_called_again_until_the_time_is_up() {
    let outcome = |until, now| {
        let mut bench = Bench::new(Mode::Read, |_| {}, WaitPolicy::Queue { until });
        bench.call();
        bench.now = now;
        let redirects = failed(Reason::TooManyRedirects(17), None);
        bench.on(Event::Acquired(redirects)).next.unwrap()
    };
    let until = Some(at(60_000));
    for (until, now) in [(None, at(60_000)), (until, at(10_000))] {
        assert!(matches!(outcome(until, now), Next::Again));
    }
    let kind = kind_of(outcome(until, at(60_000)));
    assert_eq!(kind, ErrorKind::Unavailable, "which says more than that time is up");
}

#[test]
fn an_overloaded_node_is_called_again_while_there_is_time_to_be_answered() {
    for (left, again) in [(501, true), (500, false)] {
        let mut bench = Bench::new(Mode::Read, |_| {}, WaitPolicy::strict_try(at(left)));
        bench.call();
        let next = bench.on(Event::Acquired(failed(Reason::Overloaded, None))).next;
        assert_eq!(matches!(next, Some(Next::Again)), again, "{next:?}");
    }
}

#[test]
fn reply_with_more_waiters_to_grant_starts_the_pump() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    let mut told = bench.told(Acquired::Granted(bench.grant(5, LEASE)));
    told.envelope.more = true;
    assert!(bench.on(Event::Acquired(Ok(told))).pump);
    let mut told = bench.told(Renewed::Held(bench.grant(5, LEASE)));
    assert!(!bench.on(Event::Renewed(Ok(told))).pump);
    told = bench.told(Renewed::Held(bench.grant(5, LEASE)));
    told.envelope.more = true;
    assert!(bench.on(Event::Renewed(Ok(told))).pump);
    let _ = bench.on(Event::Release);
    let mut told = bench.told(Ended::Released);
    told.envelope.more = true;
    assert!(bench.on(Event::GivenBack(told)).pump);
    let mut late = bench.told(Ended::Absent);
    late.envelope.more = true;
    let outcome = Ok(late);
    assert!(bench.on(Event::Released { only_wait: false, outcome }).pump, "also when it is over");
}
