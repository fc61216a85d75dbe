//! The implementations of the commands, by what they work on.

pub(super) mod hash;
pub(super) mod key;
pub(super) mod script;
pub(super) mod server;
pub(super) mod string;
