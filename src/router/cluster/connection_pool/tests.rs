use std::time::Duration;

use super::*;
use crate::backend::fake::{DialBehavior, FakeCluster, TestClock, address};
use crate::router::address_translation::AddressTranslator;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connect_timeout: Duration::from_secs(1),
    response_timeout: Duration::from_secs(1),
    max_in_flight: 1,
};

fn pool_of(connector: Arc<dyn Connector>, clock: Arc<TestClock>) -> Arc<ConnectionPool> {
    ConnectionPool::new(PoolConfig {
        runtime: RuntimeHandle::current(connector.health()),
        connector,
        clock,
        membership: Arc::new(Membership::new(AddressTranslator(None), LIMITS, None)),
        limits: LIMITS,
    })
}

/// The connection before was closed without an answer.
#[tokio::test(start_paused = true)]
async fn dial_failure_is_that_of_the_last_dial() {
    let (fakes, at) = (FakeCluster::new(&[(0, 16383, "a")]), address("a"));
    let pool = pool_of(Arc::new(fakes.clone()), TestClock::start());
    pool.connect(&at, false).await.unwrap();
    fakes.break_connections("a");
    fakes.set_dial_behavior("a", DialBehavior::Refuse);
    let failure = pool.connect(&at, true).await.map(drop).unwrap_err();
    let known = pool.dial_failure(&at).map(|failure| failure.to_string());
    assert_eq!(known, Some(failure.to_string()));
}

/// A connection that a dial inserts after the others were cleared would stay open. The order of
/// the threads is up to the system, so the test repeats it often.
#[tokio::test]
async fn a_dial_that_ends_while_the_client_is_closed_leaves_no_connection() {
    let (fakes, clock) = (FakeCluster::new(&[(0, 16383, "a")]), TestClock::start());
    let connector: Arc<dyn Connector> = Arc::new(fakes);
    for _ in 0..200 {
        let connections = pool_of(connector.clone(), clock.clone());
        let opened =
            ServerConnection::open(&*connector, clock.clone(), &address("a"), None, LIMITS).await;
        let opened = opened.map(Arc::new);
        let reading = read(&connections.by_address);
        std::thread::scope(|scope| {
            scope.spawn(|| connections.finish_dial(&address("a"), opened));
            // The dial holds this lock until it may write what is read here.
            while connections.dials.try_lock().is_ok() {
                std::thread::yield_now();
            }
            (0..100).for_each(|_| std::thread::yield_now());
            scope.spawn(|| connections.close());
            while !connections.is_closed() {
                std::thread::yield_now();
            }
            drop(reading);
        });
        assert!(connections.get(&address("a")).is_none(), "nobody would close it");
    }
}
