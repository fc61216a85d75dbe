//! The two tasks of a connection: one writes, and one reads.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::clock::{Clock, SystemClock};
use crate::health::ClientHealth;
use crate::node::native::decoder::{Decoder, Said};
use crate::node::native::expected::Meaning;
use crate::node::native::wire::Wire;
use crate::node::task::Task;
use crate::node::{MessageHandler, NodeError, Notice, ProtocolError};

/// The tasks. They are aborted when this is dropped: by themselves they would wait for outstanding
/// answers, which a frozen server never sends.
#[derive(Debug)]
pub(super) struct Tasks {
    _reader: Task,
    _writer: Task,
}

/// Receives what happens on a subscription's connection.
#[derive(Clone)]
pub(super) struct Listener {
    /// The only sender: its receiver ends when the reader ends.
    pub(super) notify: mpsc::UnboundedSender<Notice>,
    pub(super) handler: Arc<OnceLock<MessageHandler>>,
}

impl Tasks {
    pub(super) fn start(
        wire: &Arc<Wire>,
        read_half: impl AsyncRead + Send + Unpin + 'static,
        write_half: impl AsyncWrite + Send + Unpin + 'static,
        listener: Option<Listener>,
        health: &ClientHealth,
    ) -> Tasks {
        let reader = read(Reader(wire.clone()), read_half, listener);
        let writer = Writer { wire: wire.clone(), written: 0 };
        Tasks {
            _reader: Task::spawn(health, "connection reader", reader),
            _writer: Task::spawn(health, "connection writer", write(writer, write_half)),
        }
    }
}

/// Ends the connection however the writer's task ends: only the writer knows what was sent.
struct Writer {
    wire: Arc<Wire>,
    /// How many bytes the kernel has taken.
    written: u64,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.wire.end(NodeError::gone());
        self.wire.settle(self.written);
    }
}

impl Writer {
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

async fn write(mut writer: Writer, mut half: impl AsyncWrite + Unpin) {
    let wire = writer.wire.clone();
    let mut batch = Vec::new();
    while wire.take(&mut batch).await {
        let outcome = tokio::select! {
            biased;
            outcome = write_all(&mut half, &batch, &mut writer) => outcome,
            // The other side may no longer read.
            () = wire.ended() => return,
        };
        if let Err(error) = outcome {
            // The other side may have said why, before it closed the connection.
            wire.retire();
            let late = SystemClock.sleep_until(SystemClock.now().after(LAST_WORDS));
            tokio::select! {
                () = wire.ended() => {}
                () = late => wire.end(error.into()),
            }
        }
    }
}

async fn write_all(
    half: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    writer: &mut Writer,
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

const CLOSED: &str = "the server closed the connection";

/// Ends the connection however the reader's task ends.
struct Reader(Arc<Wire>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.end(NodeError::gone());
    }
}

async fn read(reader: Reader, mut half: impl AsyncRead + Unpin, listener: Option<Listener>) {
    let wire = &reader.0;
    let mut decoder = Decoder::default();
    let (mut said, mut meanings) = (Vec::new(), Vec::new());
    loop {
        let came = match half.read_buf(decoder.room()).await {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, CLOSED).into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        let read = came.and_then(|()| {
            let decoded = decode(&mut decoder, &mut said);
            wire.hear(said.drain(..), &mut meanings).and(decoded.map_err(NodeError::from))
        });
        let has_ended = read.is_err();
        // Before the replies are passed on: what came with an invalid one is not believed.
        if let Err(failure) = read {
            wire.end(failure);
        }
        for meaning in meanings.drain(..) {
            pass_on(meaning, listener.as_ref());
        }
        if has_ended {
            return;
        }
    }
}

fn decode(decoder: &mut Decoder, said: &mut Vec<Said>) -> Result<(), ProtocolError> {
    while let Some(one) = decoder.next()? {
        said.push(one);
    }
    Ok(())
}

fn pass_on(meaning: Meaning, listener: Option<&Listener>) {
    match meaning {
        // The caller may have given up.
        Meaning::Answered(tell, reply) => drop(tell.send(Ok(reply))),
        Meaning::AllAnswered(tell, replies) => drop(tell.send(Ok(replies))),
        Meaning::Noticed(notice) => {
            if let Some(listener) = listener {
                listener.take(notice);
            }
        }
    }
}

impl Listener {
    fn take(&self, notice: Notice) {
        match (notice, self.handler.get()) {
            (Notice::Message { channel, payload }, Some(handler)) => handler(channel, payload),
            (notice, _) => drop(self.notify.send(notice)),
        }
    }
}
