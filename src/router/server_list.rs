//! The servers that were tried, and why they failed, as an error names them.

use std::fmt;

use crate::backend::{Address, ConnectionError};

/// More of them only make the message long.
const MAX_LISTED: usize = 3;

/// Servers that were tried: the first few are named, and the others counted.
#[derive(Clone, Debug)]
pub(crate) struct ServerList(pub(crate) Vec<Address>);

/// Why servers could not be used, in the order in which they failed.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<(Address, ConnectionError)>);

impl Failures {
    pub(crate) fn note(&mut self, server: Address, failure: ConnectionError) {
        self.0.push((server, failure));
    }

    /// The servers that failed, and the failure to report. A permanent one comes first, because it
    /// says what must be changed; then `otherwise`; then that of the first server in `order`. So
    /// the result does not depend on which server failed first.
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
mod tests {
    use super::*;
    use crate::backend::fake::address;

    #[test]
    fn tried_display_names_three_servers_and_counts_the_rest() {
        let tried = |hosts: &[&str]| {
            ServerList(hosts.iter().map(|host| address(host)).collect()).to_string()
        };
        assert_eq!(tried(&["a"]), "a:1");
        assert_eq!(tried(&["a", "b", "c"]), "a:1, b:1, c:1");
        assert_eq!(tried(&["a", "b", "c", "d", "e"]), "a:1, b:1, c:1 and 2 more");
    }

    #[test]
    fn failures_settle_returns_permanent_error_in_any_order() {
        let order = ["a", "b", "c"].map(address);
        let permanent =
            |message| ConnectionError { is_permanent: true, ..ConnectionError::not_sent(message) };
        for shuffled in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let settle = |failures: [ConnectionError; 3], otherwise| {
                let mut noted = Failures::default();
                for at in shuffled {
                    noted.note(order[at].clone(), failures[at].clone());
                }
                let (tried, failure) = noted.settle(&order, otherwise);
                assert_eq!(tried.to_string(), "a:1, b:1, c:1");
                failure.message
            };
            let passing = ["a", "b", "c"].map(ConnectionError::not_sent);
            let mixed = [passing[0].clone(), permanent("b"), permanent("c")];
            let otherwise = || Some(ConnectionError::not_sent("otherwise"));
            assert_eq!(settle(passing.clone(), None), "a");
            assert_eq!(settle(passing.clone(), otherwise()), "otherwise");
            assert_eq!(settle(mixed, otherwise()), "b");
        }
    }
}
