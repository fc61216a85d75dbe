//! One client: its program, and its real acquisition, driven as `client::acquire` and
//! `client::worker` drive it.

use crate::backend::Address;
use crate::checker::cached_hold::ModelCachedLease;
use crate::checker::call::{
    CallAnswer, CallRequest, CallStage, ModelCall, ModelMessage, ModelMessageKind,
};
use crate::checker::program::{AcquireProgram, LeaseChange};
use crate::checker::time::{AgingVisitor, LOCAL_NOW, SERVER_NOW, TokenVisitor, UNIT, server_ms};
use crate::client::acquisition::time_visitor::TimeVisitor;
use crate::client::acquisition::{
    AcquisitionEvent, AcquisitionState, Context, GrantPush, RequestStep, WorkerCall,
};
use crate::client::config::ClientConfig;
use crate::client::script_result::{ScriptCallError, ScriptReply, ScriptResult};
use crate::clock::LocalInstant;
use crate::protocol::{
    AcquireRequest, Envelope, Grant, LockKind, LockMode, ReleaseReply, ReleaseRequest,
};
use crate::router::{CallError, CallErrorKind, ClockBounds};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Copy)]
pub(super) enum ClientLiveness {
    Alive,
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelClient {
    pub(super) life: ClientLiveness,
    /// It is subscribed at the server.
    pub(super) is_subscribed: bool,
    /// The index of the acquisition in the program, and how many of its changes were made or given
    /// up.
    pub(super) step: u8,
    changes: u8,
    pub(super) state: Option<AcquisitionState>,
    request: RequestPhase,
    /// The request is for an upgrade.
    upgrades: bool,
    /// When the worker must look at it.
    worker_wake: Option<LocalInstant>,
    /// Its cached lease, and what pushes have said about other clients that want it. A push can
    /// come before the grant.
    pub(super) hold: Option<ModelCachedLease>,
    pub(super) recall: Option<LockMode>,
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
pub(super) enum ClientFault {
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
}

/// The surroundings of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientEnvironment<'a> {
    pub(super) settings: &'a ClientConfig,
    pub(super) program: &'a [AcquireProgram],
    pub(super) server: u8,
    pub(super) fault: Option<ClientFault>,
}

/// The consequences of an event.
#[derive(Debug, Default)]
pub(super) struct ClientOutput {
    pub(super) calls: Vec<ModelCall>,
    pub(super) pump: bool,
}

/// A client with its surroundings, for the time of one event.
pub(super) struct ClientTurn<'a> {
    pub(super) client: ModelClient,
    pub(super) around: ClientEnvironment<'a>,
    pub(super) follows: ClientOutput,
}

impl ModelClient {
    pub(super) fn new() -> ModelClient {
        ModelClient {
            life: ClientLiveness::Alive,
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

    pub(super) fn is_alive(&self) -> bool {
        self.life == ClientLiveness::Alive
    }

    /// It has nothing left to do.
    pub(super) fn is_done(&self, program: &[AcquireProgram]) -> bool {
        !self.is_alive() || (self.state.is_none() && usize::from(self.step) >= program.len())
    }

    pub(super) fn may_start(&self, program: &[AcquireProgram]) -> bool {
        self.is_alive() && self.state.is_none() && usize::from(self.step) < program.len()
    }

    pub(super) fn must_wake(&self) -> bool {
        matches!(self.request, RequestPhase::Waiting(until, _) if until <= LOCAL_NOW)
    }

    pub(super) fn has_due_worker_timer(&self) -> bool {
        self.worker_wake.is_some_and(|look| look <= LOCAL_NOW)
    }

    /// A request is under way that its caller can drop.
    pub(super) fn may_cancel(&self) -> bool {
        !matches!(self.request, RequestPhase::Resting | RequestPhase::GivingBack)
    }

    /// Its guard is gone and has requested the release.
    pub(super) fn is_releasing_by_call(&self) -> bool {
        self.request == RequestPhase::GivingBack
    }

    /// It has a guard that its owner can drop.
    pub(super) fn may_drop(&self) -> bool {
        self.is_idle()
            && self.hold.is_none()
            && matches!(self.state, Some(AcquisitionState::Held(_)))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.request == RequestPhase::Resting
    }

    /// Its owner can release it by a call.
    pub(super) fn can_release_by_call(&self, program: &[AcquireProgram]) -> bool {
        self.may_drop()
            && program.get(usize::from(self.step)).is_some_and(|wish| wish.releases_by_call)
    }

    /// The change that its owner can make next.
    pub(super) fn next_change(&self, program: &[AcquireProgram]) -> Option<LeaseChange> {
        let wish = program.get(usize::from(self.step))?;
        let next = wish.changes.get(usize::from(self.changes)).copied()?;
        let holds = matches!(&self.state, Some(AcquisitionState::Held(holding)) if holding.is_held(LOCAL_NOW));
        (holds && self.request == RequestPhase::Resting).then_some(next)
    }

    /// Only its release remains.
    pub(super) fn is_releasing(&self) -> bool {
        matches!(self.state, None | Some(AcquisitionState::Releasing(_) | AcquisitionState::Ended))
    }

    /// All tokens that it knows.
    pub(super) fn tokens(&self) -> Vec<u64> {
        let mut all = Vec::new();
        self.clone().visit(&mut TokenVisitor(|token: &mut u64| all.push(*token)));
        all
    }

    pub(super) fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        self.state.iter_mut().for_each(|state| state.visit(visitor));
        self.hold.iter_mut().for_each(|hold| hold.visit(visitor));
    }

    pub(super) fn crash(&mut self) {
        *self = ModelClient {
            life: ClientLiveness::Crashed,
            is_subscribed: false,
            step: self.step,
            ..ModelClient::new()
        };
    }

    pub(super) fn grow_older(&mut self, by: &mut AgingVisitor) {
        if let RequestPhase::Waiting(until, _) = &mut self.request {
            by.visit_deadline(until);
        }
        self.worker_wake.iter_mut().for_each(|look| by.visit_deadline(look));
        self.state.iter_mut().for_each(|state| state.visit(by));
    }
}

impl ClientTurn<'_> {
    pub(super) fn on(&mut self, event: AcquisitionEvent) -> Option<RequestStep> {
        let state = self.client.state.as_mut()?;
        let settings = self.around.settings;
        let kind = LockKind::ReadWrite;
        let context = Context { now: LOCAL_NOW, jitter: 0.0, settings, lock_kind: kind };
        let effects = state.apply(event, &context);
        self.follows.pump |= effects.pump;
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
            let ModelClient { is_subscribed: hears, step: at, .. } = self.client;
            self.client = ModelClient { is_subscribed: hears, step: at + 1, ..ModelClient::new() };
        }
    }

    // The task of a request.

    pub(super) fn start(&mut self) {
        let wish = self.around.program[usize::from(self.client.step)];
        self.client.state = Some(wish.request(self.around.settings));
        self.go_on(RequestStep::CallNow);
    }

    pub(super) fn change(&mut self, change: LeaseChange) {
        match change {
            LeaseChange::Upgrade => self.upgrade(),
            LeaseChange::Downgrade => {
                self.client.changes += 1;
                self.on(AcquisitionEvent::Downgrade);
            }
            LeaseChange::Shrink(keep) => {
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

    pub(super) fn wake(&mut self) {
        // So that what it does now wakes nothing.
        let RequestPhase::Waiting(_, joined) = self.client.request else { return };
        self.client.request = RequestPhase::Calling(joined);
        let next = self.on(AcquisitionEvent::Wake);
        self.go_on(next.unwrap_or(RequestStep::CallNow));
    }

    /// The caller drops its request.
    pub(super) fn cancel(&mut self) {
        self.finish();
    }

    pub(super) fn drop_guard(&mut self) {
        if self.around.fault == Some(ClientFault::NeverReleases) {
            self.client.state = Some(AcquisitionState::Ended);
            return self.forget();
        }
        self.on(AcquisitionEvent::Abandon);
    }

    /// The holder's own release, as a guard does it.
    pub(super) fn release_by_call(&mut self) {
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

    pub(super) fn join(&mut self) {
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
        self.follows.calls.push(ModelCall {
            acquisition: self.client.step,
            sent: LOCAL_NOW,
            until,
            not_after: server_ms(until),
            stage: CallStage::Sent(CallRequest::Acquire(acquire)),
        });
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

    pub(super) fn look(&mut self) {
        self.client.worker_wake = None;
        self.on(AcquisitionEvent::TimerFired);
    }

    pub(super) fn send(&mut self, request: CallRequest) {
        let latest = LOCAL_NOW.saturating_add(self.around.settings.call_timeout);
        let until = match request {
            CallRequest::Work(WorkerCall::Renew { ends, .. } | WorkerCall::Holds { ends }) => {
                latest.min(ends)
            }
            _ => latest,
        };
        let stage = CallStage::Sent(request);
        let acquisition = self.client.step;
        self.follows.calls.push(ModelCall {
            acquisition,
            sent: LOCAL_NOW,
            until,
            not_after: 0,
            stage,
        });
    }

    // What comes from the server.

    /// If the acquisition is over, a message matters only for what is left to release.
    pub(super) fn on_message(&mut self, message: &ModelMessage, is_over: bool) {
        let ModelMessage { token, deadline, now, more, .. } = *message;
        self.follows.pump |= more;
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
        let mut bound = ClockBounds::default();
        bound.observe(LOCAL_NOW, LOCAL_NOW, SERVER_NOW);
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
    pub(super) fn answered(&mut self, sent: LocalInstant, envelope: Envelope, answer: CallAnswer) {
        let around = self.around;
        match answer {
            CallAnswer::Acquired(what) => {
                let told = script_reply(around, sent, envelope, what);
                self.acquired(Ok(told));
            }
            CallAnswer::Renewed(what) => {
                self.contacted();
                self.on(AcquisitionEvent::RenewReply(Ok(script_reply(
                    around, sent, envelope, what,
                ))));
            }
            CallAnswer::Asked(what) => {
                self.on(AcquisitionEvent::HoldsReply(Ok(script_reply(
                    around, sent, envelope, what,
                ))));
            }
            CallAnswer::Downgraded(what) => {
                self.on(AcquisitionEvent::DowngradeReply(Ok(script_reply(
                    around, sent, envelope, what,
                ))));
            }
            CallAnswer::Shrunk { keep, lease } => {
                let outcome = Ok(script_reply(around, sent, envelope, lease));
                self.on(AcquisitionEvent::ReleasePermitsReply { keep, outcome });
            }
            CallAnswer::Released { only_wait, ended } => {
                let outcome = Ok(script_reply(around, sent, envelope, ended));
                self.on(AcquisitionEvent::WorkerReleaseReply { only_wait, outcome });
            }
            CallAnswer::GivenBack(ended) => {
                let told = script_reply(around, sent, envelope, ended);
                self.on_release_reply(Some(told));
            }
            CallAnswer::Pumped => self.follows.pump |= envelope.has_pump_work,
            CallAnswer::Outside => {}
        }
    }

    /// A call has failed.
    pub(super) fn failed(&mut self, call: &ModelCall) {
        let failure = |in_doubt| {
            let reason = CallErrorKind::TimedOut(None);
            ScriptCallError::Call(CallError {
                kind: reason,
                in_doubt: Some(in_doubt),
                last_error: None,
            })
        };
        let failure = failure(call.not_after);
        match CallKind::of(call) {
            CallKind::Acquire => self.acquired(Err(failure)),
            CallKind::Renew => {
                self.contacted();
                self.on(AcquisitionEvent::RenewReply(Err(failure)));
            }
            CallKind::Ask => drop(self.on(AcquisitionEvent::HoldsReply(Err(failure)))),
            CallKind::Downgrade => drop(self.on(AcquisitionEvent::DowngradeReply(Err(failure)))),
            CallKind::Shrink => {
                let keep = match call.request() {
                    Some(CallRequest::Work(WorkerCall::ReleasePermits(shrink))) => shrink.keep,
                    _ => 1,
                };
                drop(
                    self.on(AcquisitionEvent::ReleasePermitsReply { keep, outcome: Err(failure) }),
                );
            }
            CallKind::Release { only_wait } => {
                drop(
                    self.on(AcquisitionEvent::WorkerReleaseReply {
                        only_wait,
                        outcome: Err(failure),
                    }),
                );
            }
            CallKind::GiveBack => self.on_release_reply(None),
            CallKind::Pump | CallKind::Outside => {}
        }
    }

    fn acquired(&mut self, outcome: ScriptResult<crate::protocol::AcquireReply>) {
        let next = self.on(AcquisitionEvent::AcquireReply(outcome));
        self.go_on(next.unwrap_or(RequestStep::CallNow));
    }
}

/// The purpose of a call, answered or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Acquire,
    Renew,
    Ask,
    Downgrade,
    Shrink,
    Release { only_wait: bool },
    GiveBack,
    Pump,
    Outside,
}

impl CallKind {
    pub(super) fn of(call: &ModelCall) -> CallKind {
        match &call.stage {
            CallStage::Sent(request) | CallStage::Abandoned(request) => match request {
                CallRequest::Acquire(_) => CallKind::Acquire,
                CallRequest::Work(WorkerCall::Renew { .. }) => CallKind::Renew,
                CallRequest::Work(WorkerCall::Holds { .. }) => CallKind::Ask,
                CallRequest::Work(WorkerCall::Downgrade(_)) => CallKind::Downgrade,
                CallRequest::Work(WorkerCall::ReleasePermits(_)) => CallKind::Shrink,
                CallRequest::Work(WorkerCall::Release(ReleaseRequest { wait_only: only_wait })) => {
                    CallKind::Release { only_wait: *only_wait }
                }
                CallRequest::OwnerRelease => CallKind::GiveBack,
                CallRequest::Pump => CallKind::Pump,
                CallRequest::Revoke(_) | CallRequest::Force(_) => CallKind::Outside,
            },
            CallStage::Answered(_, answer) => match answer {
                CallAnswer::Acquired(_) => CallKind::Acquire,
                CallAnswer::Renewed(_) => CallKind::Renew,
                CallAnswer::Asked(_) => CallKind::Ask,
                CallAnswer::Downgraded(_) => CallKind::Downgrade,
                CallAnswer::Shrunk { .. } => CallKind::Shrink,
                CallAnswer::Released { only_wait, .. } => {
                    CallKind::Release { only_wait: *only_wait }
                }
                CallAnswer::GivenBack(_) => CallKind::GiveBack,
                CallAnswer::Pumped => CallKind::Pump,
                CallAnswer::Outside => CallKind::Outside,
            },
        }
    }
}

fn script_reply<T>(
    around: ClientEnvironment<'_>,
    sent: LocalInstant,
    envelope: Envelope,
    what: T,
) -> ScriptReply<T> {
    let node = node(around.server);
    let sent = match around.fault {
        Some(ClientFault::CountsLeaseFromReply) => LOCAL_NOW,
        _ => sent,
    };
    ScriptReply {
        body: what,
        envelope,
        sent_at: sent,
        received_at: LOCAL_NOW,
        server: node,
        replicas_confirmed: 0,
        in_doubt: None,
    }
}

fn node(server: u8) -> Address {
    Address { host: "server".into(), port: u16::from(server) }
}

pub(super) fn server_name(server: u8) -> String {
    format!("server{server}")
}

/// Whether a live call may still be waited for in a unit: time does not pass beyond that.
pub(super) fn can_wait_a_tick(call: &ModelCall) -> bool {
    call.is_abandoned() || call.until >= LOCAL_NOW.saturating_add(UNIT)
}
