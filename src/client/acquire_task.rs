//! Makes the calls of a request, and waits. The acquisition decides what to do next.

use std::sync::Arc;

use futures::future::select;
use tracing::{Instrument, Span};

use crate::client::acquisition::{
    Acquisition, AcquisitionEvent, AcquisitionState, RequestStep, lease_lost_error,
};
use crate::client::lease_options::{LeaseOptions, WaitPolicy};
use crate::client::script_result::parse_reply;
use crate::client::telemetry;
use crate::client::{ClientInner, SlotSubscription};
use crate::clock::LocalInstant;
use crate::error::Result;
use crate::protocol::{AcquireKind, AcquireRequest, AcquisitionId, LockKey, LockMode};
use crate::router::Call;
use crate::telemetry::emit_in_drop;

/// Acquires the lock. `None` if it was a try and others hold the lock.
///
/// Cancel safe: if the future is dropped, what it was granted is released.
pub(crate) async fn acquire(
    client: &Arc<ClientInner>,
    lock: &LockKey,
    mode: LockMode,
    options: &LeaseOptions,
    policy: WaitPolicy,
) -> Result<Option<Arc<Acquisition>>> {
    let goal =
        options.permits.map_or(AcquireKind::Lock(mode, options.fairness), AcquireKind::Permits);
    run_acquisition(client, lock, (goal, mode), options, policy).await
}

/// Takes up the lease of another acquisition.
///
/// Cancel safe: if the future is dropped, what it has taken up is released.
pub(crate) async fn accept_transfer(
    client: &Arc<ClientInner>,
    lock: &LockKey,
    (mode, from, token): (LockMode, AcquisitionId, u64),
    options: &LeaseOptions,
    until: LocalInstant,
) -> Result<Arc<Acquisition>> {
    let goal = AcquireKind::Transfer { mode, from, token };
    let taken =
        run_acquisition(client, lock, (goal, mode), options, WaitPolicy::strict_try(until)).await?;
    taken.ok_or_else(|| lock.add_context(lease_lost_error())) // unlike a try, it is never refused
}

/// Runs a new acquisition. `None` if it was a try and others hold the lock.
async fn run_acquisition(
    client: &Arc<ClientInner>,
    lock: &LockKey,
    (goal, mode): (AcquireKind, LockMode),
    options: &LeaseOptions,
    policy: WaitPolicy,
) -> Result<Option<Arc<Acquisition>>> {
    let now = client.clock.now();
    let acquisition = client.register(lock, AcquisitionState::new(goal, options, policy, now))?;
    let unclaimed = UnclaimedGuard { client, acquisition: Some(acquisition.clone()) };
    let held = {
        let mut request = AcquireTask::new(client, acquisition, mode, now);
        let first = request.call_event();
        request.run_with_telemetry(first).await
    };
    match held {
        Ok(true) => Ok(unclaimed.claim()),
        Ok(false) => Ok(None),
        Err(error) => Err(lock.add_context(client.failure_or(error))),
    }
}

/// Upgrades a read to a write. False if it was a try and others read.
///
/// Cancel safe: if the future is dropped, the read stays, and the worker undoes the upgrade.
pub(crate) async fn upgrade(
    client: &Arc<ClientInner>,
    acquisition: &Arc<Acquisition>,
    policy: WaitPolicy,
) -> Result<bool> {
    let lock = &acquisition.lock;
    let begun = drive_until_ready(client, acquisition, || AcquisitionEvent::Upgrade(policy)).await;
    if let RequestStep::Failed(error) = begun {
        return Err(lock.add_context(client.failure_or(error)));
    }
    let now = client.clock.now();
    let mut request = AcquireTask::new(client, acquisition.clone(), LockMode::Write, now);
    let upgraded = request.run_with_telemetry(begun).await;
    upgraded.map_err(|error| lock.add_context(client.failure_or(error)))
}

/// Repeats the event until the acquisition does not say to wait.
async fn drive_until_ready(
    client: &ClientInner,
    acquisition: &Acquisition,
    event: impl Fn() -> AcquisitionEvent,
) -> RequestStep {
    loop {
        let changed = std::pin::pin!(acquisition.changed.notified());
        match apply(client, acquisition, event()) {
            RequestStep::WaitUntil(until) => {
                select(changed, client.clock.sleep_until(until)).await;
            }
            next => return next,
        }
    }
}

fn apply(client: &ClientInner, acquisition: &Acquisition, event: AcquisitionEvent) -> RequestStep {
    client.apply(acquisition, event).next_step.unwrap_or(RequestStep::CallNow)
}

/// An acquisition that nobody has a guard of so far. Dropping it gives it up: a subscriber may
/// panic at the event of the grant.
struct UnclaimedGuard<'a> {
    client: &'a ClientInner,
    acquisition: Option<Arc<Acquisition>>,
}

impl UnclaimedGuard<'_> {
    fn claim(mut self) -> Option<Arc<Acquisition>> {
        self.acquisition.take()
    }
}

impl Drop for UnclaimedGuard<'_> {
    fn drop(&mut self) {
        if let Some(acquisition) = &self.acquisition {
            self.client.apply(acquisition, AcquisitionEvent::Abandon);
        }
    }
}

/// A request under way. Dropping it gives it up.
struct AcquireTask<'a> {
    client: &'a Arc<ClientInner>,
    acquisition: Arc<Acquisition>,
    mode: LockMode,
    started_at: LocalInstant,
    subscription: Option<SlotSubscription>,
    /// The server at which the last call said that this client has subscribed.
    subscribed_server: Option<String>,
    span: Span,
    /// When it got its place in the queue.
    queued_since: Option<LocalInstant>,
    /// Its outcome in a word, for telemetry.
    outcome: &'static str,
}

impl<'a> AcquireTask<'a> {
    fn new(
        client: &'a Arc<ClientInner>,
        acquisition: Arc<Acquisition>,
        mode: LockMode,
        started: LocalInstant,
    ) -> Self {
        let span = telemetry::acquire_span(&acquisition.lock, mode);
        AcquireTask {
            client,
            acquisition,
            mode,
            started_at: started,
            subscription: None,
            subscribed_server: None,
            span,
            queued_since: None,
            outcome: "dropped",
        }
    }

    /// Runs, and notes the outcome.
    async fn run_with_telemetry(&mut self, next: RequestStep) -> Result<bool> {
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
            Err(error) => telemetry::outcome_label(error.kind()),
        };
        result
    }

    /// True when it holds the lock, false when a try was refused.
    async fn run(&mut self, mut next: RequestStep) -> Result<bool> {
        loop {
            next = match next {
                RequestStep::CallNow => self.call_event(),
                RequestStep::Send { acquire, replicas, deadline: until } => {
                    let call = self.build_call(acquire, until);
                    self.call(&call, replicas, until).await
                }
                RequestStep::WaitUntil(_) => self.drive_until_ready().await,
                RequestStep::Granted { token, by, node } => {
                    let took =
                        || self.client.clock.now().saturating_duration_since(self.started_at);
                    let (lock, waited) = (&self.acquisition.lock, self.queued_since.is_some());
                    telemetry::record_grant(lock, self.mode, &node, token, by, took, waited);
                    return Ok(true);
                }
                RequestStep::Busy => return Ok(false),
                RequestStep::Failed(error) => return Err(error),
            }
        }
    }

    fn call_event(&mut self) -> RequestStep {
        self.subscribed_server = self.subscribed_server();
        let event = AcquisitionEvent::Call { is_subscribed: self.subscribed_server.is_some() };
        apply(self.client, &self.acquisition, event)
    }

    fn build_call(&self, mut acquire: AcquireRequest, until: LocalInstant) -> Call {
        if let Some(wait) = &mut acquire.wait {
            wait.subscribed_server.clone_from(&self.subscribed_server);
        }
        let Acquisition { id, lock, .. } = &*self.acquisition;
        acquire.call(self.client.scripts, *id, lock, until)
    }

    async fn call(&mut self, call: &Call, replicas: u32, until: LocalInstant) -> RequestStep {
        let result = self.client.transport.call_replicated(call, replicas, until).await;
        let outcome = parse_reply(result, AcquireRequest::read);
        if let Ok(told) = &outcome {
            telemetry::record_server(&self.span, &told.server);
        }
        apply(self.client, &self.acquisition, AcquisitionEvent::AcquireReply(outcome))
    }

    /// Waits for a push, or until the next poll is due.
    async fn drive_until_ready(&mut self) -> RequestStep {
        self.queued_since.get_or_insert_with(|| self.client.clock.now());
        if self.subscription.is_none() {
            self.subscription = Some(self.client.subscribe_for(&self.acquisition));
        }
        // The client subscribed while the call was under way, before there was a waiter to notify.
        // The queue does not have its server's name, so the server would not push.
        if self.subscribed_server() != self.subscribed_server {
            return RequestStep::CallNow;
        }
        drive_until_ready(self.client, &self.acquisition, || AcquisitionEvent::Wake).await
    }

    /// The server at which this client is subscribed in the lock's slot now.
    fn subscribed_server(&self) -> Option<String> {
        self.client.transport.joined_at(self.acquisition.lock.slot)
    }
}

impl Drop for AcquireTask<'_> {
    fn drop(&mut self) {
        let now = self.client.apply(&self.acquisition, AcquisitionEvent::RequestEnded).now;
        emit_in_drop(|| {
            // The subscriber is told of its end as well.
            let span = std::mem::replace(&mut self.span, Span::none());
            let AcquireTask { acquisition, mode, outcome, .. } = self;
            if let Some(since) = self.queued_since {
                span.in_scope(|| {
                    telemetry::record_wait(
                        &acquisition.lock,
                        *mode,
                        outcome,
                        now.saturating_duration_since(since),
                    );
                });
            }
            telemetry::record_outcome(
                &span,
                *mode,
                outcome,
                now.saturating_duration_since(self.started_at),
            );
        });
    }
}
