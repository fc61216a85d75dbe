//! Makes the calls of a request, and waits. The acquisition decides what to do next.

use std::sync::Arc;

use futures::future::select;
use tracing::{Instrument, Span};

use crate::client::acquisition::{Acquisition, Event, Next, State, lost};
use crate::client::reply::read;
use crate::client::request::{LeaseOptions, WaitPolicy};
use crate::client::telemetry;
use crate::client::{Client, WaitingIn};
use crate::clock::Moment;
use crate::error::Result;
use crate::protocol::{Acquire, AcquisitionId, Goal, LockKey, Mode};
use crate::router::Call;
use crate::telemetry::emit_in_drop;

/// Acquires the lock. `None` if it was a try and others hold the lock.
///
/// Cancel safe: if the future is dropped, what it was granted is released.
pub(crate) async fn take(
    client: &Arc<Client>,
    lock: &LockKey,
    mode: Mode,
    options: &LeaseOptions,
    policy: WaitPolicy,
) -> Result<Option<Arc<Acquisition>>> {
    let goal = options.permits.map_or(Goal::Take(mode, options.fairness), Goal::Permits);
    reach(client, lock, (goal, mode), options, policy).await
}

/// Takes up the lease of another acquisition.
///
/// Cancel safe: if the future is dropped, what it has taken up is released.
pub(crate) async fn take_up(
    client: &Arc<Client>,
    lock: &LockKey,
    (mode, from, token): (Mode, AcquisitionId, u64),
    options: &LeaseOptions,
    until: Moment,
) -> Result<Arc<Acquisition>> {
    let goal = Goal::TakeUp { mode, from, token };
    let taken = reach(client, lock, (goal, mode), options, WaitPolicy::strict_try(until)).await?;
    taken.ok_or_else(|| lock.with_lock(lost())) // unlike a try, it is never refused
}

/// Runs a new acquisition. `None` if it was a try and others hold the lock.
async fn reach(
    client: &Arc<Client>,
    lock: &LockKey,
    (goal, mode): (Goal, Mode),
    options: &LeaseOptions,
    policy: WaitPolicy,
) -> Result<Option<Arc<Acquisition>>> {
    let now = client.clock.now();
    let acquisition = client.register(lock, State::new(goal, options, policy, now))?;
    let unclaimed = Unclaimed { client, acquisition: Some(acquisition.clone()) };
    let held = {
        let mut request = Request::new(client, acquisition, mode, now);
        let first = request.call_event();
        request.watched(first).await
    };
    match held {
        Ok(true) => Ok(unclaimed.claim()),
        Ok(false) => Ok(None),
        Err(error) => Err(lock.with_lock(client.failure_or(error))),
    }
}

/// Upgrades a read to a write. False if it was a try and others read.
///
/// Cancel safe: if the future is dropped, the read stays, and the worker undoes the upgrade.
pub(crate) async fn upgrade(
    client: &Arc<Client>,
    acquisition: &Arc<Acquisition>,
    policy: WaitPolicy,
) -> Result<bool> {
    let lock = &acquisition.lock;
    let begun = wait(client, acquisition, || Event::Upgrade(policy)).await;
    if let Next::Failed(error) = begun {
        return Err(lock.with_lock(client.failure_or(error)));
    }
    let now = client.clock.now();
    let mut request = Request::new(client, acquisition.clone(), Mode::Write, now);
    let upgraded = request.watched(begun).await;
    upgraded.map_err(|error| lock.with_lock(client.failure_or(error)))
}

/// Repeats the event until the acquisition does not say to wait.
async fn wait(client: &Client, acquisition: &Acquisition, event: impl Fn() -> Event) -> Next {
    loop {
        let changed = std::pin::pin!(acquisition.changed.notified());
        match on(client, acquisition, event()) {
            Next::Wait(until) => {
                select(changed, client.clock.sleep_until(until)).await;
            }
            next => return next,
        }
    }
}

fn on(client: &Client, acquisition: &Acquisition, event: Event) -> Next {
    client.on(acquisition, event).next.unwrap_or(Next::Again)
}

/// An acquisition that nobody has a guard of so far. Dropping it gives it up: a subscriber may
/// panic at the event of the grant.
struct Unclaimed<'a> {
    client: &'a Client,
    acquisition: Option<Arc<Acquisition>>,
}

impl Unclaimed<'_> {
    fn claim(mut self) -> Option<Arc<Acquisition>> {
        self.acquisition.take()
    }
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        if let Some(acquisition) = &self.acquisition {
            self.client.on(acquisition, Event::Drop);
        }
    }
}

/// A request under way. Dropping it gives it up.
struct Request<'a> {
    client: &'a Arc<Client>,
    acquisition: Arc<Acquisition>,
    mode: Mode,
    started: Moment,
    waiting: Option<WaitingIn>,
    /// The server at which the last call said that this client has subscribed.
    joined_at: Option<String>,
    span: Span,
    /// When it got its place in the queue.
    queued_since: Option<Moment>,
    /// Its outcome in a word, for telemetry.
    outcome: &'static str,
}

impl<'a> Request<'a> {
    fn new(
        client: &'a Arc<Client>,
        acquisition: Arc<Acquisition>,
        mode: Mode,
        started: Moment,
    ) -> Self {
        let span = telemetry::acquire(&acquisition.lock, mode);
        Request {
            client,
            acquisition,
            mode,
            started,
            waiting: None,
            joined_at: None,
            span,
            queued_since: None,
            outcome: "dropped",
        }
    }

    /// Runs, and notes the outcome.
    async fn watched(&mut self, next: Next) -> Result<bool> {
        // Most requests have no span, and need no instrumented future.
        let result = match self.span.is_disabled() {
            true => self.run(next).await,
            false => {
                let span = self.span.clone();
                Box::pin(self.run(next).instrument(span)).await
            }
        };
        self.outcome = match &result {
            Ok(true) => "granted",
            Ok(false) => "busy",
            Err(error) => telemetry::outcome_of(error.kind()),
        };
        result
    }

    /// True when it holds the lock, false when a try was refused.
    async fn run(&mut self, mut next: Next) -> Result<bool> {
        loop {
            next = match next {
                Next::Again => self.call_event(),
                Next::Send { acquire, replicas, until } => {
                    let call = self.call_of(acquire, until);
                    self.call(&call, replicas, until).await
                }
                Next::Wait(_) => self.wait().await,
                Next::Held { token, by, node } => {
                    let took = || self.client.clock.now().since(self.started);
                    let (lock, waited) = (&self.acquisition.lock, self.queued_since.is_some());
                    telemetry::granted(lock, self.mode, &node, token, by, took, waited);
                    return Ok(true);
                }
                Next::Refused => return Ok(false),
                Next::Failed(error) => return Err(error),
            }
        }
    }

    fn call_event(&mut self) -> Next {
        self.joined_at = self.subscribed_at();
        let event = Event::Call { hears: self.joined_at.is_some() };
        on(self.client, &self.acquisition, event)
    }

    fn call_of(&self, mut acquire: Acquire, until: Moment) -> Call {
        if let Some(wait) = &mut acquire.wait {
            wait.joined_at.clone_from(&self.joined_at);
        }
        let Acquisition { id, lock, .. } = &*self.acquisition;
        acquire.call(self.client.scripts, *id, lock, until)
    }

    async fn call(&mut self, call: &Call, replicas: u32, until: Moment) -> Next {
        let result = self.client.router.call_replicated(call, replicas, until).await;
        let outcome = read(result, Acquire::read);
        if let Ok(told) = &outcome {
            telemetry::answered(&self.span, &told.node);
        }
        on(self.client, &self.acquisition, Event::Acquired(outcome))
    }

    /// Waits for a push, or until the next poll is due.
    async fn wait(&mut self) -> Next {
        self.queued_since.get_or_insert_with(|| self.client.clock.now());
        if self.waiting.is_none() {
            self.waiting = Some(self.client.wait_in(&self.acquisition));
        }
        // The client subscribed while the call was under way, before there was a waiter to notify.
        // The queue does not have its server's name, so the server would not push.
        if self.subscribed_at() != self.joined_at {
            return Next::Again;
        }
        wait(self.client, &self.acquisition, || Event::Wake).await
    }

    /// The server at which this client is subscribed in the lock's slot now.
    fn subscribed_at(&self) -> Option<String> {
        self.client.router.joined_at(self.acquisition.lock.slot)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let now = self.client.on(&self.acquisition, Event::Leave).now;
        emit_in_drop(|| {
            // The subscriber is told of its end as well.
            let span = std::mem::replace(&mut self.span, Span::none());
            let Request { acquisition, mode, outcome, .. } = self;
            if let Some(since) = self.queued_since {
                span.in_scope(|| {
                    telemetry::waited(&acquisition.lock, *mode, outcome, now.since(since));
                });
            }
            telemetry::acquired(&span, *mode, outcome, now.since(self.started));
        });
    }
}
