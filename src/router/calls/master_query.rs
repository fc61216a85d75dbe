//! Commands without a key, sent to each master separately.

use std::sync::Arc;

use rwlease_core::protocol::{CallError, CallErrorKind, Doubt};
use rwlease_core::resp::{Address, Command, RespValue};
use rwlease_core::time::LocalInstant;

use crate::backend::ConnectionError;
use crate::backoff::with_jitter;
use crate::router::Router;
use crate::router::calls::{call_error, unconnected};
use crate::router::connections::exchange::ExchangeError;
use crate::router::connections::reply_timeout::reply_timeout;
use crate::router::connections::server_connection::ServerConnection;

/// The pause before such a command is sent again.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

impl Router {
    /// The known masters that serve slots, in no particular order.
    pub(crate) fn masters(&self) -> Vec<Address> {
        self.topology.masters()
    }

    /// Sends a command that changes nothing to one server, and repeats it until there is an answer
    /// or the deadline passes.
    pub(crate) async fn query(
        &self,
        address: &Address,
        command: &Command,
        deadline: LocalInstant,
    ) -> Result<RespValue, CallError> {
        loop {
            let (server_error, last) = match self.query_once(address, command, deadline).await {
                Ok(RespValue::Error(error)) if error.code == "LOADING" || error.code == "BUSY" => {
                    (Some(error), None)
                }
                Ok(RespValue::Error(error)) => {
                    return Err(CallError::new(CallErrorKind::Rejected(error), Doubt::None));
                }
                Ok(reply) => return Ok(reply),
                Err(failure) if failure.is_permanent => {
                    return Err(unconnected(failure));
                }
                Err(failure) => (None, Some(failure)),
            };
            if self.connections.is_closed() {
                return Err(call_error(self.runtime.closed(), Doubt::None, last));
            }
            let now = self.clock.now();
            if now >= deadline {
                return Err(call_error(CallErrorKind::TimedOut(server_error), Doubt::None, last));
            }
            self.clock
                .sleep_until(now.saturating_add(with_jitter(RETRY_PAUSE)).min(deadline))
                .await;
        }
    }

    async fn query_once(
        &self,
        address: &Address,
        command: &Command,
        deadline: LocalInstant,
    ) -> Result<RespValue, ConnectionError> {
        let connection = self.connect_until(address, deadline).await?;
        let limit = self.limits.of_replies();
        let until = self.clock.now().saturating_add(limit.length).min(deadline);
        match connection.call(None, command.clone(), until).await {
            Ok(exchange) => Ok(exchange.value),
            Err(ExchangeError::Connection(failure)) => Err(failure),
            Err(ExchangeError::NoReply | ExchangeError::Quiet) => Err(limit.no_reply(address)),
        }
    }

    /// The dial continues for other callers when this future is dropped.
    async fn connect_until(
        &self,
        address: &Address,
        deadline: LocalInstant,
    ) -> Result<Arc<ServerConnection>, ConnectionError> {
        let limit = self.limits.of_opening();
        let until = self.clock.now().saturating_add(limit.length).min(deadline);
        let connected = tokio::select! {
            biased;
            connected = self.connections.connect(address, false) => connected,
            () = reply_timeout(&*self.clock, until) => Err(limit.no_reply(address)),
        };
        connected.map_err(|failure| self.topology.explain(failure, address, None))
    }
}
