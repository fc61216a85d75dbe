//! How long a server is the master. Its answers count no longer than that.

use std::sync::atomic::{AtomicBool, Ordering};

/// From the time when a server was named as the master until another one is named.
#[derive(Debug, Default)]
pub(crate) struct Tenure {
    is_over: AtomicBool,
}

impl Tenure {
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::node::fake::{Fakes, TestClock, address};
    use crate::router::connection::{Connection, Limits};

    const LIMIT: Duration = Duration::from_secs(1);
    const LIMITS: Limits = Limits { connect_timeout: LIMIT, response_timeout: LIMIT, in_flight: 1 };

    /// Even before the client has a new map.
    #[tokio::test(start_paused = true)]
    async fn a_connection_serves_for_one_tenure() {
        let (fakes, at) = (Fakes::new(&[(0, 16383, "a")]), address("a"));
        let opening = Connection::open(&fakes, TestClock::start(), &at, None, LIMITS);
        let connection = opening.await.unwrap();
        let tenure = Arc::<Tenure>::default();
        connection.serve_for(tenure.clone());
        assert!(connection.is_usable());
        tenure.end();
        assert!(!connection.is_usable());
    }
}
