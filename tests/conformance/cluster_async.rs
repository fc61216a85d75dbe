//! The conformance suite over an application's cluster connection, as far as that supports it.
//!
//! It leaves out what `docs/backends.md` says that the connection cannot promise: hand-offs without
//! polling, and leaving a frozen master. It also leaves out connections that are cut under load:
//! with some versions of tokio these stop that connection forever.

use std::time::Duration;

use crate::support::{Backend, Cluster, ClusterConfig};
use rwlease::{ErrorKind, Locks, UncachedReason};

lock_tests!(two_clients);
server_tests! { by crate::conformance::site::real(Backend::ClusterAsync); on 3 masters with 0: locks_follow_their_slot }
server_tests! { by crate::conformance::site::real(Backend::ClusterAsync); on 2 masters with 0:
    scripts_are_sent_where_they_are_unknown
    keys_of_others_are_left_alone
    locks_are_taken_while_their_slot_migrates
    exclusion_holds_while_slots_move
    waiter_whose_slot_moves_is_granted_at_the_new_master
}
server_tests! { by crate::conformance::site::real(Backend::ClusterAsync); on 3 masters with 1:
    a_failover_by_order_loses_no_lock
    a_dead_master_is_replaced
}

async fn two_clients() -> (Locks, Locks, Cluster) {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let connect = async |node: usize| {
        let url = cluster.node(node).url();
        let connected = Backend::ClusterAsync.connect(Locks::builder(), &[url]).await;
        connected.unwrap()
    };
    (connect(0).await, connect(1).await, cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_refused() {
    let (locks, _other, _cluster) = two_clients().await;
    let lock = locks.rwlock("replicated").unwrap();
    let error = lock.write().replicas(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(lock.try_write().await.unwrap().is_some(), "nothing is left of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_locks_are_plain_and_say_why() {
    let (locks, _other, _cluster) = two_clients().await;
    let lock = locks.rwlock("plain").unwrap().cached().unwrap();
    for _ in 0..5 {
        drop(lock.write().await.unwrap());
    }
    let local = lock.local();
    assert_eq!((local.hold, local.plain_because), (None, Some(UncachedReason::NotSubscribed)));
}

/// It makes no round trip, but its own task needs a runtime.
#[test]
fn outside_a_runtime_it_is_an_error_and_no_panic() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (connection, _cluster) = runtime.block_on(async {
        let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
        (crate::support::cluster_connection(&cluster.urls()).await, cluster)
    });
    let error = Locks::builder().connect_shared(connection).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
}

#[tokio::test]
async fn connect_with_settings_of_the_cluster_connection_is_refused() {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
    let here = |host: &str, port| (host.to_owned(), port);
    let own = [
        ("connect_timeout", Locks::builder().connect_timeout(Duration::from_secs(1))),
        ("max_in_flight", Locks::builder().max_in_flight(9)),
        ("address_translator", Locks::builder().address_translator(here)),
    ];
    for (setting, settings) in crate::support::url_only_settings().into_iter().chain(own) {
        let error = Backend::ClusterAsync.connect(settings, &cluster.urls()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{setting}");
        assert!(error.to_string().contains(setting), "{setting}: {error}");
    }
}
