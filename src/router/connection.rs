//! A connection to one server, and what is known of that server.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{self, BoxFuture, Either};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock::{Clock, Moment};
use crate::node::{Address, Connector, Node, NodeError, Reply, Words};
use crate::router::clock_bound::ClockBound;
use crate::router::{answer, lock};

/// How much of a server's run id is its name.
const NAME_LENGTH: usize = 12;

/// The most pipelines of batches under way at once. More would only wait at the server, and run out of time there.
const PIPELINES: usize = 4;

/// The name of a server that does not tell its run id.
const NAMELESS: &str = "-";

/// A connection that carries commands.
#[derive(Debug)]
pub(crate) struct Connection {
    name: Box<str>,
    node: Arc<dyn Node>,
    bound: Mutex<ClockBound>,
    retired: AtomicBool,
    /// Pipelines of batches that may be under way at once.
    pipelines: Semaphore,
    /// When something was asked first since the server last said anything, in microseconds; 0 if nothing was.
    silent_since: AtomicU64,
}

/// An answer, and when it was asked for and came.
#[derive(Debug)]
pub(crate) struct Exchange<T> {
    pub(crate) value: T,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The time was up. What was sent may still arrive.
    Silent,
    Broken(NodeError),
}

impl Connection {
    /// Connects, and asks the server for its time and its name.
    pub(crate) async fn open(
        connector: &dyn Connector,
        clock: &dyn Clock,
        address: &Address,
        timeout: Duration,
    ) -> Result<Connection, NodeError> {
        let opening = Box::pin(async {
            let node = connector.connect(address).await?;
            let sent = clock.now();
            let replies = node
                .pipeline(&[Words::new().word("TIME"), Words::new().word("INFO").word("server")])
                .await?;
            Ok((node, sent, clock.now(), replies))
        });
        let until = clock.now().after(timeout);
        let (node, sent, received, replies) = match future::select(opening, clock.sleep_until(until)).await {
            Either::Left((opened, _)) => opened.map_err(|failure: NodeError| NodeError {
                maybe_sent: false,
                ..failure
            })?,
            Either::Right(_) => return Err(NodeError::unsent(format!("{address} did not answer in {timeout:?}"))),
        };
        let mut replies = replies.into_iter();
        let mut bound = ClockBound::default();
        bound.observe(sent, received, server_time(replies.next())?);
        let name = server_name(replies.next()).unwrap_or_else(|| NAMELESS.into());
        Ok(Connection {
            name,
            node,
            bound: Mutex::new(bound),
            retired: AtomicBool::new(false),
            pipelines: Semaphore::new(PIPELINES),
            silent_since: AtomicU64::new(0),
        })
    }

    /// The first characters of the server's run id.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// False for a server that does not tell its run id.
    pub(crate) fn has_name(&self) -> bool {
        &*self.name != NAMELESS
    }

    pub(crate) fn bound(&self) -> ClockBound {
        *lock(&self.bound)
    }

    /// A moment as this server's clock reads at most by then, or 0 for none.
    pub(crate) fn server_ms(&self, moment: Option<Moment>) -> u64 {
        moment
            .and_then(|moment| lock(&self.bound).server_ms_at_most(moment))
            .unwrap_or(0)
    }

    /// False once a new connection should take its place.
    pub(crate) fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && self.node.is_usable()
    }

    /// Sends a command and waits for its answer until then.
    pub(crate) async fn call(
        &self,
        clock: &dyn Clock,
        command: &Words,
        until: Moment,
    ) -> Result<Exchange<Reply>, Failure> {
        self.exchange(clock, |node| node.call(command), until).await
    }

    /// Waits for a turn to send a pipeline of a batch, which lasts until the result is dropped. `None` if it did not come until then.
    pub(crate) async fn turn(&self, clock: &dyn Clock, until: Moment) -> Option<SemaphorePermit<'_>> {
        let turn = std::pin::pin!(self.pipelines.acquire());
        match future::select(turn, clock.sleep_until(until)).await {
            Either::Left((turn, _)) => turn.ok(),
            Either::Right(_) => None,
        }
    }

    /// Sends a pipeline and waits for its answers until then. There is an answer to each command.
    pub(crate) async fn pipeline(
        &self,
        clock: &dyn Clock,
        commands: &[Words],
        until: Moment,
    ) -> Result<Exchange<Vec<Reply>>, Failure> {
        let exchange = self.exchange(clock, |node| node.pipeline(commands), until).await?;
        if exchange.value.len() == commands.len() {
            return Ok(exchange);
        }
        // Whatever comes next on this connection may belong to something else.
        self.retire();
        let message = format!("{} answers to {} commands", exchange.value.len(), commands.len());
        Err(Failure::Broken(NodeError {
            message,
            maybe_sent: true,
            permanent: false,
            source: None,
        }))
    }

    /// Learns from the server's time in a script's reply.
    pub(crate) fn observe(&self, sent: Moment, received: Moment, reply: &Reply) {
        if let Some(server_ms) = answer::server_ms(reply) {
            lock(&self.bound).observe(sent, received, server_ms);
        }
    }

    /// Notes that somebody gave up waiting. A connection on which nothing at all was heard for `patience` is replaced: the
    /// network may have swallowed it, which nobody else would tell.
    pub(crate) fn gave_up(&self, now: Moment, patience: Duration) {
        let since = self.silent_since.load(Ordering::Relaxed);
        if since != 0 && micros(now).saturating_sub(since) >= patience.as_micros() as u64 {
            self.retire();
        }
    }

    fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    async fn exchange<'a, T>(
        &'a self,
        clock: &dyn Clock,
        send: impl FnOnce(&'a dyn Node) -> BoxFuture<'a, Result<T, NodeError>>,
        until: Moment,
    ) -> Result<Exchange<T>, Failure> {
        let sent = clock.now();
        let _ = self
            .silent_since
            .compare_exchange(0, micros(sent), Ordering::Relaxed, Ordering::Relaxed);
        match future::select(send(&*self.node), clock.sleep_until(until)).await {
            Either::Left((Ok(value), _)) => {
                self.silent_since.store(0, Ordering::Relaxed);
                Ok(Exchange {
                    value,
                    sent,
                    received: clock.now(),
                })
            }
            Either::Left((Err(failure), _)) => {
                self.retire();
                Err(Failure::Broken(failure))
            }
            Either::Right(_) => Err(Failure::Silent),
        }
    }
}

/// The time in the answer to `TIME`, in ms. Scripts need it too: a server that does not tell it is of no use.
pub(crate) fn server_time(reply: Option<Reply>) -> Result<u64, NodeError> {
    let number = |reply: &Reply| match reply {
        Reply::Text(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        Reply::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let ms = match &reply {
        Some(Reply::List(parts)) => match parts.as_slice() {
            [seconds, micros] => number(seconds)
                .zip(number(micros))
                .map(|(s, us)| s.saturating_mul(1000) + us / 1000),
            _ => None,
        },
        _ => None,
    };
    ms.ok_or_else(|| match reply {
        Some(Reply::Error(error)) => {
            let permanent = matches!(error.code.as_str(), "NOAUTH" | "NOPERM" | "WRONGPASS");
            NodeError {
                permanent,
                source: Some(Arc::new(error)),
                ..NodeError::unsent("the server does not tell its time")
            }
        }
        other => NodeError::unsent(format!("no answer to TIME: {other:?}")),
    })
}

/// The name in the answer to `INFO server`.
fn server_name(reply: Option<Reply>) -> Option<Box<str>> {
    let Some(Reply::Text(info)) = reply else { return None };
    let info = String::from_utf8_lossy(&info);
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"))?.trim();
    let name: String = run_id.chars().take(NAME_LENGTH).collect();
    (!name.is_empty()).then(|| name.into())
}

/// Microseconds, counted so that none is 0.
fn micros(at: Moment) -> u64 {
    u64::try_from(at.since_origin().as_micros())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::ServerError;

    #[test]
    fn the_time_is_read() {
        let time = |seconds: &'static str, micros: &'static str| {
            Some(Reply::List(vec![
                Reply::Text(seconds.into()),
                Reply::Text(micros.into()),
            ]))
        };
        assert_eq!(server_time(time("1700000000", "999999")).unwrap(), 1_700_000_000_999);
        assert!(server_time(time("x", "1")).is_err());
        assert!(server_time(None).is_err());
        let refused = |code: &str| {
            server_time(Some(Reply::Error(ServerError {
                code: code.into(),
                detail: "no".into(),
            })))
            .unwrap_err()
        };
        assert!(refused("NOPERM").permanent);
        assert!(!refused("LOADING").permanent);
    }

    #[test]
    fn the_name_is_the_beginning_of_the_run_id() {
        let info =
            "# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\ntcp_port:1\r\n";
        assert_eq!(
            server_name(Some(Reply::Text(info.into()))).as_deref(),
            Some("0123456789ab")
        );
        assert_eq!(server_name(Some(Reply::Text("# Server\r\n".into()))), None);
        assert_eq!(server_name(Some(Reply::Text("run_id:\r\n".into()))), None);
        assert_eq!(
            server_name(Some(Reply::Error(ServerError {
                code: "NOPERM".into(),
                detail: String::new()
            }))),
            None
        );
    }
}
