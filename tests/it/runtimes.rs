//! The runtime that made a client has ended.

use std::future::IntoFuture;
use std::time::Duration;

use rwlease::{Client, ErrorKind, LeaseState, ReleaseOutcome};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::fixture::{LONG, client, engine};
use testkit::{ConnectBuilder, StandaloneServer, spawn_write};

fn says_so(error: &rwlease::Error) {
    assert_eq!(error.kind(), ErrorKind::ClientFailed, "{error}");
    assert!(error.to_string().contains("runtime"), "{error}");
}

/// What a client says on another runtime when its own has ended.
async fn must_have_failed(locks: Client) {
    let lock = locks.rwlock("later").unwrap();
    let soon = "it must end at once";
    says_so(&timeout(LONG, lock.write().into_future()).await.expect(soon).unwrap_err());
    says_so(&timeout(LONG, lock.try_read().into_future()).await.expect(soon).unwrap_err());
    says_so(&timeout(LONG, lock.is_locked()).await.expect(soon).unwrap_err());
    let mutex = locks.set_nx_mutex("later").unwrap();
    says_so(&timeout(LONG, mutex.lock().into_future()).await.expect(soon).unwrap_err());
    let multi = locks.multi_lock().write("a").write("b");
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
    let connect = || Client::builder().connect_to(&urls);
    let locks = first.block_on(connect()).unwrap();
    let others = second.block_on(connect()).unwrap();
    second.block_on(async {
        let _taken = others.rwlock("taken").unwrap().write().await.unwrap();
        let guard = locks.rwlock("held").unwrap().write().await.unwrap();
        let waiting = spawn_write(&locks.rwlock("taken").unwrap());
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (lease, token) = (guard.clone(), guard.cancellation_token());
        let losing = tokio::spawn(async move { lease.ended().await });
        first.shutdown_background();
        timeout(LONG, losing).await.expect("it is told").unwrap();
        timeout(LONG, token.cancelled()).await.expect("it is cancelled");
        assert_eq!(guard.state(), LeaseState::Lost);
        let waited = timeout(LONG, waiting).await.expect("it ends").unwrap();
        says_so(&waited.unwrap_err());
        says_so(&timeout(LONG, guard.renew()).await.expect("it ends").unwrap_err());
        let released = timeout(LONG, guard.release()).await.expect("it ends").unwrap();
        assert_eq!(released, ReleaseOutcome::AlreadyLost);
        must_have_failed(locks).await;
    });
}

/// A call waits for a server that does not answer when the runtime ends.
#[test]
fn call_under_way_ends_with_the_runtime_of_its_client() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let engine = first.block_on(async { engine() });
    let locks = first.block_on(client(&engine));
    second.block_on(async {
        engine.faults().pause(0);
        let waiting = spawn_write(&locks.rwlock("silent").unwrap());
        tokio::time::sleep(Duration::from_millis(300)).await;
        first.shutdown_background();
        let waited = timeout(LONG, waiting).await.expect("it ends").unwrap();
        says_so(&waited.unwrap_err());
    });
}
