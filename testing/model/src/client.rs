//! One client: its program, and its real acquisition, driven as `client::acquire` and
//! `client::worker` drive it.

use std::time::Duration;

use rwlease_core::acquisition::{
    AcquisitionConfig, AcquisitionEvent, AcquisitionState, Context, GrantPush, RequestStep,
    TimeVisitor, WorkerCall,
};
use rwlease_core::protocol::{
    AcquireReply, AcquireRequest, CallError, CallErrorKind, Doubt, Envelope, Grant, LockKind,
    ReleaseReply, ReleaseRequest, ScriptReply, ScriptResult,
};
use rwlease_core::resp::Address;
use rwlease_core::time::{ClockBounds, LocalInstant};

use crate::cached_hold::ModelCachedLease;
use crate::call::{CallAnswer, CallRequest, CallStage, ModelCall, ModelMessage, ModelMessageKind};
use crate::program::{AcquireProgram, LeaseChange};
use crate::time::{AgingVisitor, LOCAL_NOW, SERVER_NOW, TokenVisitor, UNIT, UNIT_MS, server_ms};
use rwlease::LockMode;

/// How the clock of a client differs from the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientClock {
    /// The ticks of the server's clock that it has still to make.
    pub late: u8,
    /// For how many more ticks of the server's clock it loses and gains none.
    pub exact_for: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelClient {
    has_crashed: bool,
    pub clock: ClientClock,
    /// It is subscribed at the server.
    pub is_subscribed: bool,
    /// The index of the acquisition in the program, and how many of its changes were made or given
    /// up.
    pub step: u8,
    changes: u8,
    pub state: Option<AcquisitionState>,
    request: RequestPhase,
    /// The request is for an upgrade.
    upgrades: bool,
    /// When the worker must look at it.
    worker_wake: Option<LocalInstant>,
    /// Its cached lease, and what pushes have said about other clients that want it. A push can
    /// come before the grant.
    pub hold: Option<ModelCachedLease>,
    pub recall: Option<LockMode>,
}

/// The state of a request's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RequestPhase {
    Resting,
    /// A call is under way, which named this server as the one where the client is subscribed.
    Calling(Option<u8>),
    /// It sleeps until then, or until something changes.
    Waiting(LocalInstant, Option<u8>),
    /// An upgrade waits for a change that is under way.
    Beginning,
    /// The holder releases it by a call of its own.
    GivingBack,
}

/// Faults of a client, to show that a rule finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// It counts its lease from when the answer came.
    CountsLeaseFromReply,
    /// It waits for its message and never polls.
    NeverPolls,
    /// It forgets a lease that it gives up.
    NeverReleases,
    /// It keeps what other clients want.
    IgnoresRecall,
    /// A guard has the token of the one before it.
    ReusesTokens,
    /// It ignores a recall that comes before the grant.
    ForgetsEarlyRecalls,
    /// It believes in its lease up to the server's deadline.
    IgnoresMargin,
    /// The same for a grant that was pushed, until the answer to its claim.
    IgnoresMarginOfPushes,
}

/// The surroundings of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientEnvironment<'a> {
    pub settings: &'a AcquisitionConfig,
    /// The lease that each request wants.
    pub lease: Duration,
    pub program: &'a [AcquireProgram],
    pub server: u8,
    pub fault: Option<ClientFault>,
}

/// The consequences of an event.
#[derive(Debug, Default)]
pub struct ClientOutput {
    pub calls: Vec<ModelCall>,
    pub grant_waiters: bool,
}

/// A client with its surroundings, for the time of one event.
pub struct ClientTurn<'a> {
    pub client: ModelClient,
    pub around: ClientEnvironment<'a>,
    pub follows: ClientOutput,
}

impl Default for ModelClient {
    fn default() -> ModelClient {
        ModelClient {
            has_crashed: false,
            clock: ClientClock::default(),
            is_subscribed: true,
            step: 0,
            changes: 0,
            state: None,
            request: RequestPhase::Resting,
            upgrades: false,
            worker_wake: None,
            hold: None,
            recall: None,
        }
    }
}

impl ModelClient {
    pub fn is_alive(&self) -> bool {
        !self.has_crashed
    }

    /// It has nothing left to do.
    pub fn is_done(&self, program: &[AcquireProgram]) -> bool {
        !self.is_alive() || (self.state.is_none() && usize::from(self.step) >= program.len())
    }

    pub fn may_start(&self, program: &[AcquireProgram]) -> bool {
        self.is_alive() && self.state.is_none() && usize::from(self.step) < program.len()
    }

    pub fn must_wake(&self) -> bool {
        matches!(self.request, RequestPhase::Waiting(until, _) if until <= LOCAL_NOW)
    }

    pub fn has_due_worker_timer(&self) -> bool {
        self.worker_wake.is_some_and(|look| look <= LOCAL_NOW)
    }

    /// A request is under way that its caller can drop.
    pub fn may_cancel(&self) -> bool {
        !matches!(self.request, RequestPhase::Resting | RequestPhase::GivingBack)
    }

    /// Its guard is gone and has requested the release.
    pub fn is_releasing_by_call(&self) -> bool {
        self.request == RequestPhase::GivingBack
    }

    /// It has a guard that its owner can drop.
    pub fn may_drop(&self) -> bool {
        self.is_idle()
            && self.hold.is_none()
            && matches!(self.state, Some(AcquisitionState::Held(_)))
    }

    pub fn is_idle(&self) -> bool {
        self.request == RequestPhase::Resting
    }

    /// Its owner can release it by a call.
    pub fn can_release_by_call(&self, program: &[AcquireProgram]) -> bool {
        self.may_drop()
            && program.get(usize::from(self.step)).is_some_and(|wish| wish.releases_by_call)
    }

    /// The change that its owner can make next.
    pub fn next_change(&self, program: &[AcquireProgram]) -> Option<LeaseChange> {
        let wish = program.get(usize::from(self.step))?;
        let next = wish.changes.get(usize::from(self.changes)).copied()?;
        let holds = matches!(&self.state, Some(AcquisitionState::Held(holding)) if holding.is_held(LOCAL_NOW));
        (holds && self.request == RequestPhase::Resting).then_some(next)
    }

    /// Only its release remains.
    pub fn is_releasing(&self) -> bool {
        matches!(self.state, None | Some(AcquisitionState::Releasing(_) | AcquisitionState::Ended))
    }

    /// All tokens that it knows.
    pub fn tokens(&self) -> Vec<u64> {
        let mut all = Vec::new();
        self.clone().visit(&mut TokenVisitor(|token: &mut u64| all.push(*token)));
        all
    }

    pub fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        self.state.iter_mut().for_each(|state| state.visit(visitor));
        self.hold.iter_mut().for_each(|hold| hold.visit(visitor));
    }

    pub fn crash(&mut self) {
        *self = ModelClient {
            has_crashed: true,
            is_subscribed: false,
            clock: self.clock,
            step: self.step,
            ..ModelClient::default()
        };
    }

    pub fn grow_older(&mut self, by: &mut AgingVisitor) {
        if let RequestPhase::Waiting(until, _) = &mut self.request {
            by.visit_deadline(until);
        }
        self.worker_wake.iter_mut().for_each(|look| by.visit_deadline(look));
        self.state.iter_mut().for_each(|state| state.visit(by));
    }
}

impl ClientTurn<'_> {
    pub fn on(&mut self, event: AcquisitionEvent) -> Option<RequestStep> {
        let without_margin = self.without_margin(&event);
        let state = self.client.state.as_mut()?;
        let settings = without_margin.as_ref().unwrap_or(self.around.settings);
        let kind = LockKind::ReadWrite;
        let context = Context { now: LOCAL_NOW, jitter: 0.0, settings, lock_kind: kind };
        let effects = state.apply(event, &context);
        self.follows.grant_waiters |= effects.grant_waiters;
        let sends = effects.worker_calls.into_iter().flatten();
        sends.for_each(|sending| self.send(CallRequest::Work(sending)));
        if let Some(look) = effects.wake_worker_at.filter(|_| !effects.deregister) {
            self.client.worker_wake =
                Some(self.client.worker_wake.map_or(look, |earlier| earlier.min(look)));
        }
        if effects.notify_waiters || effects.notify_end {
            self.notify_task();
        }
        if matches!(self.client.state, Some(AcquisitionState::Ended)) {
            self.client.worker_wake = None;
            self.forget();
        }
        effects.next_step
    }

    /// The settings for an event that a fault concerns.
    fn without_margin(&self, event: &AcquisitionEvent) -> Option<AcquisitionConfig> {
        let is_pushed = matches!(event, AcquisitionEvent::GrantPushed(_));
        let is_concerned = match self.around.fault {
            Some(ClientFault::IgnoresMargin) => true,
            Some(ClientFault::IgnoresMarginOfPushes) => is_pushed,
            _ => false,
        };
        let none = Some(Duration::ZERO);
        is_concerned
            .then(|| AcquisitionConfig { safety_margin: none, ..self.around.settings.clone() })
    }

    /// Wakes the task if it sleeps.
    fn notify_task(&mut self) {
        match self.client.request {
            RequestPhase::Waiting(..) => self.wake(),
            RequestPhase::Beginning => self.upgrade(),
            RequestPhase::Resting | RequestPhase::Calling(_) | RequestPhase::GivingBack => {}
        }
    }

    /// Everything is over, except for a request that has not been told.
    fn forget(&mut self) {
        if self.client.request == RequestPhase::Resting && self.client.state.is_some() {
            let ModelClient { is_subscribed, clock, step, .. } = self.client;
            let next = ModelClient { is_subscribed, clock, ..ModelClient::default() };
            self.client = ModelClient { step: step + 1, ..next };
        }
    }

    // The task of a request.

    pub fn start(&mut self) {
        let wish = self.around.program[usize::from(self.client.step)];
        self.client.state = Some(wish.request(self.around.lease));
        self.go_on(RequestStep::CallNow);
    }

    pub fn change(&mut self, change: LeaseChange) {
        match change {
            LeaseChange::Upgrade => self.upgrade(),
            LeaseChange::Downgrade => {
                self.client.changes += 1;
                self.on(AcquisitionEvent::Downgrade);
            }
            LeaseChange::ReleasePermits(keep) => {
                self.client.changes += 1;
                self.on(AcquisitionEvent::ReleasePermits { keep });
            }
        }
    }

    fn upgrade(&mut self) {
        self.client.upgrades = true;
        let policy = self.around.program[usize::from(self.client.step)].policy();
        match self.on(AcquisitionEvent::Upgrade(policy)) {
            Some(RequestStep::WaitUntil(_)) => self.client.request = RequestPhase::Beginning,
            Some(next) => self.go_on(next),
            None => self.finish(),
        }
    }

    pub fn wake(&mut self) {
        // So that what it does now wakes nothing.
        let RequestPhase::Waiting(_, joined) = self.client.request else { return };
        self.client.request = RequestPhase::Calling(joined);
        let next = self.on(AcquisitionEvent::Wake);
        self.go_on(next.unwrap_or(RequestStep::CallNow));
    }

    /// The caller drops its request.
    pub fn cancel(&mut self) {
        self.finish();
    }

    pub fn drop_guard(&mut self) {
        if self.around.fault == Some(ClientFault::NeverReleases) {
            self.client.state = Some(AcquisitionState::Ended);
            return self.forget();
        }
        self.on(AcquisitionEvent::Abandon);
    }

    /// The holder's own release, as a guard does it.
    pub fn release_by_call(&mut self) {
        self.client.request = RequestPhase::GivingBack;
        self.on(AcquisitionEvent::ReleaseStarted);
        self.send(CallRequest::OwnerRelease);
    }

    /// The released guard is dropped.
    fn on_release_reply(&mut self, told: Option<ScriptReply<ReleaseReply>>) {
        told.into_iter().for_each(|told| drop(self.on(AcquisitionEvent::ReleaseReply(told))));
        self.client.request = RequestPhase::Resting;
        self.on(AcquisitionEvent::Abandon);
        if matches!(self.client.state, Some(AcquisitionState::Ended)) {
            self.forget();
        }
    }

    pub fn join(&mut self) {
        self.client.is_subscribed = true;
        self.look_for_recalls();
        if matches!(self.client.request, RequestPhase::Waiting(..)) {
            self.on(AcquisitionEvent::PushMissed);
        }
    }

    fn go_on(&mut self, mut next: RequestStep) {
        loop {
            next = match next {
                RequestStep::CallNow => self.call(),
                RequestStep::Send { acquire, deadline: until, .. } => {
                    return self.send_acquire(acquire, until);
                }
                RequestStep::WaitUntil(_) => match self.rest() {
                    RequestStep::WaitUntil(_) => return,
                    next => next,
                },
                RequestStep::Granted { .. } | RequestStep::Busy | RequestStep::Failed(_) => {
                    return self.finish();
                }
            };
        }
    }

    fn subscribed_at(&self) -> Option<u8> {
        self.client.is_subscribed.then_some(self.around.server)
    }

    fn call(&mut self) -> RequestStep {
        self.client.request = RequestPhase::Calling(self.subscribed_at());
        let hears = self.client.is_subscribed;
        self.on(AcquisitionEvent::Call { is_subscribed: hears }).unwrap_or(RequestStep::CallNow)
    }

    fn send_acquire(&mut self, mut acquire: AcquireRequest, until: LocalInstant) {
        let joined = self.subscribed_at();
        self.client.request = RequestPhase::Calling(joined);
        if let Some(wait) = &mut acquire.wait {
            wait.subscribed_server = joined.map(server_name);
        }
        self.push_call(until, server_ms(until), CallRequest::Acquire(acquire));
    }

    fn rest(&mut self) -> RequestStep {
        let RequestPhase::Calling(joined) = self.client.request else {
            return RequestStep::CallNow;
        };
        if self.subscribed_at() != joined {
            return RequestStep::CallNow;
        }
        let next = self.on(AcquisitionEvent::Wake).unwrap_or(RequestStep::CallNow);
        if let RequestStep::WaitUntil(until) = next {
            self.client.request = RequestPhase::Waiting(until, joined);
        }
        next
    }

    /// The task of the request ends.
    fn finish(&mut self) {
        self.client.request = RequestPhase::Resting;
        if std::mem::take(&mut self.client.upgrades) {
            self.client.changes += 1;
        }
        self.on(AcquisitionEvent::RequestEnded);
        if matches!(self.client.state, Some(AcquisitionState::Ended)) {
            self.forget();
        }
    }

    // The worker.

    pub fn look(&mut self) {
        self.client.worker_wake = None;
        self.on(AcquisitionEvent::TimerFired);
    }

    pub fn send(&mut self, request: CallRequest) {
        let latest = LOCAL_NOW.saturating_add(self.around.settings.call_timeout);
        let until = match request {
            CallRequest::Work(
                WorkerCall::Renew { deadline, .. } | WorkerCall::Holds { deadline },
            ) => latest.min(deadline),
            _ => latest,
        };
        self.push_call(until, 0, request);
    }

    fn push_call(&mut self, until: LocalInstant, not_after: u64, request: CallRequest) {
        let (acquisition, stage) = (self.client.step, CallStage::Sent(request));
        let call = ModelCall { acquisition, sent: LOCAL_NOW, until, not_after, stage };
        self.follows.calls.push(call);
    }

    // What comes from the server.

    /// If the acquisition is over, a message matters only for what is left to release.
    pub fn on_message(&mut self, message: &ModelMessage, is_over: bool) {
        let ModelMessage { token, deadline, now, more, .. } = *message;
        self.follows.grant_waiters |= more;
        if is_over {
            return;
        }
        match message.about {
            ModelMessageKind::Grant => {}
            ModelMessageKind::RecallToRead => return self.recalled(LockMode::Read),
            ModelMessageKind::RecallToWrite => return self.recalled(LockMode::Write),
            ModelMessageKind::End => {
                return drop(self.on(AcquisitionEvent::ForceReleased { token }));
            }
        }
        // The bound is from before its clock was late.
        let late_ms = u64::from(self.client.clock.late) * UNIT_MS;
        let mut bound = ClockBounds::default();
        bound.observe(LOCAL_NOW, LOCAL_NOW, SERVER_NOW - late_ms);
        let pushed = GrantPush {
            grant: Grant::new(token, deadline),
            server_now: now,
            received_at: LOCAL_NOW,
            server: node(self.around.server),
            clock_bounds: Some(bound),
        };
        self.on(AcquisitionEvent::GrantPushed(Box::new(pushed)));
    }

    /// A call has been answered.
    pub fn answered(&mut self, sent: LocalInstant, envelope: Envelope, answer: CallAnswer) {
        match answer {
            CallAnswer::Acquired(what) => self.acquired(Ok(self.reply(sent, envelope, what))),
            CallAnswer::Renewed(what) => {
                self.contacted();
                self.on(AcquisitionEvent::RenewReply(Ok(self.reply(sent, envelope, what))));
            }
            CallAnswer::Asked(what) => {
                self.on(AcquisitionEvent::HoldsReply(Ok(self.reply(sent, envelope, what))));
            }
            CallAnswer::Downgraded(what) => {
                self.on(AcquisitionEvent::DowngradeReply(Ok(self.reply(sent, envelope, what))));
            }
            CallAnswer::PermitsReleased { keep, lease } => {
                let outcome = Ok(self.reply(sent, envelope, lease));
                self.on(AcquisitionEvent::ReleasePermitsReply { keep, outcome });
            }
            CallAnswer::Released { wait_only, ended } => {
                let outcome = Ok(self.reply(sent, envelope, ended));
                self.on(AcquisitionEvent::WorkerReleaseReply { wait_only, outcome });
            }
            CallAnswer::GivenBack(ended) => {
                self.on_release_reply(Some(self.reply(sent, envelope, ended)));
            }
            CallAnswer::WaitersGranted => self.follows.grant_waiters |= envelope.has_more_work,
            CallAnswer::Outside => {}
        }
    }

    /// A call has failed.
    pub fn failed(&mut self, call: &ModelCall) {
        let in_doubt = Doubt::of_attempt(call.not_after);
        let failure = CallError::new(CallErrorKind::TimedOut(None), in_doubt);
        match CallKind::of(call) {
            CallKind::Acquire => self.acquired(Err(failure)),
            CallKind::Renew => {
                self.contacted();
                self.on(AcquisitionEvent::RenewReply(Err(failure)));
            }
            CallKind::Ask => drop(self.on(AcquisitionEvent::HoldsReply(Err(failure)))),
            CallKind::Downgrade => drop(self.on(AcquisitionEvent::DowngradeReply(Err(failure)))),
            CallKind::ReleasePermits => {
                let keep = match call.request() {
                    Some(CallRequest::Work(WorkerCall::ReleasePermits(request))) => request.keep,
                    _ => 1,
                };
                let outcome = Err(failure);
                self.on(AcquisitionEvent::ReleasePermitsReply { keep, outcome });
            }
            CallKind::Release { wait_only } => {
                let outcome = Err(failure);
                self.on(AcquisitionEvent::WorkerReleaseReply { wait_only, outcome });
            }
            CallKind::GiveBack => self.on_release_reply(None),
            CallKind::GrantWaiters | CallKind::Outside => {}
        }
    }

    fn reply<T>(&self, sent: LocalInstant, envelope: Envelope, body: T) -> ScriptReply<T> {
        let counts_from_reply = self.around.fault == Some(ClientFault::CountsLeaseFromReply);
        ScriptReply {
            body,
            envelope,
            sent_at: if counts_from_reply { LOCAL_NOW } else { sent },
            received_at: LOCAL_NOW,
            server: node(self.around.server),
            confirmed: Ok(()),
            in_doubt: Doubt::None,
        }
    }

    fn acquired(&mut self, outcome: ScriptResult<AcquireReply>) {
        let next = self.on(AcquisitionEvent::AcquireReply(outcome));
        self.go_on(next.unwrap_or(RequestStep::CallNow));
    }
}

/// The purpose of a call, answered or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Acquire,
    Renew,
    Ask,
    Downgrade,
    ReleasePermits,
    Release { wait_only: bool },
    GiveBack,
    GrantWaiters,
    Outside,
}

impl CallKind {
    pub fn of(call: &ModelCall) -> CallKind {
        match &call.stage {
            CallStage::Sent(request) | CallStage::Abandoned(request) => match request {
                CallRequest::Acquire(_) => CallKind::Acquire,
                CallRequest::Work(WorkerCall::Renew { .. }) => CallKind::Renew,
                CallRequest::Work(WorkerCall::Holds { .. }) => CallKind::Ask,
                CallRequest::Work(WorkerCall::Downgrade(_)) => CallKind::Downgrade,
                CallRequest::Work(WorkerCall::ReleasePermits(_)) => CallKind::ReleasePermits,
                CallRequest::Work(WorkerCall::Release(ReleaseRequest { wait_only, .. })) => {
                    CallKind::Release { wait_only: *wait_only }
                }
                CallRequest::OwnerRelease => CallKind::GiveBack,
                CallRequest::GrantWaiters => CallKind::GrantWaiters,
                CallRequest::Revoke(_) | CallRequest::Force(_) => CallKind::Outside,
            },
            CallStage::Answered(_, answer) => match answer {
                CallAnswer::Acquired(_) => CallKind::Acquire,
                CallAnswer::Renewed(_) => CallKind::Renew,
                CallAnswer::Asked(_) => CallKind::Ask,
                CallAnswer::Downgraded(_) => CallKind::Downgrade,
                CallAnswer::PermitsReleased { .. } => CallKind::ReleasePermits,
                CallAnswer::Released { wait_only, .. } => {
                    CallKind::Release { wait_only: *wait_only }
                }
                CallAnswer::GivenBack(_) => CallKind::GiveBack,
                CallAnswer::WaitersGranted => CallKind::GrantWaiters,
                CallAnswer::Outside => CallKind::Outside,
            },
        }
    }
}

fn node(server: u8) -> Address {
    Address { host: "server".into(), port: u16::from(server) }
}

pub fn server_name(server: u8) -> String {
    format!("server{server}")
}

/// Whether a live call may still be waited for in a unit: time does not pass beyond that.
pub fn can_wait_a_tick(call: &ModelCall) -> bool {
    call.is_abandoned() || call.until >= LOCAL_NOW.saturating_add(UNIT)
}
