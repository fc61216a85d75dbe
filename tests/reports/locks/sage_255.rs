//! ghostdogpr/sage#255: one renewal that is refused while the server is short of replicas ends the
//! lock, although most of its lease is left.
//!
//! A renewal that fails in passing is repeated for as long as the lease lasts.

use tokio::time::sleep;

use crate::{SECOND, one};
use testkit::wait_renewed;

#[tokio::test(flavor = "multi_thread")]
async fn lease_outlasts_renewals_that_are_refused_for_a_while() {
    let (server, locks) = one().await;
    let guard = locks.rwlock("job").unwrap().write().lease(6 * SECOND).await.unwrap();
    for refusal in ["min-replicas-to-write 1", "maxmemory 1"] {
        server.run_words::<()>(&format!("CONFIG SET {refusal}")).await.unwrap();
        sleep(3 * SECOND).await;
        let usual = refusal.replace('1', "0");
        server.run_words::<()>(&format!("CONFIG SET {usual}")).await.unwrap();
        wait_renewed(&guard, 2).await.unwrap();
    }
}
