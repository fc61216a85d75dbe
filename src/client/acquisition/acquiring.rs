//! A request under way: when it calls, how it handles the answer, and when it wakes.

use std::time::Duration;

use crate::client::acquisition::event::{By, Context, Effects, Event, Next, Note, Pushed};
use crate::client::acquisition::state::lost;
use crate::client::deadline;
use crate::client::in_doubt::{self, InDoubt};
use crate::client::reply::{Failure, Outcome, Told};
use crate::client::request::{LeaseOptions, WaitPolicy};
use crate::client::settings::BRIEF;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::node::{Address, ServerError};
use crate::protocol::{
    Acquire, Acquired, Envelope, Goal, Grant, Kind, Mode, Wait, is_before_script,
};
use crate::router::{CallError, Reason};

/// The maximum repetitions of a try that dead readers block, until all of them are swept.
const SWEEPS_OF_A_TRY: u32 = 10_000;

const LATEST: Moment = Moment::from_origin(Duration::MAX);

/// A request that makes calls or has a place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acquiring {
    pub(super) goal: Goal,
    pub(super) options: LeaseOptions,
    pub(super) policy: WaitPolicy,
    /// The end of the longest hold. An upgrade takes it from the read.
    pub(super) hold_ends: Option<Moment>,
    /// The ticket of the place in the queue, or 0.
    ticket: u64,
    ahead: u64,
    /// Whether it had to wait.
    pub(super) queued: bool,
    /// Whether it is a try that waits for cached holders.
    tries: bool,
    /// Whether a call was answered.
    answered: bool,
    sweeps: u32,
    /// When the first call since the last answer was sent.
    pub(super) silent_since: Option<Moment>,
    /// The deadline of the call under way, if there is one.
    pub(super) call_until: Option<Moment>,
    /// Attempts of earlier calls that may still be carried out.
    pub(super) in_doubt: Option<InDoubt>,
    /// Whether an earlier wait was given up and has not been ended at the server.
    lingers: bool,
    /// A grant that was pushed.
    pub(super) pushed: Option<Claimable>,
    /// When to poll.
    pub(super) poll_at: Moment,
    /// The longest time until the next poll, if no message will come: half of the claim window that
    /// the last call gave. The first call gives it without knowing the place.
    poll_within: Option<Duration>,
    /// Whether a message may have been lost.
    missed: bool,
    /// The token of a lease of this acquisition that a forced release has ended, according to a
    /// message.
    pub(super) ended: Option<u64>,
}

/// A grant that was pushed, with its local end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claimable {
    pub(super) grant: Grant,
    /// The local end of its claim window, if known.
    pub(super) ends: Option<Moment>,
    margin: Duration,
    /// How much of the window must be left to hold the lock by it.
    least: Duration,
    from: Address,
}

/// The outcome of an event for a request.
#[derive(Debug)]
pub(super) enum Turn {
    Next(Next),
    Granted(Granted),
    /// It ends, and has nothing at the server.
    Nothing(Next),
    /// It ends, and may have something at the server.
    GivenUp(Next),
    /// The lease that it was to change was revoked. It has nothing else at the server.
    Revoked,
    /// The lease that it was to change is lost.
    Lost(Next),
}

/// A granted lease, as far as it is known.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) grant: Grant,
    pub(super) ends: Moment,
    /// How much earlier it ends here than at the server.
    pub(super) margin: Duration,
    /// When to renew it; for a pushed grant, when to claim it: at once.
    pub(super) claim_or_renew_at: Moment,
    pub(super) by: By,
    pub(super) node: Address,
    /// When the answered call was sent, or the message was received.
    pub(super) sent: Moment,
}

impl Acquiring {
    pub(super) fn new(
        goal: Goal,
        options: &LeaseOptions,
        policy: WaitPolicy,
        now: Moment,
    ) -> Acquiring {
        Acquiring {
            goal,
            options: options.clone(),
            policy,
            hold_ends: None,
            ticket: 0,
            ahead: 0,
            queued: false,
            tries: false,
            answered: false,
            sweeps: 0,
            silent_since: None,
            call_until: None,
            in_doubt: None,
            lingers: false,
            pushed: None,
            poll_at: now,
            poll_within: None,
            missed: false,
            ended: None,
        }
    }

    /// Makes it an upgrade. An earlier upgrade may still have something at the server.
    pub(super) fn following(
        mut self,
        hold_ends: Option<Moment>,
        in_doubt: Option<InDoubt>,
        lingers: bool,
    ) -> Acquiring {
        (self.hold_ends, self.in_doubt, self.lingers) = (hold_ends, in_doubt, lingers);
        self
    }

    pub(super) fn mode(&self) -> Mode {
        match self.goal {
            Goal::Take(mode, _) | Goal::TakeUp { mode, .. } => mode,
            Goal::Upgrade { .. } => Mode::Write,
            Goal::Permits(_) => Mode::Read,
        }
    }

    /// Attempts without an answer that may still be carried out.
    pub(super) fn in_doubt(&self) -> Option<InDoubt> {
        in_doubt::both(self.in_doubt, self.call_until.map(InDoubt::uncounted))
    }

    /// Whether it may have something at the server although the server refused.
    pub(super) fn may_be_there(&self) -> bool {
        self.in_doubt().is_some() || self.lingers
    }

    /// When everything it has at the server will have ended by itself.
    pub(super) fn over(&self, at: &Context<'_>) -> Moment {
        let place = at.now.after(at.settings.poll.waiter_ttl + at.settings.call_timeout);
        let doubt = self.in_doubt().map(|in_doubt| in_doubt.until.after(self.options.lease));
        doubt.map_or(place, |doubt| doubt.max(place))
    }

    pub(super) fn on(&mut self, event: Event, at: &Context<'_>, fx: &mut Effects) -> Turn {
        match event {
            Event::Call { hears } => Turn::Next(self.call(hears, at)),
            Event::Acquired(outcome) => self.took(outcome, at, fx),
            _ => self.wake(at),
        }
    }

    fn call(&mut self, hears: bool, at: &Context<'_>) -> Next {
        let now = at.now;
        self.silent_since.get_or_insert(now);
        let slice = now.after(at.settings.call_slice);
        let until = self.policy.until().map_or(slice, |limit| limit.min(slice));
        let lease = self.lease(now);
        let wait = self.waits().then(|| self.wait_terms(lease, hears, at));
        // A window that the end of the longest hold has cut short would only make it poll more.
        let interval = at.settings.poll.interval;
        let binds = |wait: &&Wait| !hears && wait.window >= interval;
        self.poll_within = wait.as_ref().filter(binds).map(|wait| wait.window / 2);
        self.in_doubt = self.in_doubt();
        self.call_until = Some(until);
        Next::Send {
            acquire: Acquire { lease, goal: self.goal, wait, cached: self.options.cached },
            replicas: self.options.replicas,
            until,
        }
    }

    /// Whether it has a place in the queue, or may get one.
    fn waits(&self) -> bool {
        match self.policy {
            WaitPolicy::Queue { .. } => true,
            WaitPolicy::Try { for_cached, .. } => !for_cached.is_zero(),
        }
    }

    /// The lease to request now. An upgrade's does not exceed the longest hold, which began with
    /// the read.
    fn lease(&self, now: Moment) -> Duration {
        let lease = self.options.lease;
        self.hold_ends.map_or(lease, |ends| lease.min(ends.since(now)))
    }

    fn wait_terms(&self, lease: Duration, hears: bool, at: &Context<'_>) -> Wait {
        let poll = &at.settings.poll;
        let window = poll.window(hears, self.ahead);
        Wait {
            // A grant must be claimed within the longest hold as well.
            window: match self.goal {
                Goal::Take(..) | Goal::TakeUp { .. } | Goal::Permits(_) => window,
                Goal::Upgrade { .. } => window.min(lease),
            },
            waiter_ttl: poll.waiter_ttl,
            ticket: self.ticket,
            limit: at.settings.max_waiters,
            joined_at: None,
            only_cached: self.tries || matches!(self.policy, WaitPolicy::Try { .. }),
        }
    }

    /// Handles the outcome of a call.
    fn took(&mut self, outcome: Outcome<Acquired>, at: &Context<'_>, fx: &mut Effects) -> Turn {
        let in_doubt = match &outcome {
            Ok(told) => told.in_doubt,
            Err(failure) => failure.in_doubt(),
        };
        if let Some(until) = self.call_until.take() {
            let counted = in_doubt.map(|not_after| InDoubt::counted(until, not_after));
            self.in_doubt = in_doubt::both(self.in_doubt, counted);
        }
        match outcome {
            Ok(told) => {
                self.silent_since = None;
                self.answered = true;
                self.answer(told, at, fx)
            }
            Err(Failure::Call(error)) => self.no_answer(error, at),
            Err(failure @ Failure::Reply { .. }) => {
                self.silent_since = None;
                Turn::GivenUp(Next::Failed(failure.into()))
            }
        }
    }

    fn answer(&mut self, told: Told<Acquired>, at: &Context<'_>, fx: &mut Effects) -> Turn {
        let refuse = |kind, message: &str| Turn::Nothing(Next::Failed(Error::new(kind, message)));
        let Told { what, envelope, sent, received, node, confirmed, .. } = told;
        match what {
            Acquired::Granted(_) if confirmed < self.options.replicas => {
                let error = too_few_replicas(confirmed, self.options.replicas);
                Turn::GivenUp(Next::Failed(error))
            }
            Acquired::Granted(grant) => {
                self.granted(grant, envelope, (sent, received), node, at, fx)
            }
            Acquired::Refused | Acquired::Cached
                if envelope.more && self.sweeps < SWEEPS_OF_A_TRY =>
            {
                self.sweeps += 1;
                Turn::Next(Next::Again)
            }
            Acquired::Refused | Acquired::Cached => Turn::Nothing(Next::Refused),
            Acquired::Queued { ticket, ahead } => {
                // The one upgrader goes before all; for it, `ahead` counts the readers.
                (self.ticket, self.ahead) = (ticket, if ticket > 0 { ahead } else { 0 });
                if let WaitPolicy::Try { until, for_cached } = self.policy {
                    self.tries = true;
                    let until = until.min(at.now.after(for_cached));
                    self.policy = WaitPolicy::Queue { until: Some(until) };
                }
                if !self.queued {
                    self.queued = true;
                    fx.note = Some(Note::Queued { mode: self.mode(), node, ahead });
                }
                self.rest(at)
            }
            Acquired::Full { .. } if matches!(self.policy, WaitPolicy::Try { .. }) => {
                Turn::Nothing(Next::Refused)
            }
            Acquired::Full { waiters } => {
                let message = format!("{waiters} wait already, which is the limit");
                refuse(ErrorKind::TooManyWaiters, &message)
            }
            Acquired::Limit(limit) => Turn::Nothing(Next::Failed(self.off_limit(limit))),
            Acquired::Stale => Turn::Next(Next::Again), // the call arrived too late
            Acquired::Conflict => refuse(
                ErrorKind::Conflict,
                "another reader waits to be upgraded: one of the two must release",
            ),
            Acquired::Revoked => Turn::Revoked,
            Acquired::Lost => Turn::Lost(Next::Failed(match self.goal {
                Goal::TakeUp { .. } => no_ticket(),
                _ => lost(),
            })),
        }
    }

    fn granted(
        &self,
        grant: Grant,
        envelope: Envelope,
        (sent, received): (Moment, Moment),
        node: Address,
        at: &Context<'_>,
        fx: &mut Effects,
    ) -> Turn {
        let margin = self.margin(at, deadline::left(grant, envelope.now));
        let ends = deadline::ends(grant, envelope.now, sent, margin);
        if ends <= received {
            // The answer took longer than the lease: it counts as no grant.
            fx.note = Some(Note::GrantedLate { mode: self.mode(), node });
            let message = "the answer came when the lease was over";
            return Turn::GivenUp(Next::Failed(Error::new(ErrorKind::Unavailable, message)));
        }
        let claim_or_renew_at = deadline::renew_at(sent, self.options.lease, at.random);
        Turn::Granted(Granted {
            grant,
            ends,
            margin,
            claim_or_renew_at,
            by: By::Answer,
            node,
            sent,
        })
    }

    fn no_answer(&mut self, error: CallError, at: &Context<'_>) -> Turn {
        match &error.reason {
            _ if self.is_passing(&error, at.now) => Turn::Next(Next::Again),
            // The place in the queue had expired, and there is no memory for a new one now.
            Reason::Refused(said) if self.ticket > 0 && said.code == "OOM" => self.rest(at),
            Reason::TimedOut(None) if self.was_cut_short(at.now) => {
                Turn::GivenUp(self.out_of_time())
            }
            // No server has received it, so there is nothing to release.
            Reason::Overloaded | Reason::TimedOut(None) | Reason::NoNode(_) if !self.answered => {
                Turn::Nothing(Next::Failed(error.into()))
            }
            Reason::Permanent if !self.answered => Turn::Nothing(Next::Failed(error.into())),
            Reason::Refused(said) if self.has_changed_nothing(said, at) => {
                Turn::Nothing(Next::Failed(error.into()))
            }
            _ => Turn::GivenUp(Next::Failed(error.into())),
        }
    }

    /// Whether a call that was refused has changed nothing, so that nothing must be released: the
    /// script has not begun, or it is that of a mutex, which makes one change at most.
    fn has_changed_nothing(&self, said: &ServerError, at: &Context<'_>) -> bool {
        at.kind == Kind::Mutex || (!self.answered && is_before_script(said))
    }

    /// Whether to call again: a slot that cannot be served now may be served in time.
    fn is_passing(&self, error: &CallError, now: Moment) -> bool {
        let least = match error.reason {
            Reason::TimedOut(_) | Reason::TooManyRedirects(_) | Reason::NoNode(_) => Duration::ZERO,
            // So near the deadline the call would not be sent either.
            Reason::Overloaded => BRIEF,
            _ => return false,
        };
        now.after(least) < self.policy.until().unwrap_or(LATEST)
    }

    /// Whether the deadline passed just after a poll was sent, so that the server is not to blame.
    fn was_cut_short(&self, now: Moment) -> bool {
        let silence = self.silent_since.map_or(Duration::ZERO, |since| now.since(since));
        self.ticket > 0 && silence < BRIEF
    }

    /// The error if the semaphore's limit does not allow this request.
    fn off_limit(&self, limit: u32) -> Error {
        let expected = match self.goal {
            Goal::Permits(permits) => permits.limit.to_string(),
            Goal::Take(..) | Goal::Upgrade { .. } | Goal::TakeUp { .. } => "none".into(),
        };
        let message = format!("the semaphore's limit is {limit}, and not {expected}");
        Error::limit_mismatch(message, limit)
    }

    /// Rests until the next poll.
    fn rest(&mut self, at: &Context<'_>) -> Turn {
        let poll = &at.settings.poll;
        let pause = poll.next_poll(self.ahead, at.random);
        self.poll_at = at.now.after(self.poll_within.map_or(pause, |most| pause.min(most)));
        self.until_woken()
    }

    fn until_woken(&self) -> Turn {
        let wake = self.policy.until().map_or(self.poll_at, |until| until.min(self.poll_at));
        Turn::Next(Next::Wait(wake))
    }

    fn wake(&mut self, at: &Context<'_>) -> Turn {
        if let Some(pushed) = self.pushed.take() {
            return self.claim(pushed, at.now);
        }
        if std::mem::take(&mut self.missed) {
            // All other waiters were told as well. They poll in the order of their places, not all
            // at once.
            let turn = at.settings.poll.told_poll(self.ahead, at.random);
            self.poll_at = self.poll_at.min(at.now.after(turn));
        }
        if self.policy.until().is_some_and(|until| at.now >= until) {
            Turn::GivenUp(self.out_of_time())
        } else if at.now >= self.poll_at {
            Turn::Next(Next::Again)
        } else {
            self.until_woken()
        }
    }

    /// The outcome when the time is up.
    fn out_of_time(&self) -> Next {
        if self.tries { Next::Refused } else { Next::Failed(out_of_time()) }
    }

    pub(super) fn missed(&mut self) {
        self.missed = true;
    }

    /// Records a grant that was pushed.
    pub(super) fn pushed(&mut self, pushed: Pushed, at: &Context<'_>) {
        let Pushed { grant, now, received, from, bound } = pushed;
        // While a slot moves, messages from two servers can arrive out of order.
        if self.pushed.as_ref().is_some_and(|known| known.grant.token >= grant.token) {
            return;
        }
        let window = Duration::from_millis(grant.deadline.saturating_sub(now));
        let margin = self.margin(at, window);
        self.pushed = Some(Claimable {
            grant,
            ends: deadline::pushed_ends(grant, now, received, bound.as_ref(), margin),
            // For the claim to arrive in time, half of the maximum and a quarter of the window must
            // be left. The margin can exceed the window.
            margin,
            least: (window.saturating_sub(margin) / 2).max(window / 4),
            from,
        });
    }

    /// Takes the lease by a pushed grant, and claims it at once. If its end is unknown or near, or
    /// replicas must confirm it, the next poll claims it instead.
    fn claim(&self, pushed: Claimable, now: Moment) -> Turn {
        let Claimable { grant, ends, margin, least, from } = pushed;
        // An upgrade shares its acquisition with the read and with earlier upgrades, whose messages
        // can arrive late.
        let is_old = matches!(self.goal, Goal::Upgrade { token } if grant.token <= token);
        match ends {
            Some(ends) if !is_old && ends.since(now) > least && self.options.replicas == 0 => {
                Turn::Granted(Granted {
                    grant,
                    ends,
                    margin,
                    claim_or_renew_at: now,
                    by: By::Push,
                    node: from,
                    sent: now,
                })
            }
            _ => Turn::Next(Next::Again),
        }
    }

    /// The margin of a lease with this time left. A lease that is taken over can be longer than the
    /// requested one.
    fn margin(&self, at: &Context<'_>, left: Duration) -> Duration {
        at.settings.margin(self.options.lease.max(left))
    }
}

/// The error for a ticket that the server does not know.
fn no_ticket() -> Error {
    let message =
        "the ticket stands for no lease: that has ended, or another client has taken it up";
    Error::new(ErrorKind::Lost, message)
}

pub(crate) fn out_of_time() -> Error {
    Error::new(ErrorKind::TimedOut, "it was not our turn in the time that was given")
}

pub(crate) fn too_few_replicas(confirmed: u32, wanted: u32) -> Error {
    let message = format!("{confirmed} of the {wanted} requested replicas confirmed it in time");
    Error::new(ErrorKind::Unavailable, message)
}
