//! How long a server is the master. Its answers count no longer than that.

use std::sync::atomic::{AtomicBool, Ordering};

/// From the time when a server was named as the master until another one is named.
#[derive(Debug, Default)]
pub(crate) struct MasterTerm {
    has_ended: AtomicBool,
}

impl MasterTerm {
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::backend::fake::{FakeCluster, TestClock, address};
    use crate::router::connection::{ConnectionLimits, ServerConnection};

    const LIMIT: Duration = Duration::from_secs(1);
    const LIMITS: ConnectionLimits =
        ConnectionLimits { connect_timeout: LIMIT, response_timeout: LIMIT, max_in_flight: 1 };

    /// Even before the client has a new map.
    #[tokio::test(start_paused = true)]
    async fn a_connection_serves_for_one_tenure() {
        let (fakes, at) = (FakeCluster::new(&[(0, 16383, "a")]), address("a"));
        let opening = ServerConnection::open(&fakes, TestClock::start(), &at, None, LIMITS);
        let connection = opening.await.unwrap();
        let tenure = Arc::<MasterTerm>::default();
        connection.bind_to_term(tenure.clone());
        assert!(connection.is_usable());
        tenure.end();
        assert!(!connection.is_usable());
    }
}
