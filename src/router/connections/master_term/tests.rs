use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::backend::fake::{FakeCluster, TestClock, address};
use crate::router::connections::limits::ConnectionLimits;
use crate::router::connections::server_connection::ServerConnection;

const LIMIT: Duration = Duration::from_secs(1);
const LIMITS: ConnectionLimits =
    ConnectionLimits { connect_timeout: LIMIT, response_timeout: LIMIT, max_in_flight: 1 };

/// Even before the client has a new map.
#[tokio::test(start_paused = true)]
async fn a_connection_serves_for_one_tenure() {
    let (fakes, at) = (FakeCluster::new(&[(0, 16383, "a")]), address("a"));
    let opening = ServerConnection::open(&fakes, TestClock::start(), &at, None, LIMITS);
    let connection = opening.await.unwrap();
    let term = Arc::<MasterTerm>::default();
    connection.bind_to_term(term.clone());
    assert!(connection.is_usable());
    term.end();
    assert!(!connection.is_usable());
}
