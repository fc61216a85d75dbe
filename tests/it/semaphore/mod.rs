//! Semaphores: permits that are shared, waited for, given back in parts, and limited by what the
//! server says.

#[cfg(feature = "embedded")]
mod flying;
mod server;
