//! The state of an acquisition, and its transitions: a pure function.

use crate::acquisition::acquire_state::{AcquireState, AcquireTransition};
use crate::acquisition::error::AcquisitionError;
use crate::acquisition::event::{AcquisitionEvent, Context, Effects, RequestStep};
use crate::acquisition::held_lease::HeldLease;
use crate::acquisition::lease_options::{LeaseOptions, WaitPolicy};
use crate::acquisition::pending_release::PendingRelease;
use crate::protocol::{AcquireKind, ReleaseRequest};
use crate::time::LocalInstant;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AcquisitionState {
    /// A request is under way, or has a place in the queue.
    Requesting(AcquireState),
    /// A lease, valid or lost.
    Held(HeldLease),
    /// Given up here, but not yet known to be gone from the server.
    Releasing(PendingRelease),
    /// Over.
    Ended,
}

impl AcquisitionState {
    pub fn new(
        goal: AcquireKind,
        options: &LeaseOptions,
        policy: WaitPolicy,
        now: LocalInstant,
    ) -> AcquisitionState {
        AcquisitionState::Requesting(AcquireState::new(goal, options, policy, now))
    }

    /// Whether a request is under way that the server does not answer.
    pub fn is_server_silent(&self, now: LocalInstant) -> bool {
        matches!(self, AcquisitionState::Requesting(request) if request.is_server_silent(now))
    }

    /// The transition. It changes the state, and returns the effects for the caller to carry out.
    /// An event that does not apply to the state changes nothing.
    #[must_use]
    pub fn apply(&mut self, event: AcquisitionEvent, ctx: &Context<'_>) -> Effects {
        let mut all_effects =
            Effects { now: ctx.now, grant_waiters: event.has_more_work(), ..Effects::default() };
        let effects = &mut all_effects;
        match event {
            AcquisitionEvent::Call { .. }
            | AcquisitionEvent::AcquireReply(_)
            | AcquisitionEvent::Wake => self.apply_to_request(event, ctx, effects),
            AcquisitionEvent::PushMissed => {
                if let Some(request) = self.request() {
                    request.on_push_missed();
                    effects.notify_waiters = true;
                }
            }
            AcquisitionEvent::GrantPushed(pushed) => {
                if let Some(request) = self.request() {
                    request.on_pushed(*pushed, ctx);
                    effects.notify_waiters = true;
                }
            }
            AcquisitionEvent::Abandon => self.schedule_release(ctx, effects),
            AcquisitionEvent::Upgrade(_) if !matches!(self, AcquisitionState::Held(_)) => {
                effects.next_step = Some(RequestStep::Failed(self.end_error()));
            }
            event => match self {
                AcquisitionState::Requesting(request) => match event {
                    AcquisitionEvent::RequestEnded | AcquisitionEvent::ClientFailed => {
                        self.schedule_release(ctx, effects)
                    }
                    AcquisitionEvent::Withdraw => effects.deregister = true,
                    // The answer that grants the ended lease arrives on another connection.
                    AcquisitionEvent::ForceReleased { token } => {
                        request.force_released_token =
                            request.force_released_token.max(Some(token));
                    }
                    _ => {}
                },
                AcquisitionState::Held(held_lease) => held_lease.apply(event, ctx, effects),
                AcquisitionState::Releasing(releasing) => match event {
                    AcquisitionEvent::TimerFired => releasing.on_timer(ctx, effects),
                    AcquisitionEvent::WorkerReleaseReply { wait_only: false, outcome } => {
                        releasing.on_reply(outcome, ctx, effects);
                    }
                    _ => {}
                },
                AcquisitionState::Ended => {}
            },
        }
        if all_effects.deregister {
            *self = AcquisitionState::Ended;
            all_effects.notify_end = true;
        }
        all_effects.is_release = matches!(self, AcquisitionState::Releasing(_));
        all_effects
    }

    /// Whether the lock is still wanted or held.
    pub fn is_live(&self) -> bool {
        matches!(self, AcquisitionState::Requesting(_) | AcquisitionState::Held(_))
    }

    /// The request under way, for a new lease or for an upgrade.
    pub fn request(&mut self) -> Option<&mut AcquireState> {
        match self {
            AcquisitionState::Requesting(request) => Some(request),
            AcquisitionState::Held(held_lease) => held_lease.upgrade_mut(),
            _ => None,
        }
    }

    /// Continues the request.
    fn apply_to_request(
        &mut self,
        event: AcquisitionEvent,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        let Some(request) = self.request() else {
            effects.next_step = Some(RequestStep::Failed(self.end_error()));
            return;
        };
        let turn = request.apply(event, ctx, effects);
        effects.next_step = Some(match turn {
            AcquireTransition::Continue(next) => next,
            AcquireTransition::Granted(granted) => match self {
                AcquisitionState::Held(held_lease) => {
                    match held_lease.finish_upgrade(granted, ctx, effects) {
                        Some(next) => next,
                        None => RequestStep::Failed(self.end_error()),
                    }
                }
                AcquisitionState::Requesting(request) => {
                    let ended = request.force_released_token;
                    let (mut held_lease, next) = HeldLease::new(request, granted, ctx);
                    effects.wake_worker_by(held_lease.next_due());
                    if let Some(token) = ended {
                        held_lease.query_after_force_release(token, ctx, effects);
                    }
                    *self = AcquisitionState::Held(held_lease);
                    next
                }
                _ => RequestStep::Failed(self.end_error()),
            },
            AcquireTransition::EndedClean(next) => {
                self.end_or_release(ctx, effects);
                next
            }
            AcquireTransition::EndedInDoubt(next) => {
                self.abandon_request(ctx, effects);
                next
            }
            AcquireTransition::LeaseRevoked => {
                self.end_or_release(ctx, effects);
                match self {
                    AcquisitionState::Held(held_lease) if held_lease.is_held(ctx.now) => {
                        held_lease.on_revocation_seen(ctx, effects);
                        RequestStep::Failed(AcquisitionError::LeaseRevoked)
                    }
                    _ => RequestStep::Failed(AcquisitionError::LeaseLost),
                }
            }
            AcquireTransition::LeaseLost(next) => {
                match self {
                    AcquisitionState::Held(held_lease) => held_lease.on_not_held(ctx, effects),
                    _ => self.end_or_release(ctx, effects),
                }
                next
            }
        });
    }

    /// The request has nothing at the server, so nothing is sent, unless an attempt without an
    /// answer is under way or an earlier wait must be ended.
    fn end_or_release(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        match self {
            AcquisitionState::Requesting(request) if !request.may_be_recorded() => {
                effects.deregister = true
            }
            AcquisitionState::Held(held_lease) => held_lease.settle_upgrade(ctx, effects),
            _ => self.abandon_request(ctx, effects),
        }
    }

    /// Releases what the request may have at the server.
    fn abandon_request(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        match self {
            AcquisitionState::Requesting(_) => self.schedule_release(ctx, effects),
            AcquisitionState::Held(held_lease) => held_lease.schedule_end_wait(ctx, effects),
            _ => {}
        }
    }

    /// Leaves the release to the worker.
    fn schedule_release(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        let (release, in_doubt, over) = match self {
            AcquisitionState::Requesting(request) => {
                (ReleaseRequest::ALL, request.in_doubt(), request.server_state_ends_at(ctx))
            }
            AcquisitionState::Held(held_lease) => {
                held_lease.expire(ctx, effects);
                held_lease.record_end("dropped", ctx.now, effects);
                let over = held_lease.server_state_ends_at(ctx.now);
                (held_lease.release_request(), held_lease.in_doubt(), over)
            }
            AcquisitionState::Releasing(_) | AcquisitionState::Ended => return,
        };
        *self = AcquisitionState::Releasing(PendingRelease::new(release, in_doubt, over, ctx.now));
        effects.notify_end = true;
        effects.wake_worker_by(ctx.now);
    }

    /// The error of a request that is no longer wanted.
    fn end_error(&self) -> AcquisitionError {
        match self {
            AcquisitionState::Held(_) => AcquisitionError::LeaseLost,
            _ => AcquisitionError::ShutDown,
        }
    }
}

impl HeldLease {
    /// The transition for an event of a holder or of the worker.
    fn apply(&mut self, event: AcquisitionEvent, ctx: &Context<'_>, effects: &mut Effects) {
        match event {
            AcquisitionEvent::RequestEnded => self.schedule_end_wait(ctx, effects),
            AcquisitionEvent::BeginUse => self.begin_use(ctx, effects),
            AcquisitionEvent::Upgrade(policy) => {
                effects.next_step = Some(self.begin_upgrade(policy, ctx));
            }
            AcquisitionEvent::Downgrade => self.begin_downgrade(ctx, effects),
            AcquisitionEvent::CancelAtLeast => self.cancel_at_least(),
            AcquisitionEvent::ReleasePermits { keep } => {
                self.begin_release_permits(keep, ctx, effects)
            }
            AcquisitionEvent::CancelDowngrade => self.cancel_downgrade(effects),
            AcquisitionEvent::ReleaseStarted => self.begin_release(ctx, effects),
            AcquisitionEvent::ReleaseReply(reply) => self.on_release_reply(reply, ctx, effects),
            AcquisitionEvent::LetExpire => self.stop_tracking("let_expire", ctx, effects),
            AcquisitionEvent::Transfer => self.stop_tracking("transferred", ctx, effects),
            AcquisitionEvent::ClientFailed => self.client_failed(ctx, effects),
            AcquisitionEvent::ForceReleased { token } => {
                self.query_after_force_release(token, ctx, effects)
            }
            AcquisitionEvent::TimerFired => self.on_timer(ctx, effects),
            AcquisitionEvent::HoldsReply(outcome) => self.on_holds_reply(outcome, ctx, effects),
            AcquisitionEvent::RenewReply(outcome) => self.on_renew_outcome(outcome, ctx, effects),
            AcquisitionEvent::DowngradeReply(outcome) => {
                self.on_downgrade_reply(outcome, ctx, effects)
            }
            AcquisitionEvent::ReleasePermitsReply { keep, outcome } => {
                self.on_release_permits_reply(keep, outcome, ctx, effects)
            }
            AcquisitionEvent::WorkerReleaseReply { wait_only, outcome } => {
                self.on_partial_release_reply(wait_only, outcome, ctx, effects)
            }
            _ => {}
        }
    }
}
