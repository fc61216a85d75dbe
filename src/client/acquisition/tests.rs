//! Transitions, one at a time.

use std::time::Duration;

use super::event::{By, Context, Effects, Event, Next, Note, Pushed, Sending};
use super::state::State;
use crate::client::reply::{Failure, Outcome, Told};
use crate::client::request::{LeaseOptions, Renewal, WaitPolicy};
use crate::client::settings::Settings;
use crate::clock::Moment;
use crate::error::ErrorKind;
use crate::node::{Address, ServerError};
use crate::protocol::{
    Acquired, Ended, Envelope, Fairness, Goal, Grant, Kind, Mode, Release, Renewed,
};
use crate::router::{CallError, ClockBound, Reason};

const LEASE: Duration = Duration::from_secs(9);

const fn at(ms: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(ms))
}

fn node() -> Address {
    Address { host: "a".into(), port: 1 }
}

/// A state and its history. The server's clock is 1,000 s ahead.
struct Bench {
    state: State,
    settings: Settings,
    now: Moment,
    kind: Kind,
}

impl Bench {
    fn new(mode: Mode, change: impl FnOnce(&mut LeaseOptions), policy: WaitPolicy) -> Bench {
        let settings = Settings { margin: Some(Duration::ZERO), ..Settings::default() };
        let mut options = LeaseOptions { lease: LEASE, ..LeaseOptions::of(&settings) };
        change(&mut options);
        let goal = Goal::Take(mode, Fairness::PhaseFair);
        let state = State::new(goal, &options, policy, at(0));
        Bench { state, settings, now: at(0), kind: Kind::ReadWrite }
    }

    fn waiting(mode: Mode) -> Bench {
        Bench::new(mode, |_| {}, WaitPolicy::Queue { until: None })
    }

    /// A lease granted now, with this token.
    fn holding(mode: Mode, token: u64, change: impl FnOnce(&mut LeaseOptions)) -> Bench {
        let mut bench = Bench::new(mode, change, WaitPolicy::Queue { until: None });
        bench.call();
        let mut told = bench.told(Acquired::Granted(bench.grant(token, LEASE)));
        told.confirmed = 9;
        let effects = bench.on(Event::Acquired(Ok(told)));
        assert!(matches!(effects.next, Some(Next::Held { by: By::Answer, .. })), "{effects:?}");
        bench
    }

    fn upgrading(token: u64) -> Bench {
        let mut bench = Bench::holding(Mode::Read, token, |_| {});
        let begun = bench.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
        assert!(matches!(begun.next, Some(Next::Again)));
        bench.call();
        bench
    }

    fn on(&mut self, event: Event) -> Effects {
        let Bench { now, kind, .. } = *self;
        let context = Context { now, random: 0.0, settings: &self.settings, kind };
        self.state.on(event, &context)
    }

    fn after(&mut self, ms: u64) -> &mut Bench {
        self.now = self.now.after(Duration::from_millis(ms));
        self
    }

    fn server_now(&self) -> u64 {
        1_000_000 + self.now.since_origin().as_millis() as u64
    }

    fn grant(&self, token: u64, left: Duration) -> Grant {
        // The server's clock may be up to a millisecond further.
        Grant::new(token, self.server_now() + left.as_millis() as u64 + 1)
    }

    fn told<T>(&self, what: T) -> Told<T> {
        Told {
            what,
            envelope: Envelope { now: self.server_now(), more: false },
            sent: self.now,
            received: self.now,
            node: node(),
            confirmed: 0,
            in_doubt: None,
        }
    }

    fn call(&mut self) -> Next {
        self.on(Event::Call { hears: true }).next.unwrap()
    }

    fn acquired(&mut self, what: Acquired) -> Next {
        let told = self.told(what);
        self.on(Event::Acquired(Ok(told))).next.unwrap()
    }

    fn renewed(&mut self, what: Renewed) -> Effects {
        let told = self.told(what);
        self.on(Event::Renewed(Ok(told)))
    }

    fn asked(&mut self, token: Option<u64>) -> Effects {
        let told = self.told(token);
        self.on(Event::Asked(Ok(told)))
    }

    fn given_back(&mut self, what: Ended) -> Effects {
        let told = self.told(what);
        self.on(Event::GivenBack(told))
    }

    fn released(&mut self, only_wait: bool, what: Ended) -> Effects {
        let outcome = Ok(self.told(what));
        self.on(Event::Released { only_wait, outcome })
    }

    fn push(&mut self, token: u64, left: Duration) -> Next {
        let mut bound = ClockBound::default();
        bound.observe(self.now, self.now, self.server_now());
        let pushed = Pushed {
            grant: self.grant(token, left),
            now: self.server_now(),
            received: self.now,
            from: node(),
            bound: Some(bound),
        };
        assert!(self.on(Event::Pushed(Box::new(pushed))).changed);
        self.on(Event::Wake).next.unwrap()
    }

    fn ends(&self) -> Moment {
        match &self.state {
            State::Held(holding) => holding.ends,
            other => panic!("{other:?}"),
        }
    }

    fn mode(&self) -> Mode {
        match &self.state {
            State::Held(holding) => holding.mode,
            other => panic!("{other:?}"),
        }
    }

    fn is_lost(&self) -> bool {
        matches!(&self.state, State::Held(holding) if holding.is_lost())
    }
}

fn failed<T>(reason: Reason, in_doubt: Option<u64>) -> Outcome<T> {
    Err(Failure::Call(CallError { reason, in_doubt, last: None }))
}

fn no_answer<T>() -> Outcome<T> {
    failed(Reason::TimedOut(None), Some(0))
}

fn kind_of(next: Next) -> ErrorKind {
    match next {
        Next::Failed(error) => error.kind(),
        other => panic!("{other:?}"),
    }
}

const QUEUED: Acquired = Acquired::Queued { ticket: 7, ahead: 3 };
const END_WAIT: Sending = Sending::Release(Release { only_wait: true });
const RELEASE: Sending = Sending::Release(Release { only_wait: false });

// Requests.

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
fn what_replicas_do_not_confirm_is_not_held() {
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
fn a_refusal_leaves_nothing_unless_an_attempt_can_still_arrive() {
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
fn what_no_server_has_heard_of_is_not_released() {
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
fn masters_that_name_each_other_are_not_called_all_the_time() {
    let mut bench = Bench::waiting(Mode::Read);
    bench.call();
    let redirects = failed(Reason::TooManyRedirects(9), None);
    let next = bench.on(Event::Acquired(redirects)).next;
    assert!(matches!(next, Some(Next::Pause(until)) if until == at(250)), "{next:?}");
    let until = Some(at(60_000));
    let mut bench = Bench::new(Mode::Read, |_| {}, WaitPolicy::Queue { until });
    bench.call();
    let redirects = failed(Reason::TooManyRedirects(9), None);
    let next = bench.on(Event::Acquired(redirects)).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::Unavailable, "which says more than that time is up");
}

#[test]
fn a_place_in_a_full_server_s_queue_is_waited_for() {
    let mut bench = Bench::waiting(Mode::Read);
    bench.call();
    bench.acquired(QUEUED);
    bench.call();
    let full = || ServerError { code: "OOM".into(), detail: "no".into() };
    let next = bench.on(Event::Acquired(failed(Reason::Refused(full()), None))).next;
    assert!(matches!(next, Some(Next::Wait(_))), "{next:?}");
    let mut first = Bench::waiting(Mode::Read);
    first.call();
    let next = first.on(Event::Acquired(failed(Reason::Refused(full()), None))).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::Refused);
}

#[test]
fn a_waiter_polls_by_its_place_and_ends_with_its_time() {
    let until = Some(at(5_000));
    let mut bench = Bench::new(Mode::Read, |_| {}, WaitPolicy::Queue { until });
    bench.call();
    let next = bench.acquired(QUEUED);
    assert!(matches!(next, Next::Wait(wake) if wake == at(1_000)), "{next:?}");
    assert!(matches!(bench.after(999).on(Event::Wake).next, Some(Next::Wait(_))));
    assert!(matches!(bench.after(1).on(Event::Wake).next, Some(Next::Again)));
    let Next::Send { acquire, .. } = bench.call() else { panic!() };
    assert_eq!(acquire.wait.unwrap().ticket, 7);
    bench.acquired(QUEUED);
    let next = bench.after(4_000).on(Event::Wake).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::TimedOut);
    assert!(matches!(bench.state, State::Releasing(_)), "it leaves the queue");
}

#[test]
fn waiters_that_missed_a_message_poll_one_after_another() {
    for (ahead, turn) in [(0, 0), (3, 3), (90, 90)] {
        let mut bench = Bench::waiting(Mode::Read);
        bench.call();
        bench.acquired(Acquired::Queued { ticket: 7, ahead });
        assert!(bench.on(Event::Missed).changed);
        let next = bench.on(Event::Wake).next.unwrap();
        match next {
            Next::Again => assert_eq!(ahead, 0),
            Next::Wait(wake) => assert_eq!(wake, at(turn)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_pushed_grant_is_held_and_claimed_at_once() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    bench.acquired(QUEUED);
    let window = Duration::from_millis(1_500);
    assert!(matches!(bench.push(5, window), Next::Held { by: By::Push, token: 5, .. }));
    assert!(bench.ends() <= bench.now.after(window));
    let [Some(Sending::Renew { renew, .. }), None] = bench.on(Event::Look).sends else { panic!() };
    assert_eq!(renew.lease, LEASE);
}

#[test]
fn a_pushed_grant_that_ends_soon_or_that_replicas_must_confirm_is_polled_for() {
    let pushed = |replicas: u32, late: u64| {
        let wait = WaitPolicy::Queue { until: None };
        let mut bench = Bench::new(Mode::Write, |options| options.replicas = replicas, wait);
        bench.call();
        bench.acquired(QUEUED);
        let mut bound = ClockBound::default();
        bound.observe(bench.now, bench.now, bench.server_now());
        let pushed = Pushed {
            grant: bench.grant(5, Duration::from_millis(1_500)),
            now: bench.server_now(),
            received: bench.now,
            from: node(),
            bound: Some(bound),
        };
        let _ = bench.on(Event::Pushed(Box::new(pushed)));
        bench.after(late).on(Event::Wake).next.unwrap()
    };
    assert!(matches!(pushed(0, 700), Next::Held { .. }));
    assert!(matches!(pushed(0, 800), Next::Again));
    assert!(matches!(pushed(1, 0), Next::Again));
}

#[test]
fn a_push_that_came_before_a_newer_one_does_not_count() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    bench.acquired(QUEUED);
    for token in [6, 5] {
        let pushed = Pushed {
            grant: bench.grant(token, LEASE),
            now: bench.server_now(),
            received: bench.now,
            from: node(),
            bound: Some({
                let mut bound = ClockBound::default();
                bound.observe(bench.now, bench.now, bench.server_now());
                bound
            }),
        };
        let _ = bench.on(Event::Pushed(Box::new(pushed)));
    }
    assert!(matches!(bench.on(Event::Wake).next, Some(Next::Held { token: 6, .. })));
}

#[test]
fn a_request_that_is_dropped_is_released_until_no_attempt_can_arrive() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    let effects = bench.on(Event::Leave);
    assert!(effects.ended && effects.look == Some(at(0)));
    let late = bench.told(Acquired::Granted(bench.grant(5, LEASE)));
    let next = bench.on(Event::Acquired(Ok(late))).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::Cancelled, "what comes late is not held");
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
    assert_eq!(bench.on(Event::Look).sends, [None, None], "it is on its way");
    let effects = bench.after(10).released(false, Ended::Absent);
    assert!(!effects.over && effects.look > Some(at(2_000)), "the call may still arrive");
    bench.after(3_100);
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
    assert!(bench.released(false, Ended::Absent).over);
    assert_eq!(bench.state, State::Ended);
}

#[test]
fn a_time_that_is_up_just_after_a_poll_says_nothing_against_the_server() {
    let poll = |silence: u64| {
        let until = Some(at(2_000));
        let mut bench = Bench::new(Mode::Read, |_| {}, WaitPolicy::Queue { until });
        bench.call();
        bench.acquired(QUEUED);
        bench.after(2_000 - silence).call();
        kind_of(bench.after(silence).on(Event::Acquired(no_answer())).next.unwrap())
    };
    assert_eq!([poll(499), poll(500)], [ErrorKind::TimedOut, ErrorKind::Unavailable]);
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
fn what_a_server_has_left_over_is_gone_on_with() {
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

#[test]
fn a_release_is_tried_until_what_may_be_there_has_ended_by_itself() {
    let mut held = Bench::holding(Mode::Write, 5, |_| {});
    held.settings.margin = Some(Duration::from_secs(1));
    let mut doubtful = Bench::holding(Mode::Read, 5, |_| {});
    let _ = doubtful.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
    doubtful.call();
    let mut waiting = Bench::waiting(Mode::Write);
    waiting.call();
    // A lease; a call that may arrive at its deadline, and a lease; a place, and a call.
    for (mut bench, over) in [(held, 9_000), (doubtful, 11_000), (waiting, 20_000)] {
        let _ = bench.on(Event::Drop);
        bench.after(over + 4_999);
        assert!(!bench.on(Event::Look).over);
        assert!(bench.after(1).on(Event::Look).over, "{over}");
    }
    // An answer that requires one more release extends the time to give up.
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    let _ = bench.on(Event::Leave);
    bench.after(24_000);
    let _ = bench.on(Event::Look);
    let mut told = bench.told(Ended::Absent);
    told.envelope.now = 1_000_000;
    let outcome = Ok(told);
    let again = bench.on(Event::Released { only_wait: false, outcome }).look.unwrap();
    bench.after(1_500);
    assert!(again > at(25_000) && !bench.on(Event::Look).over);
}

// Leases.

#[test]
fn a_guard_that_is_dropped_is_released() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let effects = bench.on(Event::Drop);
    assert!(matches!(effects.held, Some((Mode::Write, "dropped", _))) && effects.ended);
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
    let why = failed(Reason::TimedOut(None), None);
    let effects = bench.on(Event::Released { only_wait: false, outcome: why });
    assert_eq!(effects.look, Some(at(500)), "again");
    bench.after(500);
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
    assert!(bench.released(false, Ended::Released).over);
}

#[test]
fn a_lease_is_renewed_while_its_limits_allow_it_and_ends_by_itself() {
    let mut bench = Bench::holding(Mode::Read, 5, |options| options.renewal = Renewal::AtMost(1));
    bench.after(2_000);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    bench.after(1_000);
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    assert_eq!(bench.on(Event::Look).sends, [None, None], "it is on its way");
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(Renewed::Held(grant));
    assert_eq!(bench.ends(), at(12_000));
    bench.after(5_000);
    assert_eq!(bench.on(Event::Look).sends, [None, None], "there was one renewal");
    let effects = bench.after(4_000).on(Event::Look);
    assert!(bench.is_lost() && effects.ended && effects.lost.is_some_and(|lost| !lost.taken));
    let late = bench.renewed(Renewed::Held(grant));
    assert!(bench.is_lost() && late.lost.is_none(), "for good, and told once");
}

#[test]
fn another_token_is_another_lease_unless_an_upgrade_explains_it() {
    let renew = |bench: &mut Bench, token: u64, sent: Moment| {
        let mut told = bench.told(Renewed::Held(bench.grant(token, LEASE)));
        told.sent = sent;
        let _ = bench.on(Event::Renewed(Ok(told)));
        bench.is_lost()
    };
    for token in [4, 6] {
        let mut bench = Bench::holding(Mode::Read, 5, |_| {});
        bench.after(1_000);
        assert!(renew(&mut bench, token, at(1_000)), "{token}");
        // The lease in its place is released.
        assert_eq!(bench.on(Event::Look).sends, [None, Some(RELEASE)]);
    }
    let mut upgrading = Bench::upgrading(5);
    assert!(!renew(&mut upgrading, 6, at(0)), "granted, and not heard of yet");
    let mut given_up = Bench::upgrading(5);
    let _ = given_up.on(Event::Leave);
    assert!(!renew(&mut given_up, 6, at(0)), "granted all the same");
    let mut granted = Bench::upgrading(5);
    granted.after(1_000);
    let grant = granted.grant(6, LEASE);
    assert!(matches!(granted.acquired(Acquired::Granted(grant)), Next::Held { token: 6, .. }));
    assert!(!renew(&mut granted, 5, at(900)), "sent before the upgrade");
    assert!(renew(&mut granted, 5, at(1_100)), "the server has lost the upgrade");
}

#[test]
fn what_took_the_place_of_a_lost_lease_is_neither_kept_nor_released_without_end() {
    let replaced = || {
        let mut bench = Bench::holding(Mode::Write, 5, |_| {});
        let grant = bench.grant(6, LEASE);
        let _ = bench.renewed(Renewed::Held(grant));
        bench
    };
    let mut kept = replaced();
    assert!(!kept.on(Event::Keep).over);
    let mut bench = replaced();
    let _ = bench.on(Event::Look);
    for _ in 0..100 {
        let _ = bench.on(Event::Released { only_wait: false, outcome: no_answer() });
        let _ = bench.after(1_000).on(Event::Look);
    }
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    assert!(matches!(&bench.state, State::Held(holding) if holding.pending().is_none()));
    let mut good = Bench::holding(Mode::Write, 5, |_| {});
    assert!(good.on(Event::Keep).over);
}

#[test]
fn a_revoked_lease_ends_at_its_deadline() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let grant = bench.grant(5, LEASE);
    let effects = bench.renewed(Renewed::Revoked(grant));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Lost);
    assert!(matches!(&bench.state, State::Held(it) if it.is_shaky(bench.now) && !it.is_lost()));
    bench.after(5_000);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
}

#[test]
fn a_renewal_that_fails_is_tried_again_and_the_lease_is_uncertain_meanwhile() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.after(3_000);
    let _ = bench.on(Event::Look);
    let effects = bench.on(Event::Renewed(no_answer()));
    assert!(effects.changed && matches!(effects.note, Some(Note::RenewalFailed { .. })));
    assert!(matches!(&bench.state, State::Held(holding) if holding.is_shaky(bench.now)));
    bench.after(900);
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(Renewed::Held(grant));
    assert!(matches!(&bench.state, State::Held(holding) if !holding.is_shaky(bench.now)));
}

#[test]
fn a_release_of_its_holder_ends_it_unless_an_attempt_can_still_arrive() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let effects = bench.on(Event::Release);
    assert!(matches!(effects.held, Some((Mode::Write, "released", _))));
    assert!(bench.after(10_000).on(Event::Look).lost.is_none(), "its end is no loss");
    assert!(bench.given_back(Ended::Released).over);

    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    let _ = bench.on(Event::Acquired(no_answer()));
    bench.call();
    let grant = bench.grant(5, LEASE);
    assert!(matches!(bench.acquired(Acquired::Granted(grant)), Next::Held { .. }));
    let _ = bench.on(Event::Release);
    assert!(!bench.given_back(Ended::Released).over);
    let effects = bench.on(Event::Drop);
    assert!(effects.held.is_none(), "its end was told");
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
}

#[test]
fn a_claim_is_not_counted_as_a_renewal() {
    for (renewal, claims) in [(Renewal::Manual, 1), (Renewal::AtMost(1), 2)] {
        let wait = WaitPolicy::Queue { until: None };
        let mut bench = Bench::new(Mode::Write, |options| options.renewal = renewal, wait);
        bench.call();
        bench.acquired(QUEUED);
        bench.push(5, Duration::from_millis(1_500));
        let mut sent = 0;
        for _ in 0..5 {
            let [renewal, _] = bench.on(Event::Look).sends;
            sent += u32::from(renewal.is_some());
            let grant = bench.grant(5, LEASE);
            if renewal.is_some() {
                let _ = bench.renewed(Renewed::Held(grant));
            }
            bench.after(3_000);
        }
        assert_eq!(sent, claims, "{renewal:?}");
    }
    let mut bench = Bench::holding(Mode::Read, 5, |options| options.renewal = Renewal::Manual);
    let _ = bench.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
    bench.call();
    bench.acquired(Acquired::Queued { ticket: 0, ahead: 1 });
    bench.push(6, Duration::from_millis(1_500));
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
}

#[test]
fn a_renewal_that_fails_while_it_is_released_is_an_error_and_the_lease_is_uncertain() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let _ = bench.on(Event::Release);
    assert!(matches!(&bench.state, State::Held(holding) if holding.is_shaky(bench.now)));
    let effects = bench.on(Event::Renewed(no_answer()));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Unavailable);
    assert_eq!(kind_of(bench.renewed(Renewed::Lost).next.unwrap()), ErrorKind::Lost);
    assert!(!bench.is_lost());
}

// Changes.

#[test]
fn an_upgrade_has_the_terms_of_its_lease() {
    let mut bench = Bench::holding(Mode::Read, 5, |options| {
        options.replicas = 2;
        options.hold = Some(Duration::from_secs(10));
    });
    bench.after(4_000);
    let _ = bench.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
    let Next::Send { acquire, replicas, .. } = bench.call() else { panic!() };
    assert_eq!((acquire.lease, replicas), (Duration::from_secs(6), 2), "not past the longest hold");
    assert_eq!(acquire.goal, Goal::Upgrade { token: 5 });
}

#[test]
fn a_late_push_of_the_read_is_no_upgrade() {
    let mut bench = Bench::upgrading(5);
    bench.acquired(Acquired::Queued { ticket: 0, ahead: 2 });
    assert!(matches!(bench.push(5, LEASE), Next::Again));
    assert_eq!(bench.mode(), Mode::Read);
    bench.call();
    bench.acquired(Acquired::Queued { ticket: 0, ahead: 2 });
    assert!(matches!(bench.push(6, LEASE), Next::Held { token: 6, .. }));
    assert_eq!(bench.mode(), Mode::Write);
}

#[test]
fn an_upgrade_that_is_given_up_ends_its_wait_and_what_was_granted_becomes_a_read() {
    let mut bench = Bench::upgrading(5);
    bench.acquired(Acquired::Queued { ticket: 0, ahead: 2 });
    let _ = bench.on(Event::Leave);
    assert_eq!(bench.on(Event::Look).sends, [None, Some(END_WAIT)]);
    let granted = bench.grant(6, LEASE);
    let _ = bench.released(true, Ended::Writing(granted));
    let [None, Some(Sending::Downgrade(downgrade))] = bench.on(Event::Look).sends else { panic!() };
    assert_eq!(downgrade.token, 6);
    let told = bench.told(Renewed::Held(granted));
    let _ = bench.on(Event::Downgraded(Ok(told)));
    assert_eq!(bench.mode(), Mode::Read);
}

#[test]
fn an_upgrade_begins_when_no_change_can_arrive_any_more() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let _ = bench.on(Event::Downgrade);
    assert!(matches!(bench.on(Event::Look).sends, [None, Some(Sending::Downgrade(_))]));
    let until = Some(at(1_000));
    let policy = WaitPolicy::Queue { until };
    assert!(matches!(bench.on(Event::Upgrade(policy)).next, Some(Next::Wait(_))));
    let _ = bench.on(Event::Downgraded(no_answer()));
    assert!(matches!(bench.on(Event::Upgrade(policy)).next, Some(Next::Wait(_))), "it may arrive");
    let next = bench.after(1_000).on(Event::Upgrade(policy)).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::TimedOut);
    let told = bench.told(Renewed::Held(bench.grant(5, LEASE)));
    let _ = bench.on(Event::Downgraded(Ok(told)));
    let policy = WaitPolicy::Queue { until: None };
    assert!(matches!(bench.on(Event::Upgrade(policy)).next, Some(Next::Again)));
}

#[test]
fn a_claim_window_of_an_upgrade_ends_within_the_longest_hold() {
    let hold = |options: &mut LeaseOptions| options.hold = Some(Duration::from_secs(5));
    let mut bench = Bench::holding(Mode::Read, 5, hold);
    bench.after(4_000);
    let _ = bench.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
    let Next::Send { acquire, .. } = bench.call() else { panic!() };
    assert_eq!(acquire.wait.unwrap().window, Duration::from_secs(1));
}

#[test]
fn a_wait_that_is_over_is_ended_until_no_attempt_of_it_can_arrive() {
    let mut bench = Bench::upgrading(5);
    let _ = bench.on(Event::Leave); // its call is under way, until 2,000
    assert_eq!(bench.on(Event::Look).sends, [None, Some(END_WAIT)]);
    let _ = bench.after(100).released(true, Ended::Absent);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    // The next request takes over what is in doubt.
    let _ = bench.on(Event::Upgrade(WaitPolicy::strict_try(at(5_000))));
    bench.call();
    assert!(matches!(bench.acquired(Acquired::Refused), Next::Refused));
    assert_eq!(bench.on(Event::Look).sends, [None, Some(END_WAIT)], "it lingers");
    let _ = bench.on(Event::Release);
    let effects = bench.given_back(Ended::Released);
    assert!(!effects.over, "the upgrade may still arrive");

    let mut ended = Bench::upgrading(5);
    let _ = ended.on(Event::Leave);
    let _ = ended.on(Event::Look);
    let _ = ended.after(100).released(true, Ended::Absent);
    ended.after(2_900 + 20);
    let _ = ended.on(Event::Look);
    let _ = ended.after(500).released(true, Ended::Absent);
    assert!(matches!(&ended.state, State::Held(holding) if holding.pending().is_none()));
}

#[test]
fn a_downgrade_makes_a_lease_longer_unless_replicas_must_confirm_it() {
    for (replicas, ends) in [(0, 10_000), (1, 9_000)] {
        let mut bench = Bench::holding(Mode::Write, 5, |options| options.replicas = replicas);
        let _ = bench.after(1_000).on(Event::Downgrade);
        let _ = bench.on(Event::Look);
        let told = bench.told(Renewed::Held(bench.grant(5, LEASE)));
        let _ = bench.on(Event::Downgraded(Ok(told)));
        assert_eq!((bench.mode(), bench.ends()), (Mode::Read, at(ends)));
    }
}

/// A contact that no replica has confirmed does not keep the gate open.
#[test]
fn a_downgrade_of_a_cached_write_is_a_contact_unless_replicas_must_confirm_it() {
    for (replicas, sent) in [(0, 1_000), (1, 0)] {
        let mut bench = Bench::holding(Mode::Write, 5, |options| {
            (options.replicas, options.cached) = (replicas, true);
        });
        let _ = bench.after(1_000).on(Event::Downgrade);
        let _ = bench.on(Event::Look);
        let grant = Grant { recall: Some(Mode::Write), ..bench.grant(5, LEASE) };
        let told = bench.told(Renewed::Held(grant));
        let _ = bench.on(Event::Downgraded(Ok(told)));
        let State::Held(holding) = &bench.state else { panic!("it is not held") };
        let contact = holding.contact.as_deref().unwrap();
        assert_eq!((contact.sent, contact.recall), (at(sent), Some(Mode::Write)));
    }
}

#[test]
fn a_downgrade_is_called_off_until_it_is_sent() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let _ = bench.on(Event::Downgrade);
    let _ = bench.on(Event::StayWriter);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    let _ = bench.on(Event::Downgrade);
    let _ = bench.on(Event::Look);
    let _ = bench.on(Event::StayWriter);
    assert!(matches!(&bench.state, State::Held(holding) if holding.pending().is_some()));
}

#[test]
fn a_change_that_is_told_of_the_loss_loses_the_lease_and_what_took_its_place() {
    let mut upgrading = Bench::upgrading(5);
    let told = upgrading.told(Acquired::Lost);
    let effects = upgrading.on(Event::Acquired(Ok(told)));
    assert!(effects.lost.is_some_and(|lost| lost.taken));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Lost);
    assert_eq!(upgrading.on(Event::Look).sends, [None, Some(RELEASE)]);
    let mut downgrading = Bench::holding(Mode::Write, 5, |_| {});
    let _ = downgrading.on(Event::Downgrade);
    let _ = downgrading.on(Event::Look);
    let told = downgrading.told(Renewed::Lost);
    assert!(downgrading.on(Event::Downgraded(Ok(told))).lost.is_some());
    assert_eq!(downgrading.on(Event::Look).sends, [None, Some(RELEASE)]);
}

#[test]
fn an_end_means_nothing_to_what_is_over() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let _ = bench.on(Event::Keep);
    assert_eq!(bench.state, State::Ended);
    for event in [Event::Drop, Event::Leave, Event::Look, Event::Release, Event::Downgrade] {
        let effects = bench.on(event);
        assert!(!effects.over && !effects.ended && effects.look.is_none());
    }
    assert_eq!(kind_of(bench.call()), ErrorKind::Cancelled);
}

// A message that a lease was ended by force.

/// Whether the worker asks the server.
fn asks(effects: &Effects) -> bool {
    matches!(effects.sends, [Some(Sending::Ask { .. }), None])
}

#[test]
fn what_is_said_to_be_ended_is_lost_by_the_answer_of_the_server_alone() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let heard = bench.on(Event::Ended { token: 5 });
    assert_eq!(heard.look, Some(bench.now), "long before a renewal is due");
    assert!(!bench.is_lost());
    assert!(asks(&bench.on(Event::Look)));
    assert!(!asks(&bench.on(Event::Look)), "it is on its way");
    let ends = bench.ends();
    // A failover has brought the lease back, or the message was forged.
    assert!(bench.asked(Some(5)).lost.is_none());
    assert_eq!((bench.is_lost(), bench.ends()), (false, ends));
    bench.on(Event::Ended { token: 5 });
    assert!(asks(&bench.on(Event::Look)));
    assert!(bench.on(Event::Asked(no_answer())).lost.is_none());
    assert!(!asks(&bench.on(Event::Look)), "the next renewal tells");
    bench.on(Event::Ended { token: 5 });
    assert!(asks(&bench.on(Event::Look)));
    let lost = bench.asked(None);
    assert!(lost.ended && lost.lost.is_some_and(|lost| lost.taken));
    assert!(bench.is_lost());
}

/// A message that arrives while the server is asked may be about something later.
#[test]
fn the_server_is_asked_once_more_of_what_is_heard_meanwhile() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.on(Event::Ended { token: 5 });
    assert!(asks(&bench.on(Event::Look)));
    for _ in 0..3 {
        bench.on(Event::Ended { token: 5 });
        assert!(!asks(&bench.on(Event::Look)), "one question at a time");
    }
    assert_eq!(bench.asked(Some(5)).look, Some(bench.now));
    assert!(asks(&bench.on(Event::Look)));
    bench.asked(Some(5));
    assert!(!asks(&bench.on(Event::Look)));
}

/// The user renews it, or nobody does: the question does not extend it.
#[test]
fn a_lease_that_nobody_renews_is_asked_about_and_not_made_longer() {
    let mut bench = Bench::holding(Mode::Read, 5, |options| options.renewal = Renewal::Manual);
    bench.on(Event::Ended { token: 5 });
    assert!(asks(&bench.on(Event::Look)));
    bench.asked(None);
    assert!(bench.is_lost());
}

#[test]
fn a_renewal_that_is_due_is_the_question() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.after(4_000).on(Event::Ended { token: 5 });
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    bench.renewed(Renewed::Lost);
    assert!(bench.is_lost());
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
}

#[test]
fn what_is_said_of_another_lease_asks_nothing() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.on(Event::Ended { token: 4 });
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    // A lease that is being released, or a request under way.
    bench.on(Event::Release);
    bench.on(Event::Ended { token: 5 });
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    bench.on(Event::Ended { token: 5 });
    assert!(matches!(bench.state, State::Acquiring(_)));
}

/// The message and the answer that grants arrive on two connections.
#[test]
fn an_end_that_is_heard_of_before_the_grant_is_asked_about_after_it() {
    for (ended, is_asked) in [(4, false), (5, true), (6, true)] {
        let mut bench = Bench::new(Mode::Write, |_| {}, WaitPolicy::Queue { until: None });
        bench.call();
        for token in [ended, 3] {
            bench.on(Event::Ended { token });
        }
        let granted = bench.told(Acquired::Granted(bench.grant(5, LEASE)));
        let held = bench.on(Event::Acquired(Ok(granted)));
        assert!(matches!(held.next, Some(Next::Held { token: 5, .. })));
        assert_eq!(held.look == Some(bench.now), is_asked, "{ended}");
        assert_eq!(asks(&bench.on(Event::Look)), is_asked, "{ended}");
    }
    // The claim of a pushed grant serves as the question.
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    bench.acquired(QUEUED);
    bench.on(Event::Ended { token: 5 });
    assert!(matches!(bench.push(5, LEASE), Next::Held { .. }));
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    bench.renewed(Renewed::Lost);
    assert!(bench.is_lost());
}

/// The upgrade may have been granted and then ended by force before its answer arrived.
#[test]
fn an_upgrade_that_was_ended_by_force_is_asked_about() {
    let mut bench = Bench::upgrading(5);
    bench.on(Event::Ended { token: 6 });
    assert!(asks(&bench.on(Event::Look)));
    bench.asked(Some(6));
    assert!(!bench.is_lost(), "it was granted");
    // Another lease of this acquisition has taken its place, and is released.
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.on(Event::Ended { token: 5 });
    bench.on(Event::Look);
    bench.asked(Some(6));
    assert!(bench.is_lost());
    assert_eq!(bench.on(Event::Look).sends, [None, Some(RELEASE)]);
}
