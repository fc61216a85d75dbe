//! Transitions, one at a time.

mod changes;
mod forced;
mod leases;
mod permits;
mod releases;
mod requests;
mod waiting;

use std::time::Duration;

use super::event::{
    AcquisitionEvent, Context, Effects, GrantPush, GrantSource, RequestStep, TelemetryEvent,
    WorkerCall,
};
use super::state::AcquisitionState;
use super::{AcquisitionError, HeldLease};
use crate::acquisition::config::AcquisitionConfig;
use crate::acquisition::lease_options::{LeaseOptions, RenewalPolicy, WaitPolicy};
use crate::protocol::{
    AcquireKind, AcquireReply, CallError, CallErrorKind, ClientId, Confirmation, Doubt, Envelope,
    Fairness, Grant, LockKind, LockMode, PermitRequest, ReleasePermitsRequest, ReleaseReply,
    ReleaseRequest, RenewReply, ScriptReply, ScriptResult,
};
use crate::resp::{Address, ServerError};
use crate::time::{ClockBounds, LocalInstant};

const LEASE: Duration = Duration::from_secs(9);

const fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

fn server() -> Address {
    Address { host: "a".into(), port: 1 }
}

/// A state and its history. The server's clock is 1,000 s ahead.
struct Bench {
    state: AcquisitionState,
    settings: AcquisitionConfig,
    now: LocalInstant,
    kind: LockKind,
}

impl Bench {
    fn new(mode: LockMode, change: impl FnOnce(&mut LeaseOptions), policy: WaitPolicy) -> Bench {
        let settings = AcquisitionConfig {
            safety_margin: Some(Duration::ZERO),
            ..AcquisitionConfig::default()
        };
        let mut options = default_options();
        options.lease = LEASE;
        change(&mut options);
        let goal = AcquireKind::Lock(mode, Fairness::PhaseFair);
        let state = AcquisitionState::new(goal, &options, policy, at(0));
        Bench { state, settings, now: at(0), kind: LockKind::ReadWrite }
    }

    fn waiting(mode: LockMode) -> Bench {
        Bench::new(mode, |_| {}, WaitPolicy::Queue { deadline: None })
    }

    /// A lease granted now, with this token.
    fn held_lease(mode: LockMode, token: u64, change: impl FnOnce(&mut LeaseOptions)) -> Bench {
        let mut bench = Bench::new(mode, change, WaitPolicy::Queue { deadline: None });
        bench.call();
        let reply = bench.reply(AcquireReply::Granted(bench.grant(token, LEASE)));
        let effects = bench.on(AcquisitionEvent::AcquireReply(Ok(reply)));
        assert!(
            matches!(
                effects.next_step,
                Some(RequestStep::Granted { source: GrantSource::Reply, .. })
            ),
            "{effects:?}"
        );
        bench
    }

    fn upgrading(token: u64) -> Bench {
        let mut bench = Bench::held_lease(LockMode::Read, token, |_| {});
        assert!(matches!(bench.upgrade(None), RequestStep::CallNow));
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

    fn reply<T>(&self, body: T) -> ScriptReply<T> {
        ScriptReply {
            body,
            envelope: Envelope { server_now: self.server_now(), has_more_work: false },
            sent_at: self.now,
            received_at: self.now,
            server: server(),
            confirmed: Ok(()),
            in_doubt: Doubt::None,
        }
    }

    fn call(&mut self) -> RequestStep {
        self.on(AcquisitionEvent::Call { is_subscribed: true }).next_step.unwrap()
    }

    /// The calls that the worker makes now.
    fn worker_calls(&mut self) -> [Option<WorkerCall>; 2] {
        self.on(AcquisitionEvent::TimerFired).worker_calls
    }

    /// Whether the worker renews the lease now, and does nothing else.
    fn is_renewed(&mut self) -> bool {
        matches!(self.worker_calls(), [Some(WorkerCall::Renew { .. }), None])
    }

    fn upgrade(&mut self, deadline: Option<LocalInstant>) -> RequestStep {
        let policy = WaitPolicy::Queue { deadline };
        self.on(AcquisitionEvent::Upgrade(policy)).next_step.unwrap()
    }

    /// The next step after a call without a reply.
    fn failed(&mut self, outcome: ScriptResult<AcquireReply>) -> RequestStep {
        self.on(AcquisitionEvent::AcquireReply(outcome)).next_step.unwrap()
    }

    fn acquired(&mut self, body: AcquireReply) -> RequestStep {
        let reply = self.reply(body);
        self.on(AcquisitionEvent::AcquireReply(Ok(reply))).next_step.unwrap()
    }

    fn renewed(&mut self, body: RenewReply) -> Effects {
        let reply = self.reply(body);
        self.on(AcquisitionEvent::RenewReply(Ok(reply)))
    }

    /// A renewal is answered, with a lease that ends after this time.
    fn renewed_by(&mut self, body: fn(Grant) -> RenewReply, token: u64, left: Duration) -> Effects {
        self.renewed(body(self.grant(token, left)))
    }

    fn downgraded(&mut self, body: RenewReply) -> Effects {
        let reply = self.reply(body);
        self.on(AcquisitionEvent::DowngradeReply(Ok(reply)))
    }

    fn asked(&mut self, token: Option<u64>) -> Effects {
        let reply = self.reply(token);
        self.on(AcquisitionEvent::HoldsReply(Ok(reply)))
    }

    fn given_back(&mut self, body: ReleaseReply) -> Effects {
        let reply = self.reply(body);
        self.on(AcquisitionEvent::ReleaseReply(reply))
    }

    fn on_permits_released(&mut self, keep: u32, token: u64) -> Effects {
        let outcome = Ok(self.reply(Some(self.grant(token, LEASE))));
        self.on(AcquisitionEvent::ReleasePermitsReply { keep, outcome })
    }

    fn released(&mut self, wait_only: bool, body: ReleaseReply) -> Effects {
        let outcome = Ok(self.reply(body));
        self.on(AcquisitionEvent::WorkerReleaseReply { wait_only, outcome })
    }

    /// A message arrives that grants the lock.
    fn hear_grant(&mut self, token: u64, left: Duration) {
        let mut bound = ClockBounds::default();
        bound.observe(self.now, self.now, self.server_now());
        let pushed = GrantPush {
            grant: self.grant(token, left),
            server_now: self.server_now(),
            received_at: self.now,
            server: server(),
            clock_bounds: Some(bound),
        };
        assert!(self.on(AcquisitionEvent::GrantPushed(Box::new(pushed))).notify_waiters);
    }

    fn push(&mut self, token: u64, left: Duration) -> RequestStep {
        self.hear_grant(token, left);
        self.on(AcquisitionEvent::Wake).next_step.unwrap()
    }

    fn lease(&self) -> &HeldLease {
        match &self.state {
            AcquisitionState::Held(held_lease) => held_lease,
            other => panic!("{other:?}"),
        }
    }

    fn is_uncertain(&self) -> bool {
        self.lease().is_uncertain(self.now)
    }

    fn ends(&self) -> LocalInstant {
        self.lease().deadline
    }

    fn mode(&self) -> LockMode {
        self.lease().mode
    }

    fn is_lost(&self) -> bool {
        matches!(&self.state, AcquisitionState::Held(held_lease) if held_lease.is_lost())
    }
}

fn default_options() -> LeaseOptions {
    LeaseOptions {
        lease: Duration::from_secs(30),
        fairness: Fairness::PhaseFair,
        renewal: RenewalPolicy::Automatic,
        max_hold: None,
        at_least: None,
        confirmation: Confirmation::default(),
        is_cacheable: false,
        reserved: false,
        is_member: false,
        permits: None,
    }
}

fn failed<T>(kind: CallErrorKind, in_doubt: Doubt) -> ScriptResult<T> {
    Err(CallError::new(kind, in_doubt))
}

fn no_answer<T>() -> ScriptResult<T> {
    failed(CallErrorKind::TimedOut(None), Doubt::Unbounded)
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ErrorKind {
    TimedOut,
    LeaseLost,
    LeaseRevoked,
    Unavailable,
    Rejected,
    Cancelled,
}

fn kind_of(next: RequestStep) -> ErrorKind {
    let RequestStep::Failed(error) = next else { panic!("{next:?}") };
    match error {
        AcquisitionError::TimedOut { .. } => ErrorKind::TimedOut,
        AcquisitionError::LeaseLost => ErrorKind::LeaseLost,
        AcquisitionError::LeaseRevoked => ErrorKind::LeaseRevoked,
        AcquisitionError::ShutDown => ErrorKind::Cancelled,
        AcquisitionError::Call(CallError {
            kind: CallErrorKind::Rejected(_) | CallErrorKind::Unconnected { .. },
            ..
        }) => ErrorKind::Rejected,
        AcquisitionError::Call(_)
        | AcquisitionError::GrantExpired
        | AcquisitionError::Unconfirmed(_)
        | AcquisitionError::UpgradeInFlight => ErrorKind::Unavailable,
        other => panic!("{other:?}"),
    }
}

const QUEUED: AcquireReply = AcquireReply::Queued { ticket: 1, ahead: 3 };
const END_WAIT: WorkerCall = WorkerCall::Release(ReleaseRequest::WAIT);
const RELEASE: WorkerCall = WorkerCall::Release(ReleaseRequest::ALL);
