//! The state of an acquisition, and its transitions: a pure function.

use crate::client::acquisition::acquiring::{Acquiring, Turn};
use crate::client::acquisition::event::{Context, Effects, Event, Next};
use crate::client::acquisition::holding::Holding;
use crate::client::acquisition::releasing::Releasing;
use crate::client::request::{LeaseOptions, WaitPolicy};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::protocol::Goal;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// A request is under way, or has a place in the queue.
    Acquiring(Acquiring),
    /// A lease, valid or lost.
    Held(Holding),
    /// Given up here, but not yet known to be gone from the server.
    Releasing(Releasing),
    /// Over.
    Ended,
}

impl State {
    pub(crate) fn new(
        goal: Goal,
        options: &LeaseOptions,
        policy: WaitPolicy,
        now: Moment,
    ) -> State {
        State::Acquiring(Acquiring::new(goal, options, policy, now))
    }

    /// The transition. It changes the state, and returns the effects for the caller to carry out.
    /// An event that does not apply to the state changes nothing.
    #[must_use]
    pub(crate) fn on(&mut self, event: Event, at: &Context<'_>) -> Effects {
        let mut effects = Effects { now: at.now, pump: event.has_more(), ..Effects::default() };
        let fx = &mut effects;
        match (event, &mut *self) {
            (event @ (Event::Call { .. } | Event::Acquired(_) | Event::Wake), _) => {
                self.go_on(event, at, fx);
            }
            (Event::Missed, _) => {
                if let Some(acquiring) = self.acquiring() {
                    acquiring.missed();
                    fx.changed = true;
                }
            }
            (Event::Pushed(pushed), _) => {
                if let Some(acquiring) = self.acquiring() {
                    acquiring.pushed(*pushed, at);
                    fx.changed = true;
                }
            }
            (Event::Leave, State::Acquiring(_)) => self.give_up(at, fx),
            (Event::Leave, State::Held(holding)) => holding.end_wait(at, fx),
            (Event::BeginUse, State::Held(holding)) => holding.begin_use(at, fx),
            (Event::Upgrade(policy), State::Held(holding)) => {
                fx.next = Some(holding.begin_upgrade(policy, at));
            }
            (Event::Upgrade(_), _) => fx.next = Some(Next::Failed(self.over())),
            (Event::Downgrade, State::Held(holding)) => holding.begin_downgrade(at, fx),
            (Event::Shrink { keep }, State::Held(holding)) => holding.begin_shrink(keep, at, fx),
            (Event::Shrunk { keep, outcome }, State::Held(holding)) => {
                holding.shrunk(keep, outcome, at, fx);
            }
            (Event::StayWriter, State::Held(holding)) => holding.stay_writer(fx),
            (Event::Release, State::Held(holding)) => holding.begin_release(at, fx),
            (Event::GivenBack(told), State::Held(holding)) => holding.given_back(told, at, fx),
            (Event::Keep, State::Held(holding)) => holding.leave_alone("kept", at, fx),
            (Event::HandOn, State::Held(holding)) => holding.leave_alone("handed_on", at, fx),
            (Event::Drop, State::Acquiring(_) | State::Held(_)) => self.give_up(at, fx),
            (Event::ClientFailed, State::Acquiring(_)) => self.give_up(at, fx),
            (Event::ClientFailed, State::Held(holding)) => holding.client_failed(at, fx),
            // The answer that grants the ended lease arrives on another connection.
            (Event::Ended { token }, State::Acquiring(acquiring)) => {
                acquiring.ended = acquiring.ended.max(Some(token));
            }
            (Event::Ended { token }, State::Held(holding)) => holding.doubt(token, at, fx),
            (Event::Asked(outcome), State::Held(holding)) => holding.asked(outcome, at, fx),
            (Event::Look, State::Held(holding)) => holding.look(at, fx),
            (Event::Look, State::Releasing(releasing)) => releasing.look(at, fx),
            (Event::Renewed(outcome), State::Held(holding)) => holding.renewed(outcome, at, fx),
            (Event::Downgraded(outcome), State::Held(holding)) => {
                holding.downgraded(outcome, at, fx);
            }
            (Event::Released { only_wait, outcome }, State::Held(holding)) => {
                holding.released(only_wait, outcome, at, fx);
            }
            (Event::Released { only_wait: false, outcome }, State::Releasing(releasing)) => {
                releasing.released(outcome, at, fx);
            }
            _ => {}
        }
        if effects.over {
            *self = State::Ended;
            effects.ended = true;
        }
        effects.is_release = matches!(self, State::Releasing(_));
        effects
    }

    /// Whether the lock is still wanted or held.
    #[cfg(feature = "embedded")]
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self, State::Acquiring(_) | State::Held(_))
    }

    /// The request under way, for a new lease or for an upgrade.
    pub(crate) fn acquiring(&mut self) -> Option<&mut Acquiring> {
        match self {
            State::Acquiring(acquiring) => Some(acquiring),
            State::Held(holding) => holding.upgrading(),
            _ => None,
        }
    }

    /// Continues the request.
    fn go_on(&mut self, event: Event, at: &Context<'_>, fx: &mut Effects) {
        let Some(acquiring) = self.acquiring() else {
            fx.next = Some(Next::Failed(self.over()));
            return;
        };
        let turn = acquiring.on(event, at, fx);
        fx.next = Some(match turn {
            Turn::Next(next) => next,
            Turn::Granted(granted) => match self {
                State::Held(holding) => match holding.become_writer(granted, at, fx) {
                    Some(next) => next,
                    None => Next::Failed(self.over()),
                },
                State::Acquiring(acquiring) => {
                    let ended = acquiring.ended;
                    let (mut holding, next) = Holding::new(acquiring, granted, at);
                    fx.look_by(holding.next_due());
                    if let Some(token) = ended {
                        holding.doubt(token, at, fx);
                    }
                    *self = State::Held(holding);
                    next
                }
                _ => Next::Failed(self.over()),
            },
            Turn::Nothing(next) => {
                self.settle(at, fx);
                next
            }
            Turn::GivenUp(next) => {
                self.leave(at, fx);
                next
            }
            Turn::Revoked => {
                self.settle(at, fx);
                match self {
                    State::Held(holding) if holding.is_held(at.now) => {
                        holding.heard_of_revocation(at, fx);
                        Next::Failed(revoked())
                    }
                    _ => Next::Failed(lost()),
                }
            }
            Turn::Lost(next) => {
                match self {
                    State::Held(holding) => holding.taken(at, fx),
                    _ => self.settle(at, fx),
                }
                next
            }
        });
    }

    /// The request has nothing at the server, so nothing is sent, unless an attempt without an
    /// answer is under way or an earlier wait must be ended.
    fn settle(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match self {
            State::Acquiring(acquiring) if !acquiring.may_be_there() => fx.over = true,
            State::Held(holding) => holding.settle_upgrade(at, fx),
            _ => self.leave(at, fx),
        }
    }

    /// Releases what the request may have at the server.
    fn leave(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match self {
            State::Acquiring(_) => self.give_up(at, fx),
            State::Held(holding) => holding.end_wait(at, fx),
            _ => {}
        }
    }

    /// Leaves the release to the worker.
    fn give_up(&mut self, at: &Context<'_>, fx: &mut Effects) {
        let (in_doubt, over) = match self {
            State::Acquiring(acquiring) => (acquiring.in_doubt(), acquiring.over(at)),
            State::Held(holding) => {
                holding.expire(at, fx);
                holding.note_end("dropped", at.now, fx);
                (holding.in_doubt(), holding.over(at.now))
            }
            State::Releasing(_) | State::Ended => return,
        };
        *self = State::Releasing(Releasing::new(in_doubt, over, at.now));
        fx.ended = true;
        fx.look_by(at.now);
    }

    /// The error of a request that is no longer wanted.
    fn over(&self) -> Error {
        match self {
            State::Held(_) => lost(),
            _ => Error::new(ErrorKind::Cancelled, "the client is shut down"),
        }
    }
}

pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::Lost, "the lease is lost")
}

pub(super) fn revoked() -> Error {
    Error::new(ErrorKind::Revoked, "the lease was revoked, and ends at its deadline")
}
