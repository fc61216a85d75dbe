//! The router: slots, the slot map, redirects, retries.

mod answer;
mod call;
mod clock_bound;
mod map;
mod slot;
mod translation;

pub(crate) use call::{Answer, Call, CallError, Reason, Script};
pub(crate) use clock_bound::ClockBound;
pub use slot::{CrossSlot, Slot, assert_same_slot};
pub(crate) use translation::AddressTranslation;
