//! What others reported of their locks and clients, tried here: a file for each public report. Its
//! head names the report, says what went wrong there, and what must hold here. `docs/reports.md`
//! lists them with their first results.
//!
//! `cargo test --test reports -- locks::redisson_7272` runs one of them. Reports about commands
//! that run others under a lock are in `cli/tests/reports/`.

// The bans on direct clocks, unwrapping and printing are for the library.
#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod connections;
mod locks;

use std::future::IntoFuture;
use std::time::Duration;

use rwlease::{Client, RwLock};
use testkit::{PollLimit, Server, StandaloneServer, connect, scripts_run};
use tokio::time::timeout;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A lease whose end no test here waits for.
const LONG: Duration = Duration::from_secs(60);

/// Far less than [`LONG`], and enough for a busy machine.
const SOON: Duration = Duration::from_secs(20);

async fn soon<T>(work: impl IntoFuture<Output = T>) -> T {
    timeout(SOON, work.into_future()).await.expect("it is not waited for the end of a lease")
}

/// A server, and a client of it.
async fn one() -> (StandaloneServer, Client) {
    let server = StandaloneServer::start().await.unwrap();
    let locks = connect(&[server.url()]).await.unwrap();
    (server, locks)
}

async fn client(server: &Server) -> Client {
    connect(&[server.url()]).await.unwrap()
}

/// Waits until nobody holds the lock.
async fn until_free(lock: &RwLock) {
    let wait_limit = PollLimit::limited(format!("`{}` to be free", lock.name()), SOON);
    while lock.is_locked().await.unwrap() {
        wait_limit.pause("it is held").await.unwrap();
    }
}

async fn scripts(server: &Server) -> u64 {
    scripts_run(&server.command_stats().await.unwrap())
}
