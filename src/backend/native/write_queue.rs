//! The shared state of one connection: the bytes to write, and the callers that wait for replies.
//!
//! Callers put whole commands into one buffer, and the writer takes all of it at once. So commands
//! that are ready at the same time are sent together, in the order in which they were put in, and
//! the server reads them together, too.

use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use rwlease_core::resp::{Command, ReplyShape, push_header};

use crate::backend::ConnectionError;
use crate::backend::native::decoder::Frame;
use crate::backend::native::pending_replies::{
    CommandOffsets, FrameAction, PendingReplies, PendingReply,
};
use crate::locks::lock;

/// A buffer that has grown larger than this is dropped after use.
const MAX_RETAINED_CAPACITY: usize = 64 << 10;

/// The state that callers and tasks share.
#[derive(Debug)]
pub(super) struct WriteQueue {
    state: Mutex<WriteQueueState>,
    usable: AtomicBool,
    /// The replies are out of step with the commands.
    is_out_of_step: AtomicBool,
    /// How many bytes may have reached the server: those that the kernel has taken, and while the
    /// writer offers it more, these as well.
    offered: AtomicU64,
}

#[derive(Debug, Default)]
struct WriteQueueState {
    /// What the writer has not taken so far.
    outgoing: Vec<u8>,
    /// How many bytes were put into `outgoing` in total.
    queued_bytes: u64,
    expectations: PendingReplies,
    /// The writer's waker, while it waits for something to write or for the end.
    writer: Option<Waker>,
    /// Why the connection has ended.
    close_reason: Option<ConnectionError>,
}

/// What the writer finds in the buffer.
#[derive(Clone, Copy)]
enum WriteReadiness {
    /// One request, while no other one is under way.
    Single,
    /// A request while others are under way: more may come at the same time.
    Pipelined,
    Closed,
}

impl WriteQueue {
    pub(super) fn new() -> WriteQueue {
        WriteQueue {
            state: Mutex::default(),
            usable: AtomicBool::new(true),
            is_out_of_step: AtomicBool::new(false),
            offered: AtomicU64::new(0),
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Relaxed)
    }

    /// Why the connection has ended.
    pub(super) fn failure(&self) -> Option<ConnectionError> {
        lock(&self.state).close_reason.clone()
    }

    /// Returns the failure of all callers if replies did not fit their commands. Then no reply is
    /// believed that its caller has not taken so far.
    pub(super) fn out_of_step(&self) -> Option<ConnectionError> {
        if !self.is_out_of_step.load(Ordering::Acquire) {
            return None;
        }
        let why = self.failure()?;
        Some(ConnectionError { maybe_sent: true, is_protocol_error: true, ..why })
    }

    /// Notes how many bytes may have reached the server.
    pub(super) fn offer(&self, bytes: u64) {
        self.offered.store(bytes, Ordering::Release);
    }

    /// Appends commands, with the answer that is expected to each. If it fails, nothing of it is
    /// sent.
    pub(super) fn push_all(
        &self,
        commands: &[Command],
        expected: impl IntoIterator<Item = PendingReply>,
    ) -> Result<(), ConnectionError> {
        self.push_with(|state| {
            let request = state.queued_bytes;
            for (command, expected) in commands.iter().zip(expected) {
                let write = |outgoing: &mut Vec<u8>| outgoing.extend_from_slice(command.bytes());
                state.put(request, command.word_count(), write, command.shape(), expected);
            }
        })
    }

    /// As `put`, with one command of `words` words, which `write` adds.
    pub(super) fn push(
        &self,
        words: usize,
        write: impl FnOnce(&mut Vec<u8>),
        shape: ReplyShape,
        expected: PendingReply,
    ) -> Result<(), ConnectionError> {
        self.push_with(|state| state.put(state.queued_bytes, words, write, shape, expected))
    }

    fn push_with(&self, put: impl FnOnce(&mut WriteQueueState)) -> Result<(), ConnectionError> {
        let writer = {
            let mut state = lock(&self.state);
            if let Some(why) = &state.close_reason {
                return Err(ConnectionError { maybe_sent: false, ..why.clone() });
            }
            put(&mut state);
            state.writer.take()
        };
        // After the lock is released, because the writer needs it next.
        if let Some(writer) = writer {
            writer.wake();
        }
        Ok(())
    }

    /// Waits for something to write, and takes all of it. Returns false at the end.
    pub(super) async fn take_outgoing(&self, batch: &mut Vec<u8>) -> bool {
        match std::future::poll_fn(|context| self.poll_outgoing(context)).await {
            WriteReadiness::Single => {}
            // A task that is woken runs next. Without a turn for the others, each caller's command
            // would be written before the next caller can put in its own.
            WriteReadiness::Pipelined => tokio::task::yield_now().await,
            WriteReadiness::Closed => return false,
        }
        batch.clear();
        batch.shrink_to(MAX_RETAINED_CAPACITY);
        let mut state = lock(&self.state);
        mem::swap(&mut state.outgoing, batch);
        state.close_reason.is_none()
    }

    /// The meanings of items, in order. The caller passes them on, outside of the lock.
    pub(super) fn on_frames(
        &self,
        said: impl IntoIterator<Item = Frame>,
        meanings: &mut Vec<FrameAction>,
    ) -> Result<(), ConnectionError> {
        let offered = self.offered.load(Ordering::Acquire);
        let mut state = lock(&self.state);
        for one in said {
            meanings.extend(state.expectations.on_frame(one, offered)?);
        }
        Ok(())
    }

    /// Ends the connection: nothing more is sent. The writer notifies all waiting callers.
    pub(super) fn close(&self, why: ConnectionError) {
        self.usable.store(false, Ordering::Relaxed);
        let writer = {
            let mut state = lock(&self.state);
            if why.is_protocol_error {
                self.is_out_of_step.store(true, Ordering::Release);
            }
            state.close_reason.get_or_insert(why);
            state.writer.take()
        };
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Accepts no new requests. Requests in flight continue.
    pub(super) fn retire(&self) {
        self.usable.store(false, Ordering::Relaxed);
    }

    /// Waits for the end.
    pub(super) async fn ended(&self) {
        std::future::poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.close_reason.is_some() {
                return Poll::Ready(());
            }
            state.writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Notifies all waiting callers that it has ended, after `written` bytes.
    pub(super) fn fail_pending(&self, written: u64) {
        let (mut expectations, why) = {
            let mut state = lock(&self.state);
            let why = state.close_reason.get_or_insert_with(ConnectionError::closed).clone();
            (mem::take(&mut state.expectations), why)
        };
        expectations.fail_all(written, &why);
    }

    fn poll_outgoing(&self, context: &Context<'_>) -> Poll<WriteReadiness> {
        let mut state = lock(&self.state);
        if state.close_reason.is_some() {
            return Poll::Ready(WriteReadiness::Closed);
        }
        if state.outgoing.is_empty() {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let alone = state.expectations.len() == 1;
        Poll::Ready(if alone { WriteReadiness::Single } else { WriteReadiness::Pipelined })
    }
}

impl WriteQueueState {
    fn put(
        &mut self,
        request: u64,
        words: usize,
        write: impl FnOnce(&mut Vec<u8>),
        shape: ReplyShape,
        expected: PendingReply,
    ) {
        let offsets = CommandOffsets { command: self.queued_bytes, request };
        let before = self.outgoing.len();
        push_header(&mut self.outgoing, b'*', words);
        write(&mut self.outgoing);
        self.queued_bytes += (self.outgoing.len() - before) as u64;
        self.expectations.add(offsets, shape, expected);
    }
}
