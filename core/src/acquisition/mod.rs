//! One acquisition: an id, from its first call until no call with the id can have an effect.
//!
//! [`AcquisitionState::apply`] is the transition, a pure function of the state, an event and the
//! time. It returns the effects for the driver to carry out.

mod acquire_state;
pub mod config;
pub mod deadline;
mod error;
mod event;
mod held_lease;
mod in_doubt;
mod lease_changes;
mod lease_options;
mod pending_change;
mod pending_release;
mod poll_schedule;
mod renewal;
mod state;
#[cfg(test)]
mod tests;
mod time_visitor;

pub use config::AcquisitionConfig;
pub use deadline::RenewalBudget;
pub use error::AcquisitionError;
pub use event::{
    AcquisitionEvent, Context, Effects, GrantPush, GrantSource, LossRecord, RequestStep,
    TelemetryEvent, WorkerCall,
};
pub use held_lease::{HeldLease, Keepalive};
pub use in_doubt::InDoubtUntil;
pub use lease_options::{LeaseOptions, RenewalPolicy, WaitPolicy};
pub use pending_change::{ChangeKind, ChangeRefusal};
pub use poll_schedule::PollConfig;
pub use state::AcquisitionState;
pub use time_visitor::TimeVisitor;
