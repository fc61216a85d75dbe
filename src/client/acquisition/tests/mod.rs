//! Transitions, one at a time.

mod changes;
mod forced;
mod leases;
mod releases;
mod requests;
mod shrinks;
mod waiting;

use std::time::Duration;

use super::event::{
    AcquisitionEvent, Context, Effects, GrantPush, GrantSource, RequestStep, TelemetryEvent,
    WorkerCall,
};
use super::state::AcquisitionState;
use crate::backend::{Address, ServerError};
use crate::client::config::ClientConfig;
use crate::client::lease_options::{LeaseOptions, RenewalPolicy, WaitPolicy};
use crate::client::script_result::{ScriptCallError, ScriptReply, ScriptResult};
use crate::clock::LocalInstant;
use crate::error::ErrorKind;
use crate::protocol::{
    AcquireKind, AcquireReply, ClientId, Envelope, Fairness, Grant, LockKind, LockMode,
    PermitRequest, ReleasePermitsRequest, ReleaseReply, ReleaseRequest, RenewReply,
};
use crate::router::{CallError, CallErrorKind, ClockBounds};

const LEASE: Duration = Duration::from_secs(9);

const fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

fn node() -> Address {
    Address { host: "a".into(), port: 1 }
}

/// A state and its history. The server's clock is 1,000 s ahead.
struct Bench {
    state: AcquisitionState,
    settings: ClientConfig,
    now: LocalInstant,
    kind: LockKind,
}

impl Bench {
    fn new(mode: LockMode, change: impl FnOnce(&mut LeaseOptions), policy: WaitPolicy) -> Bench {
        let settings =
            ClientConfig { safety_margin: Some(Duration::ZERO), ..ClientConfig::default() };
        let mut options = LeaseOptions { lease: LEASE, ..LeaseOptions::from_config(&settings) };
        change(&mut options);
        let goal = AcquireKind::Lock(mode, Fairness::PhaseFair);
        let state = AcquisitionState::new(goal, &options, policy, at(0));
        Bench { state, settings, now: at(0), kind: LockKind::ReadWrite }
    }

    fn waiting(mode: LockMode) -> Bench {
        Bench::new(mode, |_| {}, WaitPolicy::Queue { deadline: None })
    }

    /// A lease granted now, with this token.
    fn holding(mode: LockMode, token: u64, change: impl FnOnce(&mut LeaseOptions)) -> Bench {
        let mut bench = Bench::new(mode, change, WaitPolicy::Queue { deadline: None });
        bench.call();
        let mut told = bench.told(AcquireReply::Granted(bench.grant(token, LEASE)));
        told.replicas_confirmed = 9;
        let effects = bench.on(AcquisitionEvent::AcquireReply(Ok(told)));
        assert!(
            matches!(effects.next_step, Some(RequestStep::Granted { by: GrantSource::Reply, .. })),
            "{effects:?}"
        );
        bench
    }

    fn upgrading(token: u64) -> Bench {
        let mut bench = Bench::holding(LockMode::Read, token, |_| {});
        let begun = bench.on(AcquisitionEvent::Upgrade(WaitPolicy::Queue { deadline: None }));
        assert!(matches!(begun.next_step, Some(RequestStep::CallNow)));
        bench.call();
        bench
    }

    fn on(&mut self, event: AcquisitionEvent) -> Effects {
        let Bench { now, kind, .. } = *self;
        let context = Context { now, jitter: 0.0, settings: &self.settings, lock_kind: kind };
        self.state.apply(event, &context)
    }

    fn after(&mut self, ms: u64) -> &mut Bench {
        self.now = self.now.saturating_add(Duration::from_millis(ms));
        self
    }

    fn server_now(&self) -> u64 {
        1_000_000 + self.now.as_duration().as_millis() as u64
    }

    fn grant(&self, token: u64, left: Duration) -> Grant {
        // The server's clock may be up to a millisecond further.
        Grant::new(token, self.server_now() + left.as_millis() as u64 + 1)
    }

    fn told<T>(&self, what: T) -> ScriptReply<T> {
        ScriptReply {
            body: what,
            envelope: Envelope { server_now: self.server_now(), has_pump_work: false },
            sent_at: self.now,
            received_at: self.now,
            server: node(),
            replicas_confirmed: 0,
            in_doubt: None,
        }
    }

    fn call(&mut self) -> RequestStep {
        self.on(AcquisitionEvent::Call { is_subscribed: true }).next_step.unwrap()
    }

    fn acquired(&mut self, what: AcquireReply) -> RequestStep {
        let told = self.told(what);
        self.on(AcquisitionEvent::AcquireReply(Ok(told))).next_step.unwrap()
    }

    fn renewed(&mut self, what: RenewReply) -> Effects {
        let told = self.told(what);
        self.on(AcquisitionEvent::RenewReply(Ok(told)))
    }

    fn asked(&mut self, token: Option<u64>) -> Effects {
        let told = self.told(token);
        self.on(AcquisitionEvent::HoldsReply(Ok(told)))
    }

    fn given_back(&mut self, what: ReleaseReply) -> Effects {
        let told = self.told(what);
        self.on(AcquisitionEvent::ReleaseReply(told))
    }

    fn shrunk(&mut self, keep: u32, token: u64) -> Effects {
        let outcome = Ok(self.told(Some(self.grant(token, LEASE))));
        self.on(AcquisitionEvent::ReleasePermitsReply { keep, outcome })
    }

    fn released(&mut self, only_wait: bool, what: ReleaseReply) -> Effects {
        let outcome = Ok(self.told(what));
        self.on(AcquisitionEvent::WorkerReleaseReply { only_wait, outcome })
    }

    fn push(&mut self, token: u64, left: Duration) -> RequestStep {
        let mut bound = ClockBounds::default();
        bound.observe(self.now, self.now, self.server_now());
        let pushed = GrantPush {
            grant: self.grant(token, left),
            server_now: self.server_now(),
            received_at: self.now,
            server: node(),
            clock_bounds: Some(bound),
        };
        assert!(self.on(AcquisitionEvent::GrantPushed(Box::new(pushed))).notify_waiters);
        self.on(AcquisitionEvent::Wake).next_step.unwrap()
    }

    fn is_shaky(&self) -> bool {
        matches!(&self.state, AcquisitionState::Held(holding) if holding.is_at_risk(self.now))
    }

    fn ends(&self) -> LocalInstant {
        match &self.state {
            AcquisitionState::Held(holding) => holding.deadline,
            other => panic!("{other:?}"),
        }
    }

    fn mode(&self) -> LockMode {
        match &self.state {
            AcquisitionState::Held(holding) => holding.mode,
            other => panic!("{other:?}"),
        }
    }

    fn is_lost(&self) -> bool {
        matches!(&self.state, AcquisitionState::Held(holding) if holding.is_lost())
    }
}

fn failed<T>(reason: CallErrorKind, in_doubt: Option<u64>) -> ScriptResult<T> {
    Err(ScriptCallError::Call(CallError { kind: reason, in_doubt, last_error: None }))
}

fn no_answer<T>() -> ScriptResult<T> {
    failed(CallErrorKind::TimedOut(None), Some(0))
}

fn kind_of(next: RequestStep) -> ErrorKind {
    match next {
        RequestStep::Failed(error) => error.kind(),
        other => panic!("{other:?}"),
    }
}

const QUEUED: AcquireReply = AcquireReply::Queued { ticket: 1, ahead: 3 };
const END_WAIT: WorkerCall = WorkerCall::Release(ReleaseRequest { wait_only: true });
const RELEASE: WorkerCall = WorkerCall::Release(ReleaseRequest { wait_only: false });
