//! The command `rwlease`, as a shell sees it: what it prints, how it ends, and how the
//! commands that it runs end.

// The ban on direct clocks is for the library; and the test support names features of the
// library.
#![allow(clippy::disallowed_methods, unexpected_cfgs)]

mod doctor;
mod fixture;
mod full_pipe;
mod generated_docs;
mod jobs;
mod lease_loss;
mod list;
mod orphans;
mod python;
mod reports;
mod revoke;
mod run;
mod secure;
mod sentinel;
mod status;
mod stopped_process;
mod terminal;
mod transfer;
mod usage_errors;
mod users;
mod waiting_for_servers;
