use std::time::Duration;

use super::*;
use crate::backend::fake::{FakeCluster, TestClock, address};
use crate::router::address_translation::AddressTranslator;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connect_timeout: Duration::from_secs(1),
    response_timeout: Duration::from_secs(1),
    max_in_flight: 1,
};

/// A connection that a dial inserts after the others were cleared would stay open. The order of
/// the threads is up to the system, so the test repeats it often.
#[tokio::test]
async fn a_dial_that_ends_while_the_client_is_closed_leaves_no_connection() {
    let (fakes, clock) = (FakeCluster::new(&[(0, 16383, "a")]), TestClock::start());
    let connector: Arc<dyn Connector> = Arc::new(fakes);
    for _ in 0..200 {
        let membership = Arc::new(Membership::new(AddressTranslator(None), LIMITS, None));
        let connections = ConnectionPool::new(PoolConfig {
            connector: connector.clone(),
            clock: clock.clone(),
            membership,
            limits: LIMITS,
            runtime: RuntimeHandle::current(connector.health()),
        });
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
