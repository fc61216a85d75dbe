//! The state of an acquisition, and its transitions: a pure function.

use crate::client::acquisition::acquire_state::{AcquireState, AcquireTransition};
use crate::client::acquisition::event::{AcquisitionEvent, Context, Effects, RequestStep};
use crate::client::acquisition::held_lease::HeldLease;
use crate::client::acquisition::pending_release::PendingRelease;
use crate::client::lease_options::{LeaseOptions, WaitPolicy};
use crate::clock::LocalInstant;
use crate::error::{Error, ErrorKind};
use crate::protocol::AcquireKind;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AcquisitionState {
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
    pub(crate) fn new(
        goal: AcquireKind,
        options: &LeaseOptions,
        policy: WaitPolicy,
        now: LocalInstant,
    ) -> AcquisitionState {
        AcquisitionState::Requesting(AcquireState::new(goal, options, policy, now))
    }

    /// The transition. It changes the state, and returns the effects for the caller to carry out.
    /// An event that does not apply to the state changes nothing.
    #[must_use]
    pub(crate) fn apply(&mut self, event: AcquisitionEvent, at: &Context<'_>) -> Effects {
        let mut effects =
            Effects { now: at.now, pump: event.has_pump_work(), ..Effects::default() };
        let fx = &mut effects;
        match (event, &mut *self) {
            (
                event @ (AcquisitionEvent::Call { .. }
                | AcquisitionEvent::AcquireReply(_)
                | AcquisitionEvent::Wake),
                _,
            ) => {
                self.apply_to_request(event, at, fx);
            }
            (AcquisitionEvent::PushMissed, _) => {
                if let Some(acquiring) = self.acquiring() {
                    acquiring.on_push_missed();
                    fx.notify_waiters = true;
                }
            }
            (AcquisitionEvent::GrantPushed(pushed), _) => {
                if let Some(acquiring) = self.acquiring() {
                    acquiring.on_pushed(*pushed, at);
                    fx.notify_waiters = true;
                }
            }
            (AcquisitionEvent::RequestEnded, AcquisitionState::Requesting(_)) => {
                self.schedule_release(at, fx)
            }
            (AcquisitionEvent::RequestEnded, AcquisitionState::Held(holding)) => {
                holding.schedule_end_wait(at, fx)
            }
            (AcquisitionEvent::BeginUse, AcquisitionState::Held(holding)) => {
                holding.begin_use(at, fx)
            }
            (AcquisitionEvent::Upgrade(policy), AcquisitionState::Held(holding)) => {
                fx.next_step = Some(holding.begin_upgrade(policy, at));
            }
            (AcquisitionEvent::Upgrade(_), _) => {
                fx.next_step = Some(RequestStep::Failed(self.end_error()))
            }
            (AcquisitionEvent::Downgrade, AcquisitionState::Held(holding)) => {
                holding.begin_downgrade(at, fx)
            }
            (AcquisitionEvent::ReleasePermits { keep }, AcquisitionState::Held(holding)) => {
                holding.begin_release_permits(keep, at, fx)
            }
            (
                AcquisitionEvent::ReleasePermitsReply { keep, outcome },
                AcquisitionState::Held(holding),
            ) => {
                holding.on_release_permits_reply(keep, outcome, at, fx);
            }
            (AcquisitionEvent::CancelDowngrade, AcquisitionState::Held(holding)) => {
                holding.cancel_downgrade(fx)
            }
            (AcquisitionEvent::ReleaseStarted, AcquisitionState::Held(holding)) => {
                holding.begin_release(at, fx)
            }
            (AcquisitionEvent::ReleaseReply(told), AcquisitionState::Held(holding)) => {
                holding.on_release_reply(told, at, fx)
            }
            (AcquisitionEvent::LetExpire, AcquisitionState::Held(holding)) => {
                holding.stop_tracking("kept", at, fx)
            }
            (AcquisitionEvent::Transfer, AcquisitionState::Held(holding)) => {
                holding.stop_tracking("handed_on", at, fx)
            }
            (
                AcquisitionEvent::Abandon,
                AcquisitionState::Requesting(_) | AcquisitionState::Held(_),
            ) => self.schedule_release(at, fx),
            (AcquisitionEvent::ClientFailed, AcquisitionState::Requesting(_)) => {
                self.schedule_release(at, fx)
            }
            (AcquisitionEvent::ClientFailed, AcquisitionState::Held(holding)) => {
                holding.client_failed(at, fx)
            }
            // The answer that grants the ended lease arrives on another connection.
            (
                AcquisitionEvent::ForceReleased { token },
                AcquisitionState::Requesting(acquiring),
            ) => {
                acquiring.force_released_token = acquiring.force_released_token.max(Some(token));
            }
            (AcquisitionEvent::ForceReleased { token }, AcquisitionState::Held(holding)) => {
                holding.query_after_force_release(token, at, fx)
            }
            (AcquisitionEvent::HoldsReply(outcome), AcquisitionState::Held(holding)) => {
                holding.on_holds_reply(outcome, at, fx)
            }
            (AcquisitionEvent::TimerFired, AcquisitionState::Held(holding)) => {
                holding.on_timer(at, fx)
            }
            (AcquisitionEvent::TimerFired, AcquisitionState::Releasing(releasing)) => {
                releasing.on_timer(at, fx)
            }
            (AcquisitionEvent::RenewReply(outcome), AcquisitionState::Held(holding)) => {
                holding.on_renew_outcome(outcome, at, fx)
            }
            (AcquisitionEvent::DowngradeReply(outcome), AcquisitionState::Held(holding)) => {
                holding.on_downgrade_reply(outcome, at, fx);
            }
            (
                AcquisitionEvent::WorkerReleaseReply { only_wait, outcome },
                AcquisitionState::Held(holding),
            ) => {
                holding.on_partial_release_reply(only_wait, outcome, at, fx);
            }
            (
                AcquisitionEvent::WorkerReleaseReply { only_wait: false, outcome },
                AcquisitionState::Releasing(releasing),
            ) => {
                releasing.on_reply(outcome, at, fx);
            }
            _ => {}
        }
        if effects.deregister {
            *self = AcquisitionState::Ended;
            effects.notify_end = true;
        }
        effects.is_release = matches!(self, AcquisitionState::Releasing(_));
        effects
    }

    /// Whether the lock is still wanted or held.
    #[cfg(feature = "embedded")]
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, AcquisitionState::Requesting(_) | AcquisitionState::Held(_))
    }

    /// The request under way, for a new lease or for an upgrade.
    pub(crate) fn acquiring(&mut self) -> Option<&mut AcquireState> {
        match self {
            AcquisitionState::Requesting(acquiring) => Some(acquiring),
            AcquisitionState::Held(holding) => holding.upgrade_mut(),
            _ => None,
        }
    }

    /// Continues the request.
    fn apply_to_request(&mut self, event: AcquisitionEvent, at: &Context<'_>, fx: &mut Effects) {
        let Some(acquiring) = self.acquiring() else {
            fx.next_step = Some(RequestStep::Failed(self.end_error()));
            return;
        };
        let turn = acquiring.apply(event, at, fx);
        fx.next_step = Some(match turn {
            AcquireTransition::Continue(next) => next,
            AcquireTransition::Granted(granted) => match self {
                AcquisitionState::Held(holding) => match holding.finish_upgrade(granted, at, fx) {
                    Some(next) => next,
                    None => RequestStep::Failed(self.end_error()),
                },
                AcquisitionState::Requesting(acquiring) => {
                    let ended = acquiring.force_released_token;
                    let (mut holding, next) = HeldLease::new(acquiring, granted, at);
                    fx.wake_worker_by(holding.next_due());
                    if let Some(token) = ended {
                        holding.query_after_force_release(token, at, fx);
                    }
                    *self = AcquisitionState::Held(holding);
                    next
                }
                _ => RequestStep::Failed(self.end_error()),
            },
            AcquireTransition::EndedClean(next) => {
                self.end_or_release(at, fx);
                next
            }
            AcquireTransition::EndedInDoubt(next) => {
                self.abandon_request(at, fx);
                next
            }
            AcquireTransition::LeaseRevoked => {
                self.end_or_release(at, fx);
                match self {
                    AcquisitionState::Held(holding) if holding.is_held(at.now) => {
                        holding.on_revocation_seen(at, fx);
                        RequestStep::Failed(lease_revoked_error())
                    }
                    _ => RequestStep::Failed(lease_lost_error()),
                }
            }
            AcquireTransition::LeaseLost(next) => {
                match self {
                    AcquisitionState::Held(holding) => holding.on_not_held(at, fx),
                    _ => self.end_or_release(at, fx),
                }
                next
            }
        });
    }

    /// The request has nothing at the server, so nothing is sent, unless an attempt without an
    /// answer is under way or an earlier wait must be ended.
    fn end_or_release(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match self {
            AcquisitionState::Requesting(acquiring) if !acquiring.may_be_recorded() => {
                fx.deregister = true
            }
            AcquisitionState::Held(holding) => holding.settle_upgrade(at, fx),
            _ => self.abandon_request(at, fx),
        }
    }

    /// Releases what the request may have at the server.
    fn abandon_request(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match self {
            AcquisitionState::Requesting(_) => self.schedule_release(at, fx),
            AcquisitionState::Held(holding) => holding.schedule_end_wait(at, fx),
            _ => {}
        }
    }

    /// Leaves the release to the worker.
    fn schedule_release(&mut self, at: &Context<'_>, fx: &mut Effects) {
        let (in_doubt, over) = match self {
            AcquisitionState::Requesting(acquiring) => {
                (acquiring.in_doubt(), acquiring.server_state_ends_at(at))
            }
            AcquisitionState::Held(holding) => {
                holding.expire(at, fx);
                holding.note_end("dropped", at.now, fx);
                (holding.in_doubt(), holding.server_state_ends_at(at.now))
            }
            AcquisitionState::Releasing(_) | AcquisitionState::Ended => return,
        };
        *self = AcquisitionState::Releasing(PendingRelease::new(in_doubt, over, at.now));
        fx.notify_end = true;
        fx.wake_worker_by(at.now);
    }

    /// The error of a request that is no longer wanted.
    fn end_error(&self) -> Error {
        match self {
            AcquisitionState::Held(_) => lease_lost_error(),
            _ => Error::new(ErrorKind::Cancelled, "the client is shut down"),
        }
    }
}

pub(crate) fn lease_lost_error() -> Error {
    Error::new(ErrorKind::Lost, "the lease is lost")
}

pub(super) fn lease_revoked_error() -> Error {
    Error::new(ErrorKind::Revoked, "the lease was revoked, and ends at its deadline")
}
