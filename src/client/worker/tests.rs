#![allow(clippy::disallowed_methods)]

use rwlease_core::acquisition::AcquisitionState;

use super::*;
use crate::Client;
use crate::embedded::EmbeddedCluster;

/// Any change of a lease makes the worker look at it, even if it was given up just then and its
/// release is under way.
#[tokio::test(start_paused = true)]
async fn a_release_on_its_way_is_not_sent_again() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let locks = Client::builder().label("").connect_embedded(&engine).await.unwrap();
    let guard = locks.rwlock("releasing").unwrap().write().await.unwrap();
    let acquisition = guard.acquisition.clone();
    engine.faults().pause(0);
    engine.reset_script_stats();
    drop(guard);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(20)).await; // within the time of one attempt
        locks.client.0.look_by(&acquisition, locks.client.0.clock.now(), true);
    }
    assert!(
        matches!(&*acquisition.state(), AcquisitionState::Releasing(releasing) if releasing.is_sent())
    );
    engine.faults().resume(0);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(matches!(&*acquisition.state(), AcquisitionState::Ended));
    assert_eq!(engine.script_stats().scripts, 1);
}
