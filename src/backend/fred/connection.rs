//! A `fred` client with one connection, and how it ends.

use std::pin::pin;
use std::time::Duration;

use ::fred::clients::Client;
use ::fred::error::Error;
use ::fred::interfaces::ClientLike;
use ::fred::types::ConnectHandle;
use ::fred::types::config::{
    Config, ConnectionConfig, PerformanceConfig, TcpConfig, UnresponsiveConfig,
};
use fred_socket2::TcpKeepalive;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, Shared, select};
use rwlease_core::resp::{Command, RespValue};
use tokio::task::AbortHandle;

use crate::backend::fred::reply::{command_error, from_frame, handshake_failure};
use crate::backend::fred::{pipelined, split};
use crate::backend::{ConnectionError, LIB_NAME, LIB_VERSION};

/// After this much silence, the kernel checks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The client, and the task that drives its connection. The task ends with the connection, and is
/// aborted when this is dropped: `fred` keeps the connection of a client that is only dropped.
pub(super) struct FredConnection {
    client: Client,
    task: FredTask,
}

/// Aborts the task when it is dropped.
struct FredTask {
    abort: AbortHandle,
    ended: Shared<BoxFuture<'static, ()>>,
}

impl FredConnection {
    /// Connects and authenticates. If the future is dropped, nothing remains.
    pub(super) async fn open(
        config: Config,
        pushes: usize,
    ) -> Result<FredConnection, ConnectionError> {
        let (database, password) = (config.database, config.password.clone());
        let refused = |error| {
            handshake_failure(error, database).without_password(password.as_deref().unwrap_or(""))
        };
        let client =
            Client::new(config, Some(performance_config(pushes)), Some(connection_config()), None);
        let waiting = client.clone();
        let mut ready = pin!(waiting.wait_for_connect());
        // It listens from its first poll on, so this poll must come before anything can happen.
        let early = futures::poll!(&mut ready);
        debug_assert!(early.is_pending());
        let task = FredTask::of(client.connect());
        let connection = FredConnection { client, task };
        match select(ready, connection.ended()).await {
            Either::Left((outcome, _)) => outcome.map_err(refused)?,
            // The reason comes before the end, but may have come after `ready` was polled.
            Either::Right((_, ready)) => {
                let reason = ready.now_or_never().and_then(Result::err);
                let ended =
                    || ConnectionError::not_sent("the connection was closed during the handshake");
                return Err(reason.map_or_else(ended, refused));
            }
        }
        connection.send_client_info().await;
        Ok(connection)
    }

    /// Sends the library's name and version to the server. The answer is ignored.
    async fn send_client_info(&self) {
        let say = |what, value| Command::new().arg("CLIENT").arg("SETINFO").arg(what).arg(value);
        let words = [say("LIB-NAME", LIB_NAME), say("LIB-VER", LIB_VERSION)];
        let _ = self.run(|client| pipelined(client, &words)).await;
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// False once the connection has ended.
    pub(super) fn is_usable(&self) -> bool {
        !self.task.abort.is_finished()
    }

    /// Resolves when the connection ends.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.task.ended.clone()
    }

    /// Runs an operation with the client, unless the connection ends first: `fred` never answers
    /// what is sent after that.
    pub(super) async fn run<'a, T, F>(
        &'a self,
        act: impl FnOnce(&'a Client) -> F,
    ) -> Result<T, ConnectionError>
    where
        F: Future<Output = Result<T, Error>> + 'a,
    {
        if !self.is_usable() {
            return Err(ConnectionError::closed());
        }
        match select(pin!(act(&self.client)), self.task.ended.clone()).await {
            Either::Left((outcome, _)) => outcome.map_err(|error| command_error(&error)),
            Either::Right(_) => Err(ConnectionError::closed_in_flight()),
        }
    }
}

impl FredConnection {
    /// Sends one command.
    pub(super) async fn call(&self, command: &Command) -> Result<RespValue, ConnectionError> {
        let (name, args) = split(command);
        let frame = self.run(|client| async move { client.custom_raw(name, args).await }).await?;
        // In a frame, a server's error can be told from one that `fred` made.
        Ok(from_frame(frame))
    }
}

impl Drop for FredConnection {
    /// Tells the client to quit before its task is aborted; the first step of `quit` is enough.
    /// Only that ends the task that refreshes credentials (feature `credential-provider`), which
    /// would otherwise keep the client forever. (It still does so if it is fetching credentials at
    /// that moment.)
    fn drop(&mut self) {
        if self.is_usable() {
            let _ = self.client.quit().now_or_never();
        }
    }
}

impl FredTask {
    fn of(handle: ConnectHandle) -> FredTask {
        FredTask { abort: handle.abort_handle(), ended: handle.map(drop).boxed().shared() }
    }
}

impl Drop for FredTask {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// Each command is sent once and waited for without a limit (zero): the router sets the limits.
fn connection_config() -> ConnectionConfig {
    ConnectionConfig {
        connection_timeout: Duration::ZERO,
        internal_command_timeout: Duration::ZERO,
        max_command_attempts: 1,
        max_redirections: 0,
        unresponsive: UnresponsiveConfig { max_timeout: None, ..UnresponsiveConfig::default() },
        reconnect_on_auth_error: false,
        auto_client_setname: false,
        max_command_buffer_len: 0,
        tcp: TcpConfig {
            nodelay: Some(true),
            keepalive: Some(
                TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL),
            ),
            ..TcpConfig::default()
        },
        ..ConnectionConfig::default()
    }
}

fn performance_config(pushes: usize) -> PerformanceConfig {
    PerformanceConfig {
        default_command_timeout: Duration::ZERO,
        broadcast_channel_capacity: pushes,
        ..PerformanceConfig::default()
    }
}
