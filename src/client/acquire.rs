//! Taking a lock: the calls, the wait, and the way out when the caller loses interest.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use tracing::{Instrument, Span};

use crate::client::acquisition::{Acquiring, Acquisition, Holding, Pushed, TransitionKind};
use crate::client::deadline::{self, Renewals};
use crate::client::in_doubt::{self, InDoubt};
use crate::client::request::{LeaseOptions, Renewal, WaitPolicy};
use crate::client::settings::BRIEF;
use crate::client::telemetry::{self, Way};
use crate::client::worker;
use crate::client::{Client, WaitingIn};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::node::Address;
use crate::protocol::{Acquire, Acquired, Goal, Grant, LockKey, Mode, Wait};
use crate::router::{Answer, CallError, Reason};

/// How long one call, with the router's repetitions, may go on before it is made anew. An attempt
/// is good at the server for as long.
const CALL_SLICE: Duration = Duration::from_secs(2);

/// How often a try is repeated because dead readers were in its way and are not all swept yet.
const SWEEPS_OF_A_TRY: u32 = 10_000;

const LATEST: Moment = Moment::from_origin(Duration::MAX);

/// Takes the lock. `None`: it was a try, and others hold.
///
/// Cancel safe: dropped at any point, whatever has come of it by then is given back.
pub(crate) async fn take(
    client: &Arc<Client>,
    lock: &LockKey,
    mode: Mode,
    options: &LeaseOptions,
    policy: WaitPolicy,
) -> Result<Option<Arc<Acquisition>>> {
    let acquisition = client.register(lock, options.lease)?;
    let mut request =
        Request::new(client, acquisition, Goal::Take(mode, options.fairness), mode, options);
    request.watched(policy).await.map_err(|error| lock.with_lock(error))
}

/// Turns the read that is held into a write. `None`: it was a try, and others read.
///
/// Cancel safe: dropped at any point, the read is as it was, and the worker takes back what has
/// come of the upgrade.
pub(crate) async fn upgrade(
    client: &Arc<Client>,
    acquisition: &Arc<Acquisition>,
    options: &LeaseOptions,
    policy: WaitPolicy,
) -> Result<Option<Arc<Acquisition>>> {
    let lock = &acquisition.lock;
    let begun = begin_upgrade(client, acquisition, policy).await;
    let token = begun.map_err(|error| lock.with_lock(error))?;
    let goal = Goal::Upgrade { token };
    let mut request = Request::new(client, acquisition.clone(), goal, Mode::Write, options);
    request.watched(policy).await.map_err(|error| lock.with_lock(error))
}

/// Waits until no pending transition of this lease can be carried out any more, and notes that an
/// upgrade begins; gives the token of the read.
async fn begin_upgrade(
    client: &Client,
    acquisition: &Acquisition,
    policy: WaitPolicy,
) -> Result<u64> {
    loop {
        let changed = std::pin::pin!(acquisition.changed.notified());
        let now = client.clock.now();
        let begun = acquisition.with_holding(|holding| {
            if !holding.is_held(now) {
                return None;
            }
            // A downgrade that may still arrive has the token of the write that it ends: there must
            // be a new one first.
            let pending = holding.pending.as_ref();
            let under_way = pending.is_some_and(|pending| {
                pending.sent || (pending.kind == TransitionKind::Downgrade && pending.tried)
            });
            Some((!under_way).then(|| {
                let pending = holding.pending.take();
                holding.upgrade = Some(Box::new(Acquiring {
                    in_doubt: pending.as_ref().and_then(|pending| pending.in_doubt),
                    lingers: pending.is_some_and(|pending| pending.kind == TransitionKind::EndWait),
                    ..Acquiring::default()
                }));
                holding.token
            }))
        });
        match begun.flatten() {
            None => return Err(Error::new(ErrorKind::Lost, "the lease is lost")),
            Some(Some(token)) => return Ok(token),
            Some(None) => {}
        }
        let until = policy.until().unwrap_or(LATEST);
        if let Either::Right(_) = select(changed, client.clock.sleep_until(until)).await {
            return Err(out_of_time());
        }
    }
}

/// An acquisition or an upgrade under way; dropped, it leaves.
struct Request<'a> {
    client: &'a Arc<Client>,
    acquisition: Arc<Acquisition>,
    goal: Goal,
    mode: Mode,
    options: &'a LeaseOptions,
    started: Moment,
    ticket: u64,
    ahead: u64,
    waiting: Option<WaitingIn>,
    /// When the first call was sent since the last answer.
    silent_since: Option<Moment>,
    /// Where the last call said that this client has subscribed.
    joined_at: Option<String>,
    settled: bool,
    /// Some call was answered.
    answered: bool,
    span: Span,
    /// Since when it has a place in the queue.
    queued_since: Option<Moment>,
    /// What came of it, in a word.
    outcome: &'static str,
}

/// What ended a wait.
enum Woken {
    Pushed(Pushed),
    Poll,
    OutOfTime,
    /// The request is no longer wanted: the client is being shut down, or the lease was lost.
    Over,
}

impl<'a> Request<'a> {
    fn new(
        client: &'a Arc<Client>,
        acquisition: Arc<Acquisition>,
        goal: Goal,
        mode: Mode,
        options: &'a LeaseOptions,
    ) -> Self {
        let started = client.clock.now();
        let span = telemetry::acquire(&acquisition.lock, mode);
        Request {
            client,
            acquisition,
            goal,
            mode,
            options,
            started,
            ticket: 0,
            ahead: 0,
            waiting: None,
            silent_since: None,
            joined_at: None,
            settled: false,
            answered: false,
            span,
            queued_since: None,
            outcome: "dropped",
        }
    }

    /// Runs, and notes what came of it.
    async fn watched(&mut self, policy: WaitPolicy) -> Result<Option<Arc<Acquisition>>> {
        let span = self.span.clone();
        let result = self.run(policy).instrument(span).await;
        self.outcome = match &result {
            Ok(Some(_)) => "granted",
            Ok(None) => "busy",
            Err(error) => telemetry::outcome_of(error.kind()),
        };
        result
    }

    /// The acquisition when it holds, nothing when a try was refused.
    async fn run(&mut self, policy: WaitPolicy) -> Result<Option<Arc<Acquisition>>> {
        let mut sweeps = 0;
        loop {
            if self.acquisition.with_acquiring(|_| ()).is_none() {
                return Err(self.over());
            }
            let answer = match self.call(policy).await {
                Ok(answer) => answer,
                Err(error) if self.is_passing(&error, policy) => {
                    if matches!(error.reason, Reason::TooManyRedirects(_)) {
                        self.let_masters_agree().await;
                    }
                    continue;
                }
                // The place in the queue had run out, and there is no room for a new one now.
                Err(error) if self.ticket > 0 && is_out_of_memory(&error) => {
                    self.wait(policy.until()).await?;
                    continue;
                }
                Err(error) if self.was_cut_short(&error) => return Err(out_of_time()),
                Err(error) => {
                    if self.was_never_sent(&error) {
                        self.settle();
                    }
                    return Err(error.into());
                }
            };
            self.answered = true;
            let (sent, received, confirmed) = (answer.sent, answer.received, answer.confirmed);
            let node = answer.address;
            telemetry::answered(&self.span, &node);
            let (envelope, acquired) = Acquire::read(answer.reply)?;
            if envelope.more {
                self.client.pump(&self.acquisition.lock);
            }
            match acquired {
                Acquired::Granted(_) if confirmed < self.options.replicas => {
                    return Err(too_few_replicas(confirmed, self.options.replicas));
                }
                Acquired::Granted(grant) => {
                    let ends = deadline::ends(grant, envelope.now, sent, self.margin());
                    if ends <= received {
                        // The answer took longer than the lease is good for: it is as if it had
                        // never been had.
                        telemetry::granted_late(&self.acquisition.lock, self.mode, &node);
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            "the answer came when the lease was over",
                        ));
                    }
                    let renew_at = deadline::renew_at(sent, self.options.lease, fastrand::f64());
                    return self.hold(grant, ends, renew_at, (&node, Way::Answer)).map(Some);
                }
                Acquired::Refused { .. } if envelope.more && sweeps < SWEEPS_OF_A_TRY => {
                    sweeps += 1
                }
                Acquired::Refused { .. } => {
                    self.settle();
                    return Ok(None);
                }
                Acquired::Queued { ticket, ahead, .. } => {
                    // The one upgrader goes before all: what is said of it is how many read.
                    (self.ticket, self.ahead) = (ticket, if ticket > 0 { ahead } else { 0 });
                    if self.queued_since.is_none() {
                        self.queued_since = Some(received);
                        telemetry::queued(&self.acquisition.lock, self.mode, &node, ahead);
                    }
                    if let Some(pushed) = self.wait(policy.until()).await?
                        && let Some(held) = self.take_pushed(&pushed)?
                    {
                        return Ok(Some(held));
                    }
                }
                Acquired::Full { waiters } => {
                    self.settle();
                    let kind = ErrorKind::TooManyWaiters;
                    return Err(Error::new(
                        kind,
                        format!("{waiters} wait already, which is the limit"),
                    ));
                }
                Acquired::Stale => {} // it came too late: call anew
                Acquired::Conflict => {
                    self.settle();
                    let message =
                        "another reader waits to be upgraded: one of the two must release";
                    return Err(Error::new(ErrorKind::Conflict, message));
                }
                Acquired::Revoked => {
                    self.settle();
                    return Err(Error::new(
                        ErrorKind::Lost,
                        "the lease was revoked, and ends at its deadline",
                    ));
                }
                Acquired::Lost => {
                    worker::take_loss(self.client, &self.acquisition);
                    self.settle();
                    return Err(Error::new(ErrorKind::Lost, "the lease is lost"));
                }
            }
        }
    }

    /// One call, accounted for: until it has an answer it may still be carried out.
    async fn call(&mut self, policy: WaitPolicy) -> Result<Answer, CallError> {
        let now = self.client.clock.now();
        self.silent_since.get_or_insert(now);
        let slice = now.after(CALL_SLICE);
        let until = policy.until().map_or(slice, |limit| limit.min(slice));
        let lease = self.lease(now);
        let acquire = Acquire {
            id: self.acquisition.id,
            lease,
            goal: self.goal,
            wait: matches!(policy, WaitPolicy::Queue { .. }).then(|| self.wait_terms(lease)),
        };
        let call = acquire.call(self.client.scripts, &self.acquisition.lock, until);
        let before = self.acquisition.with_acquiring(|acquiring| {
            let before = acquiring.in_doubt;
            acquiring.in_doubt = in_doubt::both(before, Some(InDoubt::uncounted(until)));
            before
        });
        let result = self.client.router.call_replicated(&call, self.options.replicas, until).await;
        if result.is_ok() {
            self.silent_since = None;
        }
        let in_doubt = match &result {
            Ok(answer) => answer.in_doubt,
            Err(error) => error.in_doubt,
        };
        let counted = in_doubt.map(|not_after| InDoubt::counted(until, not_after));
        self.acquisition.with_acquiring(|acquiring| {
            acquiring.in_doubt = in_doubt::both(before.flatten(), counted)
        });
        result
    }

    /// The lease to request now. That of an upgrade does not reach past the longest hold, which
    /// began with the read.
    fn lease(&self, now: Moment) -> Duration {
        let lease = self.options.lease;
        let of_the_hold =
            self.acquisition.with_holding(|holding| holding.renewals.lease(now, lease));
        of_the_hold.unwrap_or(lease)
    }

    fn wait_terms(&mut self, lease: Duration) -> Wait {
        let joined_at = self.subscribed_at();
        self.joined_at.clone_from(&joined_at);
        let poll = &self.client.settings.poll;
        let window = poll.window(joined_at.is_some(), self.ahead);
        Wait {
            // A grant is to be claimed within the longest hold, too.
            window: match self.goal {
                Goal::Take(..) => window,
                Goal::Upgrade { .. } => window.min(lease),
            },
            waiter_ttl: poll.waiter_ttl,
            ticket: self.ticket,
            limit: self.client.settings.max_waiters,
            joined_at,
        }
    }

    /// Whether to call again: a slot that cannot be served now may be served before the time is up.
    fn is_passing(&self, error: &CallError, policy: WaitPolicy) -> bool {
        let least = match error.reason {
            Reason::TimedOut(_) | Reason::NoNode(_) => Duration::ZERO,
            // A wait that has a limit ends with this error, which says more than that the time is
            // up.
            Reason::TooManyRedirects(_) if policy.until().is_none() => Duration::ZERO,
            // Near the end of the time the call would not be sent either.
            Reason::Overloaded => BRIEF,
            _ => return false,
        };
        let wanted = self.acquisition.with_acquiring(|_| ()).is_some();
        wanted && self.client.clock.now().after(least) < policy.until().unwrap_or(LATEST)
    }

    /// Masters that name each other will agree. Until then there is no use in calling them all the
    /// time.
    async fn let_masters_agree(&self) {
        let pause = self.client.settings.poll.interval;
        self.client.clock.sleep_until(self.client.clock.now().after(pause)).await;
    }

    /// Whether no server has heard of it: then none need be told that it is over.
    fn was_never_sent(&self, error: &CallError) -> bool {
        let unheard =
            matches!(error.reason, Reason::Overloaded | Reason::TimedOut(None) | Reason::NoNode(_));
        unheard && !self.answered
    }

    /// Whether the time was up just after a poll had been sent, which says nothing against the
    /// server.
    fn was_cut_short(&self, error: &CallError) -> bool {
        let now = self.client.clock.now();
        let silence = self.silent_since.map_or(Duration::ZERO, |since| now.since(since));
        self.ticket > 0 && matches!(error.reason, Reason::TimedOut(None)) && silence < BRIEF
    }

    /// Where this client hears of grants in the lock's slot right now.
    fn subscribed_at(&self) -> Option<String> {
        self.client.router.joined_at(self.acquisition.lock.slot)
    }

    /// Waits for a push, or (`None`) for the time to poll again.
    async fn wait(&mut self, until: Option<Moment>) -> Result<Option<Pushed>> {
        if self.waiting.is_none() {
            self.waiting = Some(self.client.wait_in(&self.acquisition));
        }
        // Subscribed while the call was under way, when there was nobody yet to be told to poll:
        // the queue does not know, and would not push.
        if self.subscribed_at() != self.joined_at {
            return Ok(None);
        }
        let pause = self.client.settings.poll.next_poll(self.ahead, fastrand::f64());
        match self.woken(self.client.clock.now().after(pause), until).await {
            Woken::OutOfTime => Err(out_of_time()),
            Woken::Over => Err(self.over()),
            Woken::Poll => Ok(None),
            Woken::Pushed(pushed) => Ok(Some(pushed)),
        }
    }

    async fn woken(&self, mut look_at: Moment, until: Option<Moment>) -> Woken {
        let clock = &self.client.clock;
        let wake_at = |look_at: Moment| until.map_or(look_at, |until| until.min(look_at));
        let mut sleep = clock.sleep_until(wake_at(look_at));
        loop {
            let changed = std::pin::pin!(self.acquisition.changed.notified());
            let pushed =
                self.acquisition.with_acquiring(|acquiring| match acquiring.pushed.take() {
                    Some(pushed) => Err(pushed),
                    None => Ok(std::mem::take(&mut acquiring.poll)),
                });
            match pushed {
                None => return Woken::Over,
                Some(Err(pushed)) => return Woken::Pushed(pushed),
                Some(Ok(true)) => {
                    // So are all others who wait: in the order of their places, they do not come to
                    // the server at once.
                    let turn = self.client.settings.poll.told_poll(self.ahead, fastrand::f64());
                    look_at = look_at.min(clock.now().after(turn));
                    sleep = clock.sleep_until(wake_at(look_at));
                }
                Some(Ok(false)) => {}
            }
            if let Either::Right(_) = select(changed, &mut sleep).await {
                let out_of_time = until.is_some_and(|until| clock.now() >= until);
                return if out_of_time { Woken::OutOfTime } else { Woken::Poll };
            }
        }
    }

    /// Holds by a pushed grant, whose claim goes out at once. Not if its end cannot be told or is
    /// near, nor if replicas have to confirm it: then the poll that follows claims it and says.
    fn take_pushed(&mut self, pushed: &Pushed) -> Result<Option<Arc<Acquisition>>> {
        // An upgrade has its acquisition in common with the read, and with upgrades before it:
        // their messages can come late.
        if matches!(self.goal, Goal::Upgrade { token } if pushed.grant.token <= token) {
            return Ok(None);
        }
        let bound = self.client.router.bound(&pushed.from);
        let window = Duration::from_millis(pushed.grant.deadline.saturating_sub(pushed.now));
        let margin = self.margin();
        let ends = deadline::pushed_ends(
            pushed.grant,
            pushed.now,
            pushed.received,
            bound.as_ref(),
            margin,
        );
        let now = self.client.clock.now();
        // Half of what it can be at best, and a quarter of the window, must be left for the claim
        // to come in time. The margin can be longer than the window.
        let least = (window.saturating_sub(margin) / 2).max(window / 4);
        match ends {
            Some(ends) if ends.since(now) > least && self.options.replicas == 0 => {
                self.hold(pushed.grant, ends, now, (&pushed.from, Way::Push)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Holds from here on. Fails if it was given up or lost meanwhile.
    fn hold(
        &mut self,
        grant: Grant,
        ends: Moment,
        claim_or_renew_at: Moment,
        (node, way): (&Address, Way),
    ) -> Result<Arc<Acquisition>> {
        let held = match self.goal {
            Goal::Take(..) => self.hold_anew(grant, ends, claim_or_renew_at),
            Goal::Upgrade { .. } => self.hold_as_writer(grant, ends, claim_or_renew_at),
        };
        if !held {
            return Err(self.over());
        }
        self.settled = true;
        let took = self.client.clock.now().since(self.started);
        let (lock, waited) = (&self.acquisition.lock, self.queued_since.is_some());
        telemetry::granted(lock, self.mode, node, grant.token, way, took, waited);
        Ok(self.acquisition.clone())
    }

    fn hold_anew(&self, grant: Grant, ends: Moment, claim_or_renew_at: Moment) -> bool {
        let now = self.client.clock.now();
        let claims = claim_or_renew_at <= now;
        let renewals = Renewals {
            left: match self.options.renewal {
                Renewal::Automatic => None,
                Renewal::AtMost(most) => Some(most),
                Renewal::Manual => Some(0),
            }
            .map(|left| left.saturating_add(u32::from(claims))),
            hold_ends: self.options.hold.map(|hold| now.after(hold)),
        };
        let holding = Holding {
            mode: self.mode,
            token: grant.token,
            token_since: now,
            ends,
            lease: self.options.lease,
            margin: self.margin(),
            renew_at: renewals.go_on(now).then_some(claim_or_renew_at),
            renewals,
            renewing: false,
            failing: false,
            revoked: false,
            lost: false,
            replaced: false,
            in_doubt: self.acquisition.with_acquiring(|acquiring| acquiring.in_doubt).flatten(),
            since: now,
            replicas: self.options.replicas,
            releasing: false,
            upgrade: None,
            pending: None,
        };
        self.client.hold(&self.acquisition, holding)
    }

    fn hold_as_writer(&self, grant: Grant, ends: Moment, claim_or_renew_at: Moment) -> bool {
        let now = self.client.clock.now();
        let due = self.acquisition.with_holding(|holding| {
            if !holding.is_held(now) {
                return None;
            }
            holding.in_doubt = holding.in_doubt();
            holding.upgrade = None;
            (holding.mode, holding.token, holding.token_since) = (Mode::Write, grant.token, now);
            holding.prolong(ends);
            if claim_or_renew_at <= now {
                let left = &mut holding.renewals.left;
                *left = left.map(|left| left.saturating_add(1));
            }
            holding.renew_at = holding.renewals.go_on(now).then_some(claim_or_renew_at);
            Some(holding.next_due())
        });
        let Some(due) = due.flatten() else {
            return false;
        };
        self.client.schedule(&self.acquisition, due);
        self.acquisition.changed.notify_waiters();
        true
    }

    /// Why the request is no longer wanted.
    fn over(&self) -> Error {
        match self.acquisition.with_holding(|_| ()) {
            Some(()) => Error::new(ErrorKind::Lost, "the lease is lost"),
            None => Error::new(ErrorKind::Cancelled, "the client is shut down"),
        }
    }

    /// Nothing of it is at the server: nothing need be sent, unless an attempt without an answer is
    /// under way, or an earlier wait must be ended.
    fn settle(&mut self) {
        let may_be_there =
            |acquiring: &mut Acquiring| acquiring.in_doubt.is_some() || acquiring.lingers;
        if self.acquisition.with_acquiring(may_be_there) == Some(true) {
            return;
        }
        self.settled = true;
        match self.goal {
            Goal::Take(..) => self.client.forget(&self.acquisition),
            Goal::Upgrade { .. } => {
                self.acquisition.with_holding(|holding| holding.upgrade = None);
            }
        }
    }

    fn margin(&self) -> Duration {
        self.client.settings.margin(self.options.lease)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let now = self.client.clock.now();
        if let Some(since) = self.queued_since {
            self.span.in_scope(|| {
                telemetry::waited(&self.acquisition.lock, self.mode, self.outcome, now.since(since))
            });
        }
        telemetry::acquired(&self.span, self.mode, self.outcome, now.since(self.started));
        match self.goal {
            _ if self.settled => {}
            Goal::Take(..) => self.client.abandon(&self.acquisition),
            Goal::Upgrade { .. } => self.client.end_wait(&self.acquisition),
        }
    }
}

fn is_out_of_memory(error: &CallError) -> bool {
    matches!(&error.reason, Reason::Refused(said) if said.code == "OOM")
}

pub(crate) fn out_of_time() -> Error {
    Error::new(ErrorKind::TimedOut, "it was not our turn in the time that was given")
}

pub(crate) fn too_few_replicas(confirmed: u32, wanted: u32) -> Error {
    let message = format!("{confirmed} of the {wanted} requested replicas confirmed it in time");
    Error::new(ErrorKind::Unavailable, message)
}
