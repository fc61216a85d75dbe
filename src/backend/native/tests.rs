//! A connection without a server: when commands are written, and how replies are read.
#![allow(clippy::disallowed_methods)]

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;
use crate::backend::PubSubEvent;
use crate::backend::dialer::PubSubKind;

const ROOM: usize = 1 << 16;

/// Ends a test that would never end.
const LONG: Duration = Duration::from_secs(20);

/// Takes at most this many bytes and then none, and records each write.
#[derive(Clone, Debug)]
struct Writes {
    written: Arc<Mutex<Vec<String>>>,
    left: Arc<Mutex<usize>>,
}

impl Writes {
    fn at_most(bytes: usize) -> Writes {
        Writes { written: Arc::default(), left: Arc::new(Mutex::new(bytes)) }
    }

    fn seen(&self) -> Vec<String> {
        self.written.lock().unwrap().clone()
    }
}

impl AsyncWrite for Writes {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut left = self.left.lock().unwrap();
        let size = bytes.len().min(*left);
        if size == 0 {
            return Poll::Pending;
        }
        *left -= size;
        self.written.lock().unwrap().push(String::from_utf8_lossy(&bytes[..size]).into_owned());
        Poll::Ready(Ok(size))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A node that writes there, and the stream that it reads.
fn node(writes: &Writes) -> (NativeCommands, DuplexStream) {
    let (ours, theirs) = duplex(ROOM);
    let connection =
        NativeConnection::over_halves((ours, writes.clone()), None, &ClientHealth::default());
    (NativeCommands { connection: Arc::new(connection), place: "here".into() }, theirs)
}

fn call(node: &NativeCommands, name: &str) -> ResponseFuture<RespValue> {
    node.call(Command::new().arg(name))
}

/// Eleven bytes for a name of one letter.
fn sent(name: &str) -> String {
    format!("*1\r\n${}\r\n{name}\r\n", name.len())
}

async fn turns() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// On a worker thread, where a task that is woken runs next.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pipelines_made_during_a_write_are_written_together() {
    tokio::spawn(write_together()).await.unwrap();
}

async fn write_together() {
    let writes = Writes::at_most(usize::MAX);
    let (node, mut server) = node(&writes);
    let first = tokio::spawn(call(&node, "a"));
    turns().await;
    assert_eq!(writes.seen(), [sent("a")]);
    let pair = [Command::new().arg("c"), Command::new().arg("d")];
    let tasks = [node.pipeline(&pair), node.pipeline(&pair[..1]), node.pipeline(&pair)];
    let tasks = tasks.map(tokio::spawn);
    turns().await;
    let seen = writes.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    // The runtime decides the order; commands of one pipeline stay together.
    let (c, both) = (sent("c"), sent("c") + &sent("d"));
    let orders = [[&c, &both, &both], [&both, &c, &both], [&both, &both, &c]];
    assert!(orders.iter().any(|order| order.map(String::as_str).concat() == seen[1]), "{seen:?}");
    server.write_all(&b":1\r\n".repeat(6)).await.unwrap();
    assert_eq!(first.await.unwrap().unwrap(), RespValue::Int(1));
    for (task, replies) in tasks.into_iter().zip([2, 1, 2]) {
        assert_eq!(task.await.unwrap().unwrap(), vec![RespValue::Int(1); replies]);
    }
    assert!(node.pipeline(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn connection_loss_reports_unwritten_commands_as_not_sent() {
    // The first one, and a part of the second.
    let writes = Writes::at_most(11 + 5);
    let (node, server) = node(&writes);
    let first = tokio::spawn(call(&node, "a"));
    turns().await;
    let others = tokio::spawn(join_all([call(&node, "b"), call(&node, "c")]));
    turns().await;
    let last = tokio::spawn(call(&node, "d"));
    turns().await;
    drop(server);
    let (first, others) = join(first, others).await;
    let mut outcomes = vec![first.unwrap()];
    outcomes.extend(others.unwrap());
    outcomes.push(last.await.unwrap());
    let sent = outcomes.into_iter().map(|outcome| outcome.unwrap_err().maybe_sent);
    assert_eq!(sent.collect::<Vec<_>>(), [true, true, false, false]);
    assert!(!node.is_usable());
    let late = call(&node, "e").await.unwrap_err();
    assert!(!late.maybe_sent && late.chain().to_string().contains("closed"), "{late:?}");
}

fn shaped(shape: ReplyShape) -> Command {
    Command::new().arg("a").expecting(shape)
}

#[tokio::test]
async fn invalid_reply_ends_the_connection_and_none_that_came_with_it_is_believed() {
    for said in ["HTTP/1.1 400 Bad Request\r\n", ":1\r\n:2\r\n", ":1\r\n>1\r\n:7\r\n$-7\r\n"] {
        let (node, mut server) = node(&Writes::at_most(usize::MAX));
        let first = tokio::spawn(call(&node, "a"));
        turns().await;
        server.write_all(said.as_bytes()).await.unwrap();
        let failure = first.await.unwrap().unwrap_err();
        assert!(failure.maybe_sent && failure.is_protocol_error, "{said:?}: {failure:?}");
        turns().await;
        assert!(!node.is_usable(), "{said:?}");
        let failure = call(&node, "b").await.unwrap_err();
        assert!(!failure.maybe_sent && failure.is_protocol_error, "{failure:?}");
    }
}

/// The surplus reply gives each later caller the one of the caller before it.
#[tokio::test]
async fn surplus_reply_makes_all_pending_calls_unknown() {
    let (node, mut server) = node(&Writes::at_most(usize::MAX));
    let pair = [shaped(ReplyShape::Text), shaped(ReplyShape::Text)];
    let calls = [node.call(pair[0].clone()), node.call(pair[1].clone())].map(tokio::spawn);
    let pipeline = tokio::spawn(node.pipeline(&pair));
    turns().await;
    server.write_all(b":1\r\n+one\r\n+two\r\n+three\r\n+four\r\n").await.unwrap();
    for call in calls {
        let failure = call.await.unwrap().unwrap_err();
        assert!(failure.maybe_sent && failure.is_protocol_error, "{failure:?}");
    }
    assert!(pipeline.await.unwrap().unwrap_err().maybe_sent);
    assert!(!node.is_usable());
}

#[tokio::test]
async fn reply_that_was_not_taken_before_a_mismatch_is_not_believed() {
    let (node, mut server) = node(&Writes::at_most(usize::MAX));
    let mut read = node.call(shaped(ReplyShape::Text));
    let mismatch = node.call(shaped(ReplyShape::Text));
    turns().await;
    server.write_all(b"+one\r\n").await.unwrap();
    turns().await; // it was given to its caller, who has not looked
    server.write_all(b":1\r\n").await.unwrap();
    assert!(mismatch.await.unwrap_err().is_protocol_error);
    assert!((&mut read).await.unwrap_err().is_protocol_error);
    // What was taken before stays.
    let (node, mut server) = self::node(&Writes::at_most(usize::MAX));
    let taken = node.call(shaped(ReplyShape::Text));
    turns().await;
    server.write_all(b"+one\r\n").await.unwrap();
    assert_eq!(taken.await.unwrap(), RespValue::String("one".into()));
}

#[tokio::test]
async fn reply_before_its_command_was_written_ends_the_connection() {
    // The first command, and not a byte of the second.
    let (node, mut server) = node(&Writes::at_most(11));
    let first = tokio::spawn(call(&node, "a"));
    turns().await;
    let second = tokio::spawn(call(&node, "b"));
    turns().await;
    server.write_all(b":1\r\n").await.unwrap();
    assert_eq!(first.await.unwrap().unwrap(), RespValue::Int(1));
    server.write_all(b":2\r\n").await.unwrap();
    let failure = second.await.unwrap().unwrap_err();
    assert!(failure.is_protocol_error && !failure.maybe_sent, "{failure:?}");
    assert!(!node.is_usable());
}

#[tokio::test]
async fn dropped_node_closes_its_connection_after_the_last_call() {
    let (node, mut server) = node(&Writes::at_most(usize::MAX));
    let mut waiting = call(&node, "a");
    assert!(futures::poll!(&mut waiting).is_pending());
    drop(node);
    turns().await;
    let mut byte = [0; 1];
    assert!(futures::poll!(Box::pin(server.read(&mut byte))).is_pending());
    drop(waiting);
    turns().await;
    let closed = timeout(LONG, server.read(&mut byte)).await.expect("closed");
    assert_eq!(closed.unwrap(), 0);
}

#[tokio::test]
async fn connection_messages_go_to_the_handler_and_the_rest_is_told() {
    let (ours, mut server) = duplex(ROOM);
    let (notify, mut notices) = mpsc::unbounded_channel();
    let handler = Arc::new(OnceLock::new());
    let listener = PubSubSink { events: notify, handler: handler.clone() };
    let connection = NativeConnection::over_halves(
        tokio::io::split(ours),
        Some(listener),
        &ClientHealth::default(),
    );
    let subscription: Arc<dyn crate::backend::PubSubConnection> =
        Arc::new(NativePubSub::new(connection, PubSubKind::Sharded, handler));
    subscription.subscribe(b"c", true).await.unwrap();
    turns().await; // it is written
    let message = b">3\r\n+smessage\r\n+c\r\n+early\r\n";
    server.write_all(b"+OK\r\n>3\r\n+ssubscribe\r\n+c\r\n:1\r\n").await.unwrap();
    server.write_all(message).await.unwrap();
    assert_eq!(notices.recv().await, Some(PubSubEvent::Subscribed { channel: "c".into() }));
    let early = PubSubEvent::Message { channel: "c".into(), payload: "early".into() };
    assert_eq!(notices.recv().await, Some(early));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    subscription.set_handler(Box::new(move |_, payload| hears.lock().unwrap().push(payload)));
    server.write_all(message).await.unwrap();
    drop(server);
    assert_eq!(notices.recv().await, None, "it ends with the connection");
    assert_eq!(*heard.lock().unwrap(), ["early"]);
}
