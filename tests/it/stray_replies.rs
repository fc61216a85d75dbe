//! Replies that belong to no command, which give each later caller the reply of another one.

use std::time::Duration;

use rwlease::{Client, LockMode, WriteGuard};
use testkit::{Backend, Proxy, ProxyFlow, StandaloneServer};
use tokio::task::JoinHandle;

use crate::fixture::eventually;

const BACKENDS: &[Backend] = &[
    #[cfg(feature = "native")]
    Backend::Native,
    #[cfg(feature = "redis")]
    Backend::Redis,
    #[cfg(feature = "fred")]
    Backend::Fred,
];

/// A lock that another client holds, and a client behind a proxy.
struct Scene {
    server: StandaloneServer,
    proxy: Proxy,
    locks: Client,
    _held: WriteGuard,
    _holder: Client,
}

type Try = JoinHandle<rwlease::Result<Option<WriteGuard>>>;

impl Scene {
    async fn new(backend: Backend) -> Scene {
        let server = StandaloneServer::start().await.unwrap();
        let holder = backend.connect(Client::builder(), &[server.url()]).await.unwrap();
        let held = holder.rwlock("held").unwrap().write().await.unwrap();
        let proxy = Proxy::start(&server).await.unwrap();
        // No reply counts as late while the proxy holds it back.
        let settings = Client::builder().response_timeout(Duration::from_secs(20));
        let locks = backend.connect(settings, &[proxy.url()]).await.unwrap();
        // The connection is open, and the server knows the scripts.
        let _ = locks.rwlock("warm").unwrap().write().await.unwrap().release().await.unwrap();
        Scene { server, proxy, locks, _held: held, _holder: holder }
    }

    /// Starts a try of each lock in turn, and waits until the server has run all of them. Their
    /// replies are held back.
    async fn tries(&self, names: &[&str]) -> Vec<Try> {
        self.proxy.replies(ProxyFlow::Paused);
        let mut tries = Vec::new();
        for name in names {
            let calls = async || self.server.calls("evalsha").await.unwrap();
            let before = calls().await;
            let lock = self.locks.rwlock(*name).unwrap();
            tries.push(tokio::spawn(async move { lock.try_write().await }));
            eventually("the server runs it", async || calls().await > before).await;
        }
        tries
    }
}

async fn outcome(attempt: Try) -> Option<WriteGuard> {
    attempt.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn try_write_behind_a_surplus_reply_gets_no_grant_of_another() {
    for &backend in BACKENDS {
        let scene = Scene::new(backend).await;
        let tries = scene.tries(&["free", "held"]).await;
        scene.proxy.insert(":1\r\n");
        scene.proxy.heal();
        let [free, held]: [Try; 2] = tries.try_into().unwrap();
        assert!(outcome(held).await.is_none(), "{backend:?}: another client holds it");
        let free = outcome(free).await.expect("free");
        assert!(free.is_held() && free.mode() == Some(LockMode::Write), "{backend:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn try_write_that_gets_the_grant_of_another_client_is_not_granted() {
    for &backend in BACKENDS {
        let scene = Scene::new(backend).await;
        let [held]: [Try; 1] = scene.tries(&["held"]).await.try_into().unwrap();
        let stray = "granted 1700000000000 0 client-id-00000001 1700000000000000 9999999999999";
        scene.proxy.insert(format!("${}\r\n{stray}\r\n", stray.len()));
        scene.proxy.heal();
        assert!(outcome(held).await.is_none(), "{backend:?}: another client holds it");
    }
}
