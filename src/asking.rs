//! Taking a lock: the calls, the wait, and the way out when the caller loses interest.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use tracing::{debug, trace};

use crate::acquisition::{Acquisition, Asking, Holding, Pushed, State};
use crate::client::{Client, WaitingIn};
use crate::clock::Moment;
use crate::core::lease::{self, Renewals};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Lease;
use crate::protocol::{self, Acquire, Acquired, Fairness, Goal, Grant, Kind, LockKey, Mode};
use crate::retry::Retry;
use crate::router::{Answer, CallError, Reason};
use crate::settings::{Settings, check_lease};

/// How long one call, with the router's repetitions, may go on before it is made anew. An attempt is good at the server for as long.
const CALL_SLICE: Duration = Duration::from_secs(2);

/// How often a try is repeated because dead readers were in its way and are not all swept yet.
const SWEEPS_OF_A_TRY: u32 = 10_000;

/// What a lock is asked for with.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) fairness: Fairness,
    pub(crate) renewal: Renewal,
    /// The longest hold, however often it is renewed.
    pub(crate) hold: Option<Duration>,
}

impl Terms {
    /// What the client's settings say.
    pub(crate) fn of(settings: &Settings) -> Self {
        Terms {
            lease: settings.lease,
            fairness: settings.fairness,
            renewal: Renewal::Automatic,
            hold: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_lease(self.lease)?;
        if self.hold == Some(Duration::ZERO) {
            return Err(Error::invalid("the longest hold must not be zero"));
        }
        Ok(())
    }
}

/// Who makes a lease longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The client, for as long as the guard lives.
    #[default]
    Automatic,
    /// The client, at most so many times. Then the lease runs out.
    AtMost(u32),
    /// Nobody but the caller.
    Manual,
}

/// How long to wait for one's turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all; the limit is for the cluster's answer.
    Try { until: Moment },
    /// In the queue, for ever or until a moment.
    Queue { until: Option<Moment> },
}

/// How to wait for a lock: in its queue, or by trying again where it has none or that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
}

impl Wait {
    pub(crate) fn check(&self) -> Result<()> {
        if self.timeout == Some(Duration::ZERO) {
            return Err(Error::invalid(
                "a timeout must not be zero: there are requests that do not wait",
            ));
        }
        Ok(())
    }

    /// Takes the lock, and waits for it.
    pub(crate) async fn take(self, client: &Arc<Client>, lock: &LockKey, mode: Mode, terms: &Terms) -> Result<Lease> {
        let now = client.clock.now();
        let lease = |acquisition| Lease::new(client.clone(), acquisition);
        let retry = self.retry.or((lock.kind == Kind::Mutex).then(Retry::default));
        let Some(retry) = retry else {
            let until = self.timeout.map(|timeout| now.after(timeout));
            let taken = take(client, lock, mode, terms, Patience::Queue { until }).await?;
            return taken
                .map(lease)
                .ok_or_else(|| lock.blame(Error::invalid("a queue does not refuse")));
        };
        let mut tries = retry.begin(now, self.timeout);
        loop {
            let until = tries.answer_by(client.clock.now(), client.settings.call_timeout);
            if let Some(taken) = take(client, lock, mode, terms, Patience::Try { until }).await? {
                return Ok(lease(taken));
            }
            tries.pause(&*client.clock).await.map_err(|error| lock.blame(error))?;
        }
    }
}

/// Takes the lock. `None`: it was a try, and others hold.
///
/// Cancel safe: dropped at any point, whatever has come of it by then is given back.
pub(crate) async fn take(
    client: &Arc<Client>,
    lock: &LockKey,
    mode: Mode,
    terms: &Terms,
    patience: Patience,
) -> Result<Option<Arc<Acquisition>>> {
    let mut request = Request::new(client, lock, terms)?;
    match request.run(Goal::Take(mode, terms.fairness), mode, patience).await {
        Ok(true) => Ok(Some(request.keep())),
        Ok(false) => Ok(None),
        Err(error) => Err(lock.blame(error)),
    }
}

/// An acquisition under way; dropped, it leaves.
struct Request<'a> {
    client: &'a Arc<Client>,
    acquisition: Arc<Acquisition>,
    terms: &'a Terms,
    started: Moment,
    ticket: u64,
    ahead: u64,
    waiting: Option<WaitingIn>,
    settled: bool,
}

/// What ended a wait.
enum Woken {
    Pushed(Pushed),
    Look,
    OutOfTime,
}

impl<'a> Request<'a> {
    fn new(client: &'a Arc<Client>, lock: &LockKey, terms: &'a Terms) -> Result<Self> {
        let acquisition = client.register(lock)?;
        let started = client.clock.now();
        Ok(Request {
            client,
            acquisition,
            terms,
            started,
            ticket: 0,
            ahead: 0,
            waiting: None,
            settled: false,
        })
    }

    /// True when it holds, false when a try was refused.
    async fn run(&mut self, goal: Goal, mode: Mode, patience: Patience) -> Result<bool> {
        let mut sweeps = 0;
        loop {
            let answer = match self.call(goal, patience).await {
                Ok(answer) => answer,
                Err(error) if self.goes_on_after(&error, patience) => continue,
                Err(error) => return Err(error.into()),
            };
            let (sent, received) = (answer.sent, answer.received);
            let (envelope, acquired) = Acquire::read(answer.reply)?;
            if envelope.more {
                self.client.pump(&self.acquisition.lock);
            }
            match acquired {
                Acquired::Granted(grant) => {
                    let ends = lease::ends(grant, envelope.now, sent, self.margin());
                    if ends <= received {
                        // The answer took longer than the lease is good for: it is as if it had never been had.
                        debug!(name: "rwlease.grant", lock = %self.acquisition.lock.name, outcome = "late");
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            "the answer came when the lease was over",
                        ));
                    }
                    self.hold(
                        mode,
                        grant,
                        ends,
                        lease::renew_at(sent, self.terms.lease, fastrand::f64()),
                    );
                    return Ok(true);
                }
                Acquired::Refused { .. } if envelope.more && sweeps < SWEEPS_OF_A_TRY => sweeps += 1,
                Acquired::Refused { .. } => {
                    self.settle();
                    return Ok(false);
                }
                Acquired::Queued { ticket, ahead, .. } => {
                    (self.ticket, self.ahead) = (ticket, ahead);
                    trace!(name: "rwlease.wait", lock = %self.acquisition.lock.name, ahead);
                    let Patience::Queue { until } = patience else { continue };
                    if self.wait(mode, until).await? {
                        return Ok(true);
                    }
                }
                Acquired::Full { waiters } => {
                    self.settle();
                    let kind = ErrorKind::TooManyWaiters;
                    return Err(Error::new(kind, format!("{waiters} wait already, which is the limit")));
                }
                Acquired::Stale => {} // it came too late: ask anew
                Acquired::Conflict | Acquired::Revoked | Acquired::Lost => {
                    return Err(Error::new(
                        ErrorKind::Incompatible,
                        "an answer that this script does not give",
                    ));
                }
            }
        }
    }

    /// One call, accounted for: until it has an answer it may still be carried out.
    async fn call(&mut self, goal: Goal, patience: Patience) -> Result<Answer, CallError> {
        let slice = self.client.clock.now().after(CALL_SLICE);
        let limit = match patience {
            Patience::Try { until } => Some(until),
            Patience::Queue { until } => until,
        };
        let until = limit.map_or(slice, |limit| limit.min(slice));
        let acquire = Acquire {
            owner: self.acquisition.owner,
            lease: self.terms.lease,
            goal,
            wait: matches!(patience, Patience::Queue { .. }).then(|| self.wait_terms()),
        };
        let call = acquire.call(self.client.scripts, &self.acquisition.lock, until);
        let before = self.with_asking(|asking| {
            asking
                .loose
                .replace(asking.loose.map_or(until, |loose| loose.max(until)))
        });
        let result = self.client.router.call(&call, until).await;
        let loose = match &result {
            Ok(answer) => answer.loose,
            Err(error) => error.loose,
        };
        if loose.is_none() {
            self.with_asking(|asking| asking.loose = before.flatten());
        }
        result
    }

    fn wait_terms(&self) -> protocol::Wait {
        let slot = self.acquisition.lock.slot;
        let joined_at = self.client.router.subscriptions().joined_at(slot);
        let pace = &self.client.settings.pace;
        protocol::Wait {
            window: pace.window(joined_at.is_some(), self.ahead),
            liveness: pace.liveness,
            ticket: self.ticket,
            limit: self.client.settings.most_waiters,
            joined_at,
        }
    }

    /// Whether to ask again: a slot that cannot be served now may be served before the time is up.
    fn goes_on_after(&self, error: &CallError, patience: Patience) -> bool {
        let passing = matches!(
            error.reason,
            Reason::TimedOut(_) | Reason::NoNode(_) | Reason::TooManyRedirects(_)
        );
        let full_while_queued = self.ticket > 0 && matches!(&error.reason, Reason::Refused(said) if said.code == "OOM");
        let until = match patience {
            Patience::Try { until } => until,
            Patience::Queue { until } => until.unwrap_or(Moment::from_origin(Duration::MAX)),
        };
        (passing && !matches!(error.reason, Reason::TooManyRedirects(_)) || full_while_queued)
            && self.client.clock.now() < until
    }

    /// Waits for a push, or for the time to look again. True when it holds.
    async fn wait(&mut self, mode: Mode, until: Option<Moment>) -> Result<bool> {
        if self.waiting.is_none() {
            self.waiting = Some(self.client.wait_in(self.acquisition.lock.slot));
        }
        let pause = self.client.settings.pace.next_look(self.ahead, fastrand::f64());
        match self.woken(self.client.clock.now().after(pause), until).await {
            Woken::OutOfTime => Err(Error::new(
                ErrorKind::TimedOut,
                "it was not our turn in the time that was given",
            )),
            Woken::Look => Ok(false),
            Woken::Pushed(pushed) => Ok(self.take_pushed(mode, &pushed)),
        }
    }

    async fn woken(&self, look_at: Moment, until: Option<Moment>) -> Woken {
        let wake_at = until.map_or(look_at, |until| until.min(look_at));
        let mut sleep = self.client.clock.sleep_until(wake_at);
        loop {
            let changed = std::pin::pin!(self.acquisition.changed.notified());
            let news = self.with_asking(|asking| match asking.pushed.take() {
                Some(pushed) => Some(Woken::Pushed(pushed)),
                None => std::mem::take(&mut asking.look).then_some(Woken::Look),
            });
            if let Some(news) = news.flatten() {
                return news;
            }
            if let Either::Right(_) = select(changed, &mut sleep).await {
                let out_of_time = until.is_some_and(|until| self.client.clock.now() >= until);
                return if out_of_time { Woken::OutOfTime } else { Woken::Look };
            }
        }
    }

    /// Holds by a pushed grant, whose claim goes out at once. False if its end cannot be told or is near: then the look that follows
    /// claims it and says.
    fn take_pushed(&mut self, mode: Mode, pushed: &Pushed) -> bool {
        let bound = self.client.router.bound(&pushed.from);
        // The margin of the full lease can be longer than the claim window: a grant has a margin by its own length.
        let window = Duration::from_millis(pushed.grant.deadline.saturating_sub(pushed.now));
        let margin = self.client.settings.margin(window.min(self.terms.lease));
        let ends = lease::pushed_ends(pushed.grant, pushed.now, pushed.received, bound.as_ref(), margin);
        let now = self.client.clock.now();
        match ends {
            Some(ends) if ends.since(now) > window / 2 => {
                self.hold(mode, pushed.grant, ends, now);
                true
            }
            _ => false,
        }
    }

    fn hold(&mut self, mode: Mode, grant: Grant, ends: Moment, claim_or_renew_at: Moment) {
        let now = self.client.clock.now();
        let claims = claim_or_renew_at <= now;
        let renewals = Renewals {
            left: match self.terms.renewal {
                Renewal::Automatic => None,
                Renewal::AtMost(most) => Some(most),
                Renewal::Manual => Some(0),
            }
            .map(|left| left + u32::from(claims)),
            hold_ends: self.terms.hold.map(|hold| now.after(hold)),
        };
        let loose = self.with_asking(|asking| asking.loose).flatten();
        let renew_at = renewals.go_on(now).then_some(claim_or_renew_at);
        self.client.hold(
            &self.acquisition,
            Holding {
                mode,
                token: grant.token,
                ends,
                lease: self.terms.lease,
                margin: self.margin(),
                renew_at,
                renewals,
                renewing: false,
                failing: false,
                revoked: false,
                lost: false,
                loose,
                since: now,
            },
        );
        let waited = now.since(self.started).as_secs_f64();
        let name = &self.acquisition.lock.name;
        debug!(name: "rwlease.grant", lock = %name, slot = %self.acquisition.lock.slot, ?mode, token = grant.token, waited);
    }

    /// Nothing of it is at the server: no release is needed, unless an attempt without an answer is under way.
    fn settle(&mut self) {
        if self.with_asking(|asking| asking.loose).flatten().is_none() {
            self.client.forget(&self.acquisition);
            self.settled = true;
        }
    }

    fn keep(mut self) -> Arc<Acquisition> {
        self.settled = true;
        self.acquisition.clone()
    }

    fn margin(&self) -> Duration {
        self.client.settings.margin(self.terms.lease)
    }

    fn with_asking<T>(&self, act: impl FnOnce(&mut Asking) -> T) -> Option<T> {
        match &mut *self.acquisition.state() {
            State::Asking(asking) => Some(act(asking)),
            _ => None,
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.client.abandon(&self.acquisition);
        }
    }
}
