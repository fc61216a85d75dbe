//! Makes the calls of a request, and waits. The acquisition decides what to do next.

use std::cell::Cell;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select;
use rwlease_core::acquisition::{
    AcquisitionError, AcquisitionEvent, AcquisitionState, LeaseOptions, RequestStep, WaitPolicy,
};
use rwlease_core::protocol::{
    AcquireKind, AcquireRequest, AcquisitionId, Call, CallError, CallErrorKind, Confirmation,
    LockKey, LockMode, parse_reply,
};
use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;
use tracing::{Instrument, Span};

use crate::client::acquisition::Acquisition;
use crate::client::{ClientInner, SlotSubscription, telemetry};
use crate::error::{AddContext, ErrorKind, Result};
use crate::on_drop::OnDrop;
use crate::telemetry::emit_in_drop;

/// A request that has had no reply for so long is reported.
const REPORTED_SILENCE: Duration = Duration::from_secs(5);

/// The shortest time between two such reports of a client.
const SILENCE_REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// Acquires the lock. Returns `None` if a try found the lock busy.
///
/// Cancel safe: if the future is dropped, a granted lock is released.
pub(crate) async fn acquire(
    client: &Arc<ClientInner>,
    lock: &LockKey,
    mode: LockMode,
    options: &LeaseOptions,
    policy: WaitPolicy,
) -> Result<Option<Arc<Acquisition>>> {
    acquire_observed(client, lock, mode, options, policy, |_| {}).await
}

/// As [`acquire`], and shows the acquisition before its first call.
pub(crate) async fn acquire_observed(
    client: &Arc<ClientInner>,
    lock: &LockKey,
    mode: LockMode,
    options: &LeaseOptions,
    policy: WaitPolicy,
    observe: impl FnOnce(&Arc<Acquisition>),
) -> Result<Option<Arc<Acquisition>>> {
    let goal =
        options.permits.map_or(AcquireKind::Lock(mode, options.fairness), AcquireKind::Permits);
    run_acquisition(client, lock, (goal, mode), options, policy, observe).await
}

/// Accepts a transfer: takes over the lease of another acquisition.
///
/// Cancel safe: dropping the future releases an accepted lease.
pub(crate) async fn accept_transfer(
    client: &Arc<ClientInner>,
    lock: &LockKey,
    (mode, from, token): (LockMode, AcquisitionId, u64),
    options: &LeaseOptions,
    deadline: LocalInstant,
) -> Result<Arc<Acquisition>> {
    let goal = AcquireKind::Transfer { mode, from, token };
    let acquired = run_acquisition(
        client,
        lock,
        (goal, mode),
        options,
        WaitPolicy::strict_try(deadline),
        |_| {},
    )
    .await?;
    acquired.ok_or_else(|| lock.add_context(AcquisitionError::LeaseLost)) // unlike a try, it is never refused
}

/// Runs a new acquisition. Returns `None` if a try found the lock busy.
async fn run_acquisition(
    client: &Arc<ClientInner>,
    lock: &LockKey,
    (goal, mode): (AcquireKind, LockMode),
    options: &LeaseOptions,
    policy: WaitPolicy,
    observe: impl FnOnce(&Arc<Acquisition>),
) -> Result<Option<Arc<Acquisition>>> {
    let now = client.clock.now();
    let acquisition = client.register(lock, AcquisitionState::new(goal, options, policy, now))?;
    observe(&acquisition);
    let unclaimed = acquisition.clone();
    // A subscriber may panic at the event of the grant.
    let abandon = OnDrop::new(|| drop(client.apply(&unclaimed, AcquisitionEvent::Abandon)));
    let held = {
        let mut request = AcquireTask::new(client, acquisition, mode, now);
        let first = request.call_event();
        request.run_with_telemetry(first).await
    };
    match held {
        Ok(true) => {
            abandon.disarm();
            Ok(Some(unclaimed))
        }
        Ok(false) => Ok(None),
        Err(error) => Err(lock.add_context(error)),
    }
}

/// Upgrades a read to a write. Returns false if a try found other readers.
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
    upgraded.map_err(|error| lock.add_context(error))
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

thread_local! {
    /// Whether this thread drops requests because their caller cancelled them.
    static IS_CANCELLING: Cell<bool> = const { Cell::new(false) };
}

/// Drops requests because their caller cancelled them: that is their outcome, not that they were
/// dropped.
pub(crate) fn cancel(drop_requests: impl FnOnce()) {
    IS_CANCELLING.set(true);
    let _reset = OnDrop::new(|| IS_CANCELLING.set(false));
    drop_requests();
}

/// The outcome of a request whose future was dropped.
const DROPPED: &str = "dropped";

/// A request in progress. Dropping it abandons the request.
struct AcquireTask<'a> {
    client: &'a Arc<ClientInner>,
    acquisition: Arc<Acquisition>,
    mode: LockMode,
    started_at: LocalInstant,
    subscription: Option<SlotSubscription>,
    /// The server of the subscription that the last call reported.
    subscribed_server: Option<String>,
    span: Span,
    /// The last server that replied, if the request has a span.
    last_server: Option<Address>,
    /// Why the last call that can tell got no usable reply.
    last_failure: Option<Arc<dyn StdError + Send + Sync>>,
    /// Whether it was reported that no server answers.
    is_silence_reported: bool,
    /// When the request joined the queue.
    queued_since: Option<LocalInstant>,
    /// The outcome of the request, as events and metrics name it.
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
            last_server: None,
            last_failure: None,
            is_silence_reported: false,
            queued_since: None,
            outcome: DROPPED,
        }
    }

    /// Runs the request, and sets its outcome. Its error is that of the client if that has failed.
    async fn run_with_telemetry(&mut self, next: RequestStep) -> Result<bool> {
        // Most requests have no span, and need no instrumented future.
        let result = match self.span.is_disabled() {
            true => self.run(next).await,
            false => {
                let span = self.span.clone();
                Box::pin(self.run(next).instrument(span)).await
            }
        };
        let result = result.map_err(|error| self.client.failure_or(error));
        self.outcome = match &result {
            Ok(true) => "granted",
            Ok(false) => "busy",
            Err(error) => telemetry::outcome_label(error.kind()),
        };
        result
    }

    /// Returns true if the lock was granted, and false if a try found it busy.
    async fn run(&mut self, mut next: RequestStep) -> Result<bool> {
        loop {
            next = match next {
                RequestStep::CallNow => self.call_event(),
                RequestStep::Send { acquire, confirmation, deadline } => {
                    let call = self.build_call(acquire, deadline);
                    self.call(&call, confirmation, deadline).await
                }
                RequestStep::WaitUntil(_) => self.drive_until_ready().await,
                RequestStep::Granted { token, source, server } => {
                    let took =
                        || self.client.clock.now().saturating_duration_since(self.started_at);
                    let (lock, waited) = (&self.acquisition.lock, self.queued_since.is_some());
                    telemetry::record_grant(lock, self.mode, &server, token, source, took, waited);
                    return Ok(true);
                }
                RequestStep::Busy => return Ok(false),
                RequestStep::Failed(error) => return Err(error.into()),
            }
        }
    }

    fn call_event(&mut self) -> RequestStep {
        self.subscribed_server = self.subscribed_server();
        let event = AcquisitionEvent::Call { is_subscribed: self.subscribed_server.is_some() };
        apply(self.client, &self.acquisition, event)
    }

    fn build_call(&self, mut acquire: AcquireRequest, deadline: LocalInstant) -> Call {
        if let Some(wait) = &mut acquire.wait {
            wait.subscribed_server.clone_from(&self.subscribed_server);
        }
        let Acquisition { id, lock, .. } = &*self.acquisition;
        acquire.call(*id, lock, deadline)
    }

    async fn call(
        &mut self,
        call: &Call,
        confirmation: Confirmation,
        deadline: LocalInstant,
    ) -> RequestStep {
        let gate = Some(&self.acquisition.send_gate);
        let transport = &self.client.transport;
        let result = transport.call_with(call, confirmation, deadline, gate).await;
        let outcome = parse_reply(result, AcquireRequest::read);
        let outcome = outcome.map_err(|error| self.with_reason(error));
        // A formatter prints a field once for each time that it is recorded, so the span gets its
        // server at the end.
        if let Ok(reply) = &outcome
            && !self.span.is_disabled()
        {
            self.last_server = Some(reply.server.clone());
        }
        let is_answered = outcome.is_ok();
        let next = apply(self.client, &self.acquisition, AcquisitionEvent::AcquireReply(outcome));
        if is_answered {
            self.is_silence_reported = false;
        } else if matches!(next, RequestStep::CallNow) {
            self.report_silence();
        }
        next
    }

    /// Reports once that no server has answered for a while. The request goes on.
    fn report_silence(&mut self) {
        let now = self.client.clock.now();
        let silence = self.acquisition.state().request().map(|request| request.silence(now));
        let silence = silence.unwrap_or_default();
        if silence >= REPORTED_SILENCE
            && !self.is_silence_reported
            && self.client.silence_report_limit.try_acquire(now, SILENCE_REPORT_INTERVAL)
        {
            self.is_silence_reported = true;
            let failure = self.last_failure.as_deref();
            telemetry::emit_unanswered(&self.acquisition.lock, self.mode, silence, failure);
        }
    }

    /// A last call near the deadline has no time to find out why it gets no reply: its error has
    /// the reason of the call before it.
    fn with_reason(&mut self, mut error: CallError) -> CallError {
        let source = &mut error.source;
        match &error.kind {
            CallErrorKind::TimedOut(None) if source.is_none() => {
                source.clone_from(&self.last_failure)
            }
            CallErrorKind::TimedOut(Some(reply)) => {
                self.last_failure = Some(Arc::new(reply.clone()))
            }
            CallErrorKind::TooManyRedirects(_) => {
                let reason = Box::<dyn StdError + Send + Sync>::from(error.kind.to_string());
                self.last_failure = Some(reason.into());
            }
            _ => self.last_failure.clone_from(source),
        }
        error
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

    /// Returns the server at which this client is subscribed in the lock's slot now.
    fn subscribed_server(&self) -> Option<String> {
        self.client.subscribed_server(self.acquisition.lock.slot)
    }
}

impl Drop for AcquireTask<'_> {
    fn drop(&mut self) {
        let now = self.client.apply(&self.acquisition, AcquisitionEvent::RequestEnded).now;
        emit_in_drop(|| {
            // The subscriber is reply of its end as well.
            let span = std::mem::replace(&mut self.span, Span::none());
            let AcquireTask { acquisition, mode, .. } = self;
            let outcome = match self.outcome {
                DROPPED if IS_CANCELLING.get() => telemetry::outcome_label(ErrorKind::Cancelled),
                outcome => outcome,
            };
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
            if let Some(server) = &self.last_server {
                telemetry::record_server(&span, server);
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
