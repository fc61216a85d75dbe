//! Commands without a key, sent to each master separately.

use std::sync::Arc;

use crate::backoff::jittered;
use crate::clock::Moment;
use crate::node::{Address, Command, NodeError, Reply};
use crate::router::Router;
use crate::router::call::{CallError, Reason};
use crate::router::connection::{Connection, Failure};
use crate::router::time_out::time_out;

/// The pause before such a command is sent again.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

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
        deadline: Moment,
    ) -> Result<Reply, CallError> {
        loop {
            let (said, last) = match self.query_once(address, command, deadline).await {
                Ok(Reply::Error(error)) if error.code == "LOADING" || error.code == "BUSY" => {
                    (Some(error), None)
                }
                Ok(Reply::Error(error)) => return Err(failed(Reason::Refused(error), None)),
                Ok(reply) => return Ok(reply),
                Err(failure) if failure.permanent => {
                    return Err(failed(Reason::Permanent, Some(failure)));
                }
                Err(failure) => (None, Some(failure)),
            };
            if self.connections.is_closed() {
                return Err(failed(self.closed(), last));
            }
            let now = self.clock.now();
            if now >= deadline {
                return Err(failed(Reason::TimedOut(said), last));
            }
            self.clock.sleep_until(now.after(jittered(PAUSE)).min(deadline)).await;
        }
    }

    async fn query_once(
        &self,
        address: &Address,
        command: &Command,
        deadline: Moment,
    ) -> Result<Reply, NodeError> {
        let connection = self.connect_until(address, deadline).await?;
        let limit = self.limits.of_replies();
        let until = self.clock.now().after(limit.length).min(deadline);
        match connection.call(&*self.clock, command.clone(), until).await {
            Ok(exchange) => Ok(exchange.value),
            Err(Failure::Broken(failure)) => Err(failure),
            Err(Failure::Silent | Failure::Quiet) => {
                connection.gave_up(self.clock.now(), limit.length);
                Err(limit.no_reply(address))
            }
        }
    }

    /// The dial continues for other callers when this future is dropped.
    async fn connect_until(
        &self,
        address: &Address,
        deadline: Moment,
    ) -> Result<Arc<Connection>, NodeError> {
        let limit = self.limits.of_opening();
        let until = self.clock.now().after(limit.length).min(deadline);
        let connected = tokio::select! {
            biased;
            connected = self.connections.connect(address) => connected,
            () = time_out(&*self.clock, until) => Err(limit.no_reply(address)),
        };
        connected.map_err(|failure| self.topology.explain(failure, address, None))
    }
}

fn failed(reason: Reason, last: Option<NodeError>) -> CallError {
    CallError { reason, in_doubt: None, last }
}
