#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use rwlease_core::resp::Address;

use super::*;
use crate::Client;
use crate::embedded::EmbeddedCluster;

const WAITERS: usize = 100;

/// A queue of a hundred does not poll the server all at once.
#[tokio::test(start_paused = true)]
async fn waiters_poll_in_the_order_of_their_places() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let rare = Duration::from_secs(60);
    let settings = Client::builder().poll_interval(rare).waiter_ttl(10 * rare).lease(10 * rare);
    let locks = settings.connect_embedded(&engine).await.unwrap();
    let lock = locks.rwlock("looked at").unwrap();
    let _held = lock.write().await.unwrap();
    for _ in 0..WAITERS {
        let lock = lock.clone();
        tokio::spawn(async move { lock.write().await.map(drop) });
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    engine.reset_script_stats();
    handle_event(&locks.client.0, router::SubscriptionEvent::PollRequired { slot: lock.slot() });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let soon = engine.script_stats().scripts;
    assert!((5..=15).contains(&soon), "{soon} of {WAITERS} in 10 ms");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(engine.script_stats().scripts, WAITERS as u64);
}

/// A client that caches the lock, with two tasks that wait for it while another client holds
/// it.
async fn waits_to_cache() -> (EmbeddedCluster, Client, crate::WriteGuard) {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let connect = async || Client::builder().connect_embedded(&engine).await.unwrap();
    let (locks, others) = (connect().await, connect().await);
    let cached = locks.rwlock("cached").unwrap().cached().unwrap();
    for _ in 0..20 {
        drop(cached.write().await.unwrap());
    }
    let held = others.rwlock("cached").unwrap().write().await.unwrap();
    for cached in [cached.clone(), cached] {
        tokio::spawn(async move {
            drop(cached.write().await.unwrap());
            std::future::pending::<()>().await; // it keeps the handle
        });
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    (engine, locks, held)
}

/// Delivers a message that names the only waiter.
fn deliver_push_for_the_waiter(locks: &Client, payload: impl FnOnce(&str) -> String) {
    let client = &locks.client.0;
    let slot = locks.rwlock("cached").unwrap().slot();
    let [waiter] = &client.waiters_in(slot)[..] else { panic!("not one waits") };
    let address = Address { host: "embedded".into(), port: 7000 };
    let payload = payload(waiter.id.as_str()).into();
    handle_event(
        client,
        router::SubscriptionEvent::Message { slot, address, payload, received: client.clock.now() },
    );
}

fn cached(locks: &Client) -> crate::status::CacheStatus {
    locks.rwlock("cached").unwrap().cached().unwrap().cache_status()
}

/// A recall that arrives before its grant takes effect after it: the lease serves the waiter,
/// then is released.
#[tokio::test(start_paused = true)]
async fn a_recall_that_comes_before_the_grant_is_obeyed_after_it() {
    let (engine, locks, held) = waits_to_cache().await;
    deliver_push_for_the_waiter(&locks, |id| format!("0 w {id}"));
    engine.reset_script_stats();
    let _ = held.release().await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let local = cached(&locks);
    assert_eq!((local.hold, local.waiting), (None, 0), "it has served, and is given back");
    // The other client's release, which grants to the waiter; the claim; the waiter's release.
    assert_eq!(engine.script_stats().scripts, 3);
}

/// The missed messages may include a recall.
#[tokio::test(start_paused = true)]
async fn poll_event_of_a_cached_lock_asks_the_server_once() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let locks = Client::builder().connect_embedded(&engine).await.unwrap();
    let cached = locks.rwlock("cached").unwrap().cached().unwrap();
    for _ in 0..20 {
        drop(cached.read().await.unwrap());
        tokio::time::sleep(Duration::from_millis(1)).await; // until it has subscribed
    }
    assert_eq!(cached.cache_status().hold, Some(crate::LockMode::Read));
    engine.reset_script_stats();
    handle_event(&locks.client.0, router::SubscriptionEvent::PollRequired { slot: cached.slot() });
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(engine.script_stats().scripts, 1);
}

/// A push is for the request that has waited longest, as for an uncached lock. The others share
/// its lease when the server has said that it is cached.
#[tokio::test(start_paused = true)]
async fn pushed_grant_not_yet_claimed_is_not_shared_with_other_requests() {
    let (engine, locks, held) = waits_to_cache().await;
    engine.faults().pause(0);
    let (now, token) = (engine.now(), held.fencing_token().get() + 1);
    let (now, ends) = (now.as_millis(), (now + Duration::from_secs(10)).as_millis());
    deliver_push_for_the_waiter(&locks, |id| format!("{now} 0 {id} {token} {ends}"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let local = cached(&locks);
    assert_eq!((local.hold, local.waiting), (Some(crate::LockMode::Write), 1));
    engine.faults().resume(0);
}

/// A lease of a minute, renewed every 20 s.
async fn holding(waits: bool) -> (EmbeddedCluster, Client, crate::WriteGuard) {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let settings = Client::builder().lease(Duration::from_secs(60));
    let locks = settings.connect_embedded(&engine).await.unwrap();
    let others = Client::builder().connect_embedded(&engine).await.unwrap();
    let held = match waits {
        true => Some(others.rwlock("taken").unwrap().write().await.unwrap()),
        false => None,
    };
    let lock = locks.rwlock("taken").unwrap();
    let writing = tokio::spawn(async move { lock.write().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(held);
    let guard = writing.await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await; // its claim is over
    engine.reset_script_stats();
    (engine, others, guard)
}

#[tokio::test(start_paused = true)]
async fn force_release_with_subscription_loses_the_guard_at_once() {
    let (engine, others, guard) = holding(true).await;
    let locks = guard.client.clone();
    others.rwlock("taken").unwrap().force_release().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(guard.state(), crate::LeaseState::Lost);
    // Two by the operator, and the question.
    assert_eq!(engine.script_stats().scripts, 3);
    drop((guard, locks));
}

#[tokio::test(start_paused = true)]
async fn force_release_without_subscription_loses_the_guard_at_renewal() {
    let (_engine, others, guard) = holding(false).await;
    others.rwlock("taken").unwrap().force_release().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(guard.state(), crate::LeaseState::Held);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(guard.state(), crate::LeaseState::Lost);
}

/// Anybody with the right to publish can send this.
#[tokio::test(start_paused = true)]
async fn a_message_alone_ends_nothing() {
    let (engine, _others, guard) = holding(true).await;
    let client = &guard.client;
    let (id, token, slot) = (guard.id(), guard.fencing_token().get(), guard.slot());
    for payload in [format!("0 f {id} {token}"), format!("0 f {id} {}", token - 1)] {
        let address = Address { host: "embedded".into(), port: 7000 };
        let (payload, received) = (payload.into(), client.clock.now());
        handle_event(
            client,
            router::SubscriptionEvent::Message { slot, address, payload, received },
        );
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(guard.state(), crate::LeaseState::Held);
    assert_eq!(engine.script_stats().scripts, 1, "the server was asked");
}

/// Cached, in use, and under a guard that is being released: all guards are lost.
#[tokio::test(start_paused = true)]
async fn force_release_of_cached_lock_loses_the_guard_at_once() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let connect = async || Client::builder().connect_embedded(&engine).await.unwrap();
    let (locks, others) = (connect().await, connect().await);
    let cached = locks.rwlock("cached").unwrap().cached().unwrap();
    for _ in 0..20 {
        drop(cached.write().await.unwrap());
        tokio::time::sleep(Duration::from_millis(1)).await; // until it has subscribed
    }
    let guard = cached.write().await.unwrap();
    assert_eq!(cached.cache_status().hold, Some(crate::LockMode::Write));
    others.rwlock("cached").unwrap().force_release().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(guard.state(), crate::LeaseState::Lost);
}
