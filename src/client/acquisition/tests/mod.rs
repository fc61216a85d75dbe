//! Transitions, one at a time.

mod changes;
mod forced;
mod leases;
mod releases;
mod requests;
mod shrinks;
mod waiting;

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
    Acquired, ClientId, Ended, Envelope, Fairness, Goal, Grant, Kind, Mode, Permits, Release,
    Renewed, Shrink,
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

    fn shrunk(&mut self, keep: u32, token: u64) -> Effects {
        let outcome = Ok(self.told(Some(self.grant(token, LEASE))));
        self.on(Event::Shrunk { keep, outcome })
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

    fn is_shaky(&self) -> bool {
        matches!(&self.state, State::Held(holding) if holding.is_shaky(self.now))
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

const QUEUED: Acquired = Acquired::Queued { ticket: 1, ahead: 3 };
const END_WAIT: Sending = Sending::Release(Release { only_wait: true });
const RELEASE: Sending = Sending::Release(Release { only_wait: false });
