//! The runtime that made a client has ended.

use std::future::IntoFuture;
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{ErrorKind, LeaseState, Locks, Released};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::support::{ConnectBuilder, StandaloneServer};

/// Ends a test that would never end.
const LONG: Duration = Duration::from_secs(30);

fn says_so(error: &rwlease::Error) {
    assert_eq!(error.kind(), ErrorKind::ClientFailed, "{error}");
    assert!(error.to_string().contains("runtime"), "{error}");
}

/// What a client says on another runtime when its own has ended.
async fn must_have_failed(locks: Locks) {
    let lock = locks.rwlock("later").unwrap();
    let soon = "it must end at once";
    says_so(&timeout(LONG, lock.write().into_future()).await.expect(soon).unwrap_err());
    says_so(&timeout(LONG, lock.try_read().into_future()).await.expect(soon).unwrap_err());
    says_so(&timeout(LONG, lock.is_locked()).await.expect(soon).unwrap_err());
    let mutex = locks.mutex("later").unwrap();
    says_so(&timeout(LONG, mutex.lock().into_future()).await.expect(soon).unwrap_err());
    let multi = locks.multi().write("a").write("b");
    says_so(&timeout(LONG, multi.into_future()).await.expect(soon).unwrap_err());
    let cached = lock.cached().unwrap();
    says_so(&timeout(LONG, cached.read().into_future()).await.expect(soon).unwrap_err());
    assert_eq!(timeout(LONG, locks.shutdown(LONG)).await.expect(soon), ["held", "taken"]);
}

#[test]
fn client_whose_runtime_has_ended_fails_at_once_on_another() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let server = second.block_on(StandaloneServer::start()).unwrap();
    let urls = [server.url()];
    let connect = || Locks::builder().connect_to(&urls);
    let locks = first.block_on(connect()).unwrap();
    let others = second.block_on(connect()).unwrap();
    second.block_on(async {
        let _taken = others.rwlock("taken").unwrap().write().await.unwrap();
        let guard = locks.rwlock("held").unwrap().write().await.unwrap();
        let lock = locks.rwlock("taken").unwrap();
        let waiting = tokio::spawn(async move { lock.write().await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (lease, token) = (guard.clone(), guard.cancellation());
        let losing = tokio::spawn(async move { lease.lost().await });
        first.shutdown_background();
        timeout(LONG, losing).await.expect("it is told").unwrap();
        timeout(LONG, token.cancelled()).await.expect("it is cancelled");
        assert_eq!(guard.state(), LeaseState::Lost);
        let waited = timeout(LONG, waiting).await.expect("it ends").unwrap();
        says_so(&waited.unwrap_err());
        says_so(&timeout(LONG, guard.renew()).await.expect("it ends").unwrap_err());
        let released = timeout(LONG, guard.release()).await.expect("it ends").unwrap();
        assert_eq!(released, Released::AlreadyLost);
        must_have_failed(locks).await;
    });
}

/// A call waits for a server that does not answer when the runtime ends.
#[test]
fn call_under_way_ends_with_the_runtime_of_its_client() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let engine =
        first.block_on(async { EmbeddedCluster::builder().masters(1).replicas(0).build() });
    let locks = first.block_on(Locks::builder().connect_embedded(&engine)).unwrap();
    second.block_on(async {
        engine.faults().pause(0);
        let lock = locks.rwlock("silent").unwrap();
        let waiting = tokio::spawn(async move { lock.write().await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        first.shutdown_background();
        let waited = timeout(LONG, waiting).await.expect("it ends").unwrap();
        says_so(&waited.unwrap_err());
    });
}
