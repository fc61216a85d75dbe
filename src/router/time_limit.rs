//! A limit of time that an error names together with the setting that it comes from.

use std::fmt;
use std::time::Duration;

use crate::backend::{Address, ConnectionError};

#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit {
    pub(crate) length: Duration,
    /// The method of [`Builder`](crate::Builder) that sets it.
    pub(crate) setting: &'static str,
}

impl TimeLimit {
    /// The failure of a server that sent nothing for that long.
    pub(crate) fn no_reply(&self, address: &Address) -> ConnectionError {
        ConnectionError::not_sent(format!("{address}: no reply within {self}"))
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self.length, self.setting)
    }
}
