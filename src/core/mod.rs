//! Decisions without I/O and without a clock of their own: when a lease ends here, when to renew it, when to look again.

pub(crate) mod agenda;
pub(crate) mod in_doubt;
pub(crate) mod lease;
pub(crate) mod polling;
