//! Threads that share a lease.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::hint::spin_loop;
use std::time::Duration;

use rwlease_core::acquisition::{AcquisitionEvent, AcquisitionState};
use rwlease_core::protocol::{Doubt, Envelope, Grant, RenewReply, ScriptReply};
use rwlease_core::resp::Address;

use crate::embedded::EmbeddedCluster;
use crate::lock::lease::Lease;
use crate::{Client, LeaseState, RenewalPolicy};

const LEASE: Duration = Duration::from_secs(1);

/// The answer to a renewal, which makes the lease longer.
fn renewed(lease: &Lease) -> AcquisitionEvent {
    let sent = lease.client.clock.now();
    let what = RenewReply::Renewed(Grant::new(
        lease.fencing_token().map_or(0, u64::from),
        1_000_000 + 60_000,
    ));
    AcquisitionEvent::RenewReply(Ok(ScriptReply {
        body: what,
        envelope: Envelope { server_now: 1_000_000, has_more_work: false },
        sent_at: sent,
        received_at: sent,
        server: Address { host: "server".into(), port: 1 },
        confirmed: Ok(()),
        in_doubt: Doubt::None,
    }))
}

/// The answer to a renewal arrives on one thread while an observer on another thread looks at the
/// lease. The lease ends while it looks.
#[tokio::test]
async fn lease_seen_lost_is_never_held_again() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).manual_time().build();
    let locks = Client::builder().lease(LEASE).connect_embedded(&engine).await.unwrap();
    let guard =
        locks.rwlock("lease").unwrap().write().renewal(RenewalPolicy::Manual).await.unwrap();
    engine.advance(guard.remaining() - Duration::from_nanos(1));
    let event = renewed(&guard);
    let (lease, clock) = (&*guard, &guard.client.clock);
    std::thread::scope(|scope| {
        let looking = lease.acquisition.state();
        let answered = scope.spawn(|| lease.client.apply(&lease.acquisition, event));
        // The other thread waits for the state by then, or the test proves nothing.
        std::thread::sleep(Duration::from_millis(200));
        engine.advance(Duration::from_nanos(1));
        let AcquisitionState::Held(holding) = &*looking else { panic!("{looking:?}") };
        assert!(!holding.is_held(clock.now()), "the observer says lost");
        drop(looking);
        assert!(answered.join().unwrap().notify_end);
    });
    assert_eq!(lease.state(), LeaseState::Lost);
}

/// A guard is dropped when its lease has just ended: that is a loss. Another thread that sees the
/// lease gone must see the loss, too.
#[tokio::test]
async fn lease_seen_gone_after_its_end_is_seen_lost() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).manual_time().build();
    let locks = Client::builder().lease(LEASE).connect_embedded(&engine).await.unwrap();
    let lock = locks.rwlock("lease").unwrap();
    for _ in 0..500 {
        let guard = lock.write().renewal(RenewalPolicy::Manual).await.unwrap();
        let lease: Lease = guard.clone();
        engine.advance(guard.remaining());
        std::thread::scope(|scope| {
            scope.spawn(move || drop(guard));
            while lease.acquisition.with_lease(|_| ()).is_some() {
                spin_loop();
            }
            assert!(lease.acquisition.was_lost());
        });
        engine.advance(LEASE); // the server's end
    }
}
