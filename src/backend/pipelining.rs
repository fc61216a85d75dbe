//! Passes commands that are ready at the same time to a client crate in pipelines.
//!
//! tokio runs a task that was just woken next, so the task that drives a crate's connection would
//! write each command separately: a system call and a wake-up for each, here and at the server. So
//! this task lets the others run first. Then all callers that are ready have put in their commands,
//! and the crate writes many of them together.
//!
//! A command that is alone on its connection does not wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, Waker};

use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future};
use rwlease_core::resp::{Command, ProtocolError, ReplyShape, RespValue};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::backend::{CommandConnection, ConnectionError, ResponseFuture};
use crate::health::ClientHealth;
use crate::locks::lock;
use crate::on_drop::OnDrop;

/// A pipeline has at most so many requests, or a fourth of those under way if that is more. Its
/// callers get their answers together: if all callers were in one, client and server would take
/// turns, and each would be idle while the other one works.
const MAX_PIPELINE: usize = 32;

/// Most requests are one command.
type Commands = SmallVec<[Command; 1]>;
type PipelineReplies = SmallVec<[RespValue; 1]>;
type PipelineResult = Result<PipelineReplies, ConnectionError>;

/// A connection whose commands are passed on together.
pub(super) struct PipeliningConnection {
    queue: Arc<PipelineQueue>,
    /// Pending answers keep the task, too.
    task: Arc<AbortOnDropHandle<()>>,
}

struct PipelineQueue {
    node: Arc<dyn CommandConnection>,
    /// The first reply that did not fit its command. All later replies are distrusted.
    out_of_step: OnceLock<ConnectionError>,
    /// Requests that have begun and not ended.
    in_flight: AtomicUsize,
    waiting: Mutex<QueuedRequests>,
}

#[derive(Default)]
struct QueuedRequests {
    requests: VecDeque<QueuedRequest>,
    /// The task's waker, while there is nothing to pass on.
    task: Option<Waker>,
}

/// Commands that are sent directly after each other.
struct QueuedRequest {
    commands: Commands,
    reply_tx: oneshot::Sender<PipelineResult>,
}

impl PipeliningConnection {
    pub(super) fn wrap(
        node: Arc<dyn CommandConnection>,
        health: &ClientHealth,
    ) -> Arc<dyn CommandConnection> {
        let queue = Arc::new(PipelineQueue {
            node,
            out_of_step: OnceLock::new(),
            in_flight: AtomicUsize::new(0),
            waiting: Mutex::default(),
        });
        let task = Arc::new(health.spawn("pipelines", run_pipeline(queue.clone())));
        Arc::new(PipeliningConnection { queue, task })
    }

    fn request(&self, commands: Commands) -> impl Future<Output = PipelineResult> + Send + use<> {
        let (queue, task) = (self.queue.clone(), self.task.clone());
        async move {
            let outcome = queue.request(commands).await;
            drop(task);
            outcome
        }
    }
}

impl CommandConnection for PipeliningConnection {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let request = self.request(SmallVec::from_buf([command]));
        async move { Ok(request.await?.pop().unwrap_or(RespValue::Nil)) }.boxed().into()
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        let request = self.request(commands.into());
        async move { Ok(request.await?.into_vec()) }.boxed().into()
    }

    fn is_usable(&self) -> bool {
        self.queue.out_of_step.get().is_none() && self.queue.node.is_usable()
    }

    fn resolved_addr(&self) -> Option<Arc<str>> {
        self.queue.node.resolved_addr()
    }
}

impl PipelineQueue {
    async fn request(&self, commands: Commands) -> PipelineResult {
        let others = self.in_flight.fetch_add(1, Ordering::AcqRel);
        // Also if its caller gives up.
        let _end = OnDrop::new(|| {
            self.in_flight.fetch_sub(1, Ordering::AcqRel);
        });
        if others == 0 {
            return self.send(commands).await;
        }
        let (tell, told) = oneshot::channel();
        let task = {
            let mut waiting = lock(&self.waiting);
            waiting.requests.push_back(QueuedRequest { commands, reply_tx: tell });
            waiting.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
        let outcome = told.await.map_err(|_| ConnectionError::closed_in_flight())?;
        self.believed(outcome)
    }

    /// Sends commands, and checks that each gets an answer of its shape.
    async fn send(&self, commands: Commands) -> PipelineResult {
        if let Some(failure) = self.out_of_step.get() {
            return Err(ConnectionError { maybe_sent: false, ..failure.clone() });
        }
        let shapes: SmallVec<[ReplyShape; 1]> = commands.iter().map(Command::shape).collect();
        let outcome = send(&*self.node, commands).await;
        let failure = match &outcome {
            Ok(replies) => {
                let mut checks = shapes.iter().zip(replies).map(|(shape, one)| shape.check(one));
                checks.find_map(Result::err).map(ConnectionError::from)
            }
            Err(failure) => Some(failure.clone()).filter(|failure| failure.is_protocol_error),
        };
        if let Some(failure) = failure {
            let _ = self.out_of_step.set(failure); // the first one stays
        }
        self.believed(outcome)
    }

    fn believed(&self, outcome: PipelineResult) -> PipelineResult {
        match self.out_of_step.get() {
            Some(failure) if outcome.is_ok() => {
                Err(ConnectionError { maybe_sent: true, ..failure.clone() })
            }
            _ => outcome,
        }
    }

    /// Waits until there is something to pass on.
    async fn wait_nonempty(&self) {
        future::poll_fn(|context| {
            let mut waiting = lock(&self.waiting);
            if waiting.requests.is_empty() {
                waiting.task = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Removes and returns the first requests. Skips requests whose callers were dropped.
    fn take_batch(&self) -> Vec<QueuedRequest> {
        let mut waiting = lock(&self.waiting);
        let most = MAX_PIPELINE.max(self.in_flight.load(Ordering::Relaxed) / 4);
        let count = waiting.requests.len().min(most);
        let first = waiting.requests.drain(..count);
        first.filter(|request| !request.reply_tx.is_closed()).collect()
    }
}

/// Passes on what waits, again and again.
async fn run_pipeline(queue: Arc<PipelineQueue>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            // First, because a batch is sent at its first poll.
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            () = queue.wait_nonempty() => {
                tokio::task::yield_now().await;
                let requests = queue.take_batch();
                if !requests.is_empty() {
                    under_way.push(send_all(&queue, requests));
                }
            }
        }
    }
}

/// Sends requests together, and gives each its own answers.
async fn send_all(queue: &PipelineQueue, mut requests: Vec<QueuedRequest>) {
    let mut commands = Commands::new();
    let counts: Vec<usize> = requests
        .iter_mut()
        .map(|request| {
            let count = request.commands.len();
            commands.extend(request.commands.drain(..));
            count
        })
        .collect();
    let mut outcome = queue.send(commands).await.map(IntoIterator::into_iter);
    for (QueuedRequest { reply_tx: tell, .. }, count) in requests.into_iter().zip(counts) {
        let own = match &mut outcome {
            Ok(replies) => Ok(replies.take(count).collect()),
            Err(failure) => Err(failure.clone()),
        };
        // The caller may have given up.
        let _ = tell.send(own);
    }
}

/// One answer for each command.
async fn send(node: &dyn CommandConnection, mut commands: Commands) -> PipelineResult {
    if commands.len() == 1
        && let Some(command) = commands.pop()
    {
        return node.call(command).await.map(|reply| SmallVec::from_buf([reply]));
    }
    let replies = node.pipeline(&commands).await?;
    if replies.len() == commands.len() {
        return Ok(replies.into());
    }
    // It is unknown which answer belongs to which command.
    let message = format!("unexpected replies: {} to {} commands", replies.len(), commands.len());
    let failure = ConnectionError::from(ProtocolError(message.into()));
    Err(ConnectionError { maybe_sent: true, ..failure })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests;
