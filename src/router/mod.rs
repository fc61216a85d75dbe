//! The router: slots, the slot map, redirects, retries.

mod call;
mod slot;

pub use call::Script;
pub(crate) use call::{Answer, Call, CallError, Reason};
pub use slot::{CrossSlot, Slot, assert_same_slot};
