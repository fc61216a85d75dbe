//! The conformance suite over an application's cluster connection, as far as that supports it.
//!
//! It leaves out what `docs/backends.md` says that the connection cannot promise: hand-offs without
//! polling, and leaving a frozen master. It also leaves out connections that are cut under load:
//! with some versions of tokio these stop that connection forever.

use std::time::Duration;

use conformance::lock_tests;
use conformance::site::{real, two_clients};
use rwlease::status::UncachedReason;
use rwlease::{Client, ErrorKind};
use testkit::{Backend, Cluster, ClusterConfig};

lock_tests!(two_clients(Backend::ClusterAsync));
conformance::server_tests! { by real(Backend::ClusterAsync); on 3 masters with 0: locks_follow_their_slot }
conformance::server_tests! { by real(Backend::ClusterAsync); on 2 masters with 0:
    scripts_are_sent_where_they_are_unknown
    keys_of_others_are_left_alone
    locks_are_taken_while_their_slot_migrates
    exclusion_holds_while_slots_move
    waiter_whose_slot_moves_is_granted_at_the_new_master
}
conformance::server_tests! { by real(Backend::ClusterAsync); on 3 masters with 1:
    a_failover_by_order_loses_no_lock
    a_dead_master_is_replaced
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_refused() {
    let (locks, _other, _cluster) = two_clients(Backend::ClusterAsync).await;
    let lock = locks.rwlock("replicated").unwrap();
    let error = lock.write().min_replicas(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert!(lock.try_write().await.unwrap().is_some(), "nothing is left of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_locks_are_plain_and_say_why() {
    let (locks, _other, _cluster) = two_clients(Backend::ClusterAsync).await;
    let lock = locks.rwlock("plain").unwrap().cached().unwrap();
    for _ in 0..5 {
        drop(lock.write().await.unwrap());
    }
    let local = lock.cache_status();
    assert_eq!((local.hold, local.uncached_reason), (None, Some(UncachedReason::NotSubscribed)));
}

/// It makes no round trip, but its own task needs a runtime.
#[test]
fn outside_a_runtime_it_is_an_error_and_no_panic() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (connection, _cluster) = runtime.block_on(async {
        let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
        (testkit::cluster_connection(&cluster.urls()).await, cluster)
    });
    let error = Client::builder().connect_shared(connection).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
}

#[tokio::test]
async fn connect_with_settings_of_the_cluster_connection_is_refused() {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
    let here = |host: &str, port| (host.to_owned(), port);
    let own = [
        ("connect_timeout", Client::builder().connect_timeout(Duration::from_secs(1))),
        ("max_in_flight", Client::builder().max_in_flight(9)),
        ("address_translator", Client::builder().address_translator(here)),
    ];
    let connect = async |settings| Backend::ClusterAsync.connect(settings, &cluster.urls()).await;
    crate::must_refuse(testkit::url_only_settings().into_iter().chain(own), connect).await;
}
