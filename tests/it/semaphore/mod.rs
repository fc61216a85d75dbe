//! Semaphores: permits that are shared, waited for and partly released, with the server's limit.

#[cfg(feature = "embedded")]
mod flying;
mod server;
