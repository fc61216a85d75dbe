//! The router: slots, the slot map, redirects, retries.

mod call;
mod slot;

pub(crate) use call::{Answer, Call, CallError, Reason, Script};
pub use slot::{CrossSlot, Slot, assert_same_slot};
