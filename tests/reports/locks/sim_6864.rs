//! simstudioai/sim#6864: the client gives up on an acquisition that the server carries out. The
//! lock is then held by nobody, and everybody waits for its whole time to live.
//!
//! What a request that failed may have been granted is given back as soon as the server answers.

use rwlease::Locks;
use tokio::time::sleep;

use crate::support::{ConnectBuilder, Proxy, ProxyFlow};
use crate::{LONG, SECOND, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn lock_granted_to_a_request_that_gave_up_is_given_back() {
    let (server, near) = one().await;
    let proxy = Proxy::start(&server).await.unwrap();
    let settings = Locks::builder().call_timeout(SECOND);
    let locks = settings.connect_to(&[proxy.url()]).await.unwrap();
    let _ = locks.rwlock("warm").unwrap().write().await.unwrap().release().await.unwrap();
    let (lock, mutex) = (locks.rwlock("poll").unwrap(), locks.mutex("poll").unwrap());
    proxy.replies(ProxyFlow::Dropped);
    assert!(soon(lock.write().lease(LONG).timeout(SECOND)).await.is_err());
    assert!(soon(mutex.try_lock().lease(LONG)).await.is_err());
    sleep(SECOND).await;
    proxy.cut();
    proxy.heal();
    drop(soon(near.rwlock("poll").unwrap().write()).await.unwrap());
    drop(soon(near.mutex("poll").unwrap().lock()).await.unwrap());
}
