use super::*;
use crate::backend::fake::{FakeCluster, TestClock, address};

const LIMIT: Duration = Duration::from_secs(1);
const LIMITS: ConnectionLimits =
    ConnectionLimits { connect_timeout: LIMIT, response_timeout: LIMIT, max_in_flight: 1 };

/// Even before the client has a new map.
#[tokio::test(start_paused = true)]
async fn a_connection_serves_for_one_tenure() {
    let (fakes, at) = (FakeCluster::new(&[(0, 16383, "a")]), address("a"));
    let opening = ServerConnection::open(&fakes, TestClock::start(), &at, None, LIMITS);
    let connection = opening.await.unwrap();
    let has_ended = Arc::<AtomicBool>::default();
    connection.bind_to_term(has_ended.clone());
    assert!(connection.is_usable());
    has_ended.store(true, Ordering::Release);
    assert!(!connection.is_usable());
}
