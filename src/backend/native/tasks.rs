//! The two tasks of a connection: one writes, and one reads.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use rwlease_core::resp::ProtocolError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::backend::native::decoder::{Decoder, Frame};
use crate::backend::native::pending_replies::FrameAction;
use crate::backend::native::write_queue::WriteQueue;
use crate::backend::{ConnectionError, MessageHandler, PubSubEvent};
use crate::clock::{Clock, SystemClock};
use crate::health::ClientHealth;
use crate::on_drop::OnDrop;

/// The tasks. Dropping this aborts them. Otherwise they would wait for outstanding replies, which a
/// frozen server never sends.
#[derive(Debug)]
pub(super) struct ConnectionTasks {
    _reader: AbortOnDropHandle<()>,
    _writer: AbortOnDropHandle<()>,
}

/// Receives what happens on a subscription's connection.
#[derive(Clone)]
pub(super) struct PubSubSink {
    /// The reader alone keeps it: its receiver ends when the reader ends.
    pub(super) events: mpsc::UnboundedSender<PubSubEvent>,
    pub(super) handler: Arc<OnceLock<MessageHandler>>,
}

impl ConnectionTasks {
    pub(super) fn start(
        wire: &Arc<WriteQueue>,
        read_half: impl AsyncRead + Send + Unpin + 'static,
        write_half: impl AsyncWrite + Send + Unpin + 'static,
        listener: Option<PubSubSink>,
        health: &ClientHealth,
    ) -> ConnectionTasks {
        let ended = wire.clone();
        // However the reader's task ends.
        let end = OnDrop::new(move || ended.close(ConnectionError::closed()));
        let reader = run_reader(wire.clone(), end, read_half, listener);
        let writer = WriterTask { wire: wire.clone(), written: 0 };
        ConnectionTasks {
            _reader: health.spawn("connection reader", reader),
            _writer: health.spawn("connection writer", run_writer(writer, write_half)),
        }
    }
}

/// Ends the connection however the writer's task ends: only the writer knows what was sent.
struct WriterTask {
    wire: Arc<WriteQueue>,
    /// How many bytes the kernel has taken.
    written: u64,
}

impl Drop for WriterTask {
    fn drop(&mut self) {
        self.wire.close(ConnectionError::closed());
        self.wire.fail_pending(self.written);
    }
}

impl WriterTask {
    /// Offers bytes to the kernel. The reader may see the answer to them before this returns.
    fn offer(
        &mut self,
        bytes: &[u8],
        half: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.wire.offer(self.written + bytes.len() as u64);
        let polled = half.poll_write(context, bytes);
        match &polled {
            Poll::Ready(Ok(size)) => self.written += *size as u64,
            Poll::Ready(Err(_)) => return polled,
            Poll::Pending => {}
        }
        self.wire.offer(self.written);
        polled
    }
}

async fn run_writer(mut writer: WriterTask, mut half: impl AsyncWrite + Unpin) {
    let wire = writer.wire.clone();
    let mut batch = Vec::new();
    while wire.take_outgoing(&mut batch).await {
        let outcome = tokio::select! {
            biased;
            outcome = write_all(&mut half, &batch, &mut writer) => outcome,
            // The other side may no longer read.
            () = wire.ended() => return,
        };
        if let Err(error) = outcome {
            // The other side may have said why, before it closed the connection.
            wire.retire();
            let late = SystemClock.sleep_until(SystemClock.now().saturating_add(LAST_WORDS));
            tokio::select! {
                () = wire.ended() => {}
                () = late => wire.close(error.into()),
            }
        }
    }
}

async fn write_all(
    half: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    writer: &mut WriterTask,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|context| writer.offer(bytes, Pin::new(&mut *half), context)).await {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(size) => bytes = &bytes[size..],
            Err(error) => {
                // TLS may have passed on a part of it before.
                writer.written += bytes.len() as u64;
                return Err(error);
            }
        }
    }
    half.flush().await
}

/// How long the reader may take to find what the other side said last.
const LAST_WORDS: Duration = Duration::from_millis(100);

const CLOSED_BY_SERVER: &str = "the server closed the connection";

async fn run_reader(
    wire: Arc<WriteQueue>,
    _end: OnDrop<impl FnOnce()>,
    mut half: impl AsyncRead + Unpin,
    listener: Option<PubSubSink>,
) {
    let mut decoder = Decoder::default();
    let (mut said, mut meanings) = (Vec::new(), Vec::new());
    loop {
        let came = match half.read_buf(decoder.read_buffer()).await {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, CLOSED_BY_SERVER).into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        let read = came.and_then(|()| {
            let decoded = decode(&mut decoder, &mut said);
            wire.on_frames(said.drain(..), &mut meanings)
                .and(decoded.map_err(ConnectionError::from))
        });
        let has_ended = read.is_err();
        // Before the replies are passed on: what came with an invalid one is not believed.
        if let Err(failure) = read {
            wire.close(failure);
        }
        for meaning in meanings.drain(..) {
            dispatch(meaning, listener.as_ref());
        }
        if has_ended {
            return;
        }
    }
}

fn decode(decoder: &mut Decoder, said: &mut Vec<Frame>) -> Result<(), ProtocolError> {
    while let Some(one) = decoder.next_frame()? {
        said.push(one);
    }
    Ok(())
}

fn dispatch(meaning: FrameAction, listener: Option<&PubSubSink>) {
    match meaning {
        // The caller may have given up.
        FrameAction::CompleteReply(tell, reply) => drop(tell.send(Ok(reply))),
        FrameAction::CompletePipeline(tell, replies) => drop(tell.send(Ok(replies))),
        FrameAction::PubSub(notice) => {
            if let Some(listener) = listener {
                listener.send(notice);
            }
        }
    }
}

impl PubSubSink {
    fn send(&self, notice: PubSubEvent) {
        match (notice, self.handler.get()) {
            (PubSubEvent::Message { channel, payload }, Some(handler)) => handler(channel, payload),
            (notice, _) => drop(self.events.send(notice)),
        }
    }
}
