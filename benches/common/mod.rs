//! What benches on clusters share.

// Every user compiles this as a module of its own and needs only a part of it.
#![allow(dead_code, unused_imports)]

mod bare;
mod target;

pub use bare::{Bare, Kind, SameScripts, SetNx};
pub use target::Target;
