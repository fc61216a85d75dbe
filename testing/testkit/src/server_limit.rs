//! Limits how many servers of the tests run at a time: a program has many tests, and a machine few
//! processors.
//!
//! A test waits for its turn before it starts its first server, and never later, so a test that
//! waits holds nothing that another one could wait for.

use std::sync::Arc;

use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

/// Three clusters of six nodes.
const NODES: u32 = 18;

static FREE: Semaphore = Semaphore::const_new(NODES as usize);

thread_local! {
    /// Each test has its own thread, and its turn ends with the thread.
    static TURN: Arc<OnceCell<Option<SemaphorePermit<'static>>>> = Arc::default();
}

/// Waits until that many nodes may be started, if this thread has started none so far.
pub(super) async fn acquire_server_slots(nodes: usize) {
    let turn = TURN.with(Arc::clone);
    let nodes = u32::try_from(nodes).unwrap_or(NODES).min(NODES);
    // Several may be started together: one of them waits for all.
    turn.get_or_init(async || FREE.acquire_many(nodes).await.ok()).await;
}
