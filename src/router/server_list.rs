//! The servers that were tried, and their failures, for the text of an error.

use std::fmt;

use rwlease_core::resp::Address;

use crate::backend::ConnectionError;

/// More servers only make the message long.
const MAX_LISTED: usize = 3;

/// Servers that were tried: the first few are named, and the others counted.
#[derive(Clone, Debug)]
pub(crate) struct ServerList(pub(crate) Vec<Address>);

/// The failures of servers, in the order of the failures.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<(Address, ConnectionError)>);

impl Failures {
    pub(crate) fn note(&mut self, server: Address, failure: ConnectionError) {
        self.0.push((server, failure));
    }

    /// Returns true if no later attempt at any of the servers can succeed.
    pub(crate) fn are_permanent(&self) -> bool {
        self.0.iter().all(|(_, failure)| failure.is_permanent)
    }

    /// Returns the servers that failed, and the failure to report: a permanent failure, because it
    /// says what must be changed, else `otherwise`, else the failure of the first server in
    /// `order`. So the result does not depend on which server failed first.
    pub(crate) fn settle(
        mut self,
        order: &[Address],
        otherwise: Option<ConnectionError>,
    ) -> (ServerList, ConnectionError) {
        self.0.sort_by_key(|(server, _)| order.iter().position(|other| other == server));
        let permanent = self.0.iter().find(|(_, failure)| failure.is_permanent);
        let permanent = permanent.map(|(_, failure)| failure.clone());
        let failure = permanent
            .or(otherwise)
            .or_else(|| self.0.first().map(|(_, failure)| failure.clone()))
            .unwrap_or_else(|| ConnectionError::not_sent("no server is known"));
        (ServerList(self.0.into_iter().map(|(server, _)| server).collect()), failure)
    }
}

impl fmt::Display for ServerList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, others) = self.0.split_at(self.0.len().min(MAX_LISTED));
        for (number, address) in named.iter().enumerate() {
            write!(f, "{}{address}", if number == 0 { "" } else { ", " })?;
        }
        match others.len() {
            0 => Ok(()),
            others => write!(f, " and {others} more"),
        }
    }
}

#[cfg(test)]
mod tests;
