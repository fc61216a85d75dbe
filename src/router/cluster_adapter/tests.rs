//! Calls over an application's connection, to a server that answers late or not at all, or whose
//! time is not known.
#![allow(clippy::disallowed_methods)]

use std::sync::atomic::AtomicUsize;

use ::redis::cluster::ClusterClient;
use bytes::Bytes;
use rwlease_core::protocol::{Doubt, ScriptName};
use rwlease_core::resp::Command;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::clock::SystemClock;

const NOW_S: u64 = 1_700_000_000;

/// The limit for one attempt.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(200);

/// A cluster of one server that serves every slot.
struct Server {
    port: u16,
    /// The command that it answers too late, and how often.
    slow: &'static str,
    late: AtomicUsize,
    /// The command that it refuses, and the code of the refusal.
    refuses: &'static str,
    code: &'static str,
    /// The `not_after` of each script that arrived.
    scripts: Mutex<Vec<String>>,
}

impl Server {
    async fn start(late: usize, refuses: &'static str) -> Arc<Server> {
        Server::slow_in("TIME", late, refuses, "NOPERM").await
    }

    async fn slow_in(
        slow: &'static str,
        late: usize,
        refuses: &'static str,
        code: &'static str,
    ) -> Arc<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Server {
            port: listener.local_addr().unwrap().port(),
            slow,
            late: late.into(),
            refuses,
            code,
            scripts: Mutex::default(),
        });
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        server
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some(command) = command(&mut stream).await {
            let answer = self.answer(&command);
            if command[0] == self.slow && self.is_late() {
                tokio::time::sleep(2 * RESPONSE_TIMEOUT).await;
            }
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, command: &[String]) -> String {
        match command[0].as_str() {
            name if name == self.refuses => {
                format!(
                    "-{} this user has no permissions to run the '{name}' command\r\n",
                    self.code
                )
            }
            "CLUSTER" => {
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", self.port)
            }
            "TIME" => format!("*2\r\n$10\r\n{NOW_S}\r\n$1\r\n0\r\n"),
            "EVALSHA" | "EVAL" => {
                self.scripts.lock().unwrap().push(command[5].clone());
                format!("+released {} 0\r\n", NOW_S * 1000)
            }
            _ => "+OK\r\n".into(),
        }
    }

    fn is_late(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.late.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// One call with a deadline of a second, over its own connection.
    async fn call(&self, within: Duration) -> Result<CallReply, CallError> {
        self.call_over(&self.connect().await, within).await
    }

    async fn call_over(
        &self,
        shared: &ClusterAdapter,
        within: Duration,
    ) -> Result<CallReply, CallError> {
        let now = shared.clock.now();
        let call = Call {
            script: ScriptName::Release,
            slot: Slot::of("k"),
            key: Bytes::from_static(b"k"),
            second_key: None,
            args: Command::new(),
            not_after: Some(now.saturating_add(Duration::from_secs(1))),
        };
        shared.call_with(&call, Confirmation::default(), now.saturating_add(within), None).await
    }

    async fn connect(&self) -> ClusterAdapter {
        let client = ClusterClient::new([format!("redis://127.0.0.1:{}", self.port)]).unwrap();
        let connection = client.get_async_connection().await.unwrap();
        let mut shared = ClusterAdapter::new(connection, Arc::new(SystemClock), Duration::ZERO);
        shared.response_timeout = RESPONSE_TIMEOUT;
        shared
    }

    fn scripts(&self) -> Vec<String> {
        self.scripts.lock().unwrap().clone()
    }
}

/// The next command, or `None` when the other side has closed the connection.
async fn command(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let words = length(stream).await?;
    let mut command = Vec::new();
    for _ in 0..words {
        let mut word = vec![0; length(stream).await? + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        command.push(String::from_utf8(word).ok()?);
    }
    Some(command)
}

/// The number in a line such as `*3` or `$5`.
async fn length(stream: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

#[tokio::test]
async fn call_before_the_server_time_is_known_sends_no_script() {
    let server = Server::start(usize::MAX, "").await;
    let error = server.call(Duration::from_millis(700)).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::TimedOut(None)), "{error:?}");
    assert_eq!(error.in_doubt, Doubt::None, "nothing can still arrive");
    assert!(server.scripts().is_empty(), "sent with {:?}", server.scripts());
}

#[tokio::test]
async fn the_servers_time_is_asked_for_again() {
    let server = Server::start(1, "").await;
    server.call(Duration::from_secs(20)).await.unwrap();
    let [not_after] = &server.scripts()[..] else { panic!("sent with {:?}", server.scripts()) };
    assert!(not_after.parse::<u64>().unwrap() > NOW_S * 1000, "{not_after}");
}

#[tokio::test]
async fn a_user_who_may_not_ask_for_the_time_is_told_at_once() {
    let server = Server::start(0, "TIME").await;
    let error = server.call(Duration::from_secs(20)).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Unconnected { .. }), "{error:?}");
    assert!(server.scripts().is_empty(), "sent with {:?}", server.scripts());
}

/// The connection may have sent the script before, and lost the answer.
#[tokio::test]
async fn a_refused_script_is_in_doubt() {
    let server = Server::start(0, "EVALSHA").await;
    let error = server.call(Duration::from_secs(20)).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Rejected(_)), "{error:?}");
    assert!(matches!(error.in_doubt, Doubt::Until(ms) if ms > NOW_S * 1000), "{error:?}");
}

#[tokio::test]
async fn call_after_close_is_not_sent() {
    let server = Server::start(0, "").await;
    let shared = server.connect().await;
    shared.close();
    let error = server.call_over(&shared, Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Closed), "{error}");
    assert!(server.scripts().is_empty());
}

#[tokio::test]
async fn call_refused_for_now_by_every_attempt_is_in_doubt() {
    let server = Server::slow_in("", 0, "EVALSHA", "NOREPLICAS").await;
    let error = server.call(Duration::from_millis(700)).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::TimedOut(Some(_))), "{error}");
    assert!(matches!(error.in_doubt, Doubt::Until(_)), "{error:?}");
    // A server that does not know the script has not run it.
    let server = Server::slow_in("", 0, "EVALSHA", "NOSCRIPT").await;
    let outcome = server.call(Duration::from_millis(700)).await;
    let doubt = outcome.map_or_else(|error| error.in_doubt, |reply| reply.in_doubt);
    assert!(doubt.is_none(), "{doubt:?}");
}

#[tokio::test]
async fn another_servers_time_takes_the_place_of_what_was_known() {
    let server = Server::start(0, "").await;
    let shared = server.connect().await;
    let (slot, now) = (Slot::of("k"), shared.clock.now());
    for server_ms in [NOW_S * 1000, NOW_S * 900] {
        shared.observe(slot, now, now, server_ms);
        let known = shared.known_server_ms(slot, now).unwrap();
        assert!((server_ms..server_ms + 5).contains(&known), "{known}");
    }
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn attempt_without_reply_is_counted_as_silent() {
    use crate::router::tests::seen::attempts;

    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let server = Server::slow_in("EVALSHA", 1, "", "").await;
    let answer = server.call(Duration::from_secs(20)).await.unwrap();
    assert!(!answer.in_doubt.is_none());
    assert!(attempts(&recorder, "no_reply") >= 1.0 && attempts(&recorder, "replied") == 1.0);
}
