//! The plain mutex on real servers: alone, shared with redis-py, lost, retried, and on a cluster
//! whose slots move.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::cmd;
use rwlease::{
    ErrorKind, LeaseState, LockMode, ReleaseOutcome, RenewalPolicy, RetryPolicy, SetNxMutexGuard,
};
use testkit::{Cluster, ClusterConfig, CutPoint, Proxy, RedisPy, StandaloneServer, connect};
use tokio::time::timeout;

use crate::fixture::{LONG, eventually, in_task, single};

#[tokio::test(flavor = "multi_thread")]
async fn mutex_is_one_string_key_with_the_id_of_its_holder() {
    let (server, locks) = single().await;
    let mutex = locks.set_nx_mutex("report").unwrap();
    let held = mutex.lock().lease(Duration::from_secs(20)).await.unwrap();
    assert_eq!(server.run_words::<String>("GET report").await.unwrap(), held.id());
    let left: u64 = server.run_words("PTTL report").await.unwrap();
    assert!((1..=20_000).contains(&left), "{left}");
    assert_eq!((held.fencing_token(), held.mode()), (None, Some(LockMode::Write)));

    let other = connect(&[server.url()]).await.unwrap().set_nx_mutex("report").unwrap();
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(other.is_locked().await.unwrap());
    assert!(other.is_held_by(held.id()).await.unwrap());
    assert!(!other.is_held_by("somebody").await.unwrap());
    let status = other.status().await.unwrap().expect("held");
    assert_eq!(status.value, held.id().as_bytes());
    assert!(status.remaining.is_some_and(|left| left <= Duration::from_secs(20)));

    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(!other.is_locked().await.unwrap());
    assert_eq!(server.run_words::<u64>("EXISTS report").await.unwrap(), 0);
    drop(other.try_lock().await.unwrap().expect("free"));
    eventually("it is released", async || !mutex.is_locked().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_and_redis_py_exclude_each_other() {
    let (server, locks) = single().await;
    let mutex = locks.set_nx_mutex("shared").unwrap();
    let mut python = RedisPy::lock(&server, "shared", Duration::from_secs(30)).unwrap();

    // redis-py holds, and the library waits.
    assert_eq!(python.request("try").unwrap(), "True");
    assert!(mutex.try_lock().await.unwrap().is_none());
    let value = python.request("value").unwrap();
    assert!(mutex.is_held_by(&value).await.unwrap());
    let waiting = in_task(&mutex, |mutex| async move { mutex.lock().timeout(LONG).await });
    server.wait_until_called("evalsha", 2).await.unwrap(); // it tries
    assert!(!waiting.is_finished());
    assert_eq!(python.request("release").unwrap(), "released");
    let held = waiting.await.unwrap().unwrap();

    // The library holds, and redis-py waits.
    assert_eq!(python.request("try").unwrap(), "False");
    assert_eq!(
        (python.request("locked").unwrap(), python.request("owned").unwrap()),
        ("True".into(), "False".into())
    );
    python.begin("wait").unwrap();
    server.wait_until_called("set", 2).await.unwrap(); // it tries
    assert!(held.is_held());
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(python.answer().unwrap(), "True");

    // Neither of them deletes, by its release, a lock that the other one holds.
    server.run_words::<u64>("DEL shared").await.unwrap();
    let ours = mutex.lock().await.unwrap();
    assert_eq!(python.request("release").unwrap(), "LockNotOwnedError");
    assert!(mutex.is_held_by(ours.id()).await.unwrap());
    server.run_words::<u64>("DEL shared").await.unwrap();
    assert_eq!(python.request("try").unwrap(), "True");
    assert_eq!(ours.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    assert_eq!(python.request("owned").unwrap(), "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_is_renewed_while_held_up_to_its_renewal_limit() {
    let (_server, locks) = single().await;
    let lease = Duration::from_secs(2);
    let renewed = locks.set_nx_mutex("renewed").unwrap().lock().lease(lease).await.unwrap();
    let twice = locks.set_nx_mutex("twice").unwrap();
    let twice = twice.lock().lease(lease).renewal(RenewalPolicy::Limited(2)).await.unwrap();
    let never = locks.set_nx_mutex("never").unwrap();
    let never = never.lock().lease(lease).renewal(RenewalPolicy::Manual).await.unwrap();
    timeout(LONG, never.ended()).await.unwrap();
    assert_eq!(never.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    timeout(LONG, twice.ended()).await.unwrap();
    assert_eq!(twice.state(), LeaseState::Lost);
    assert_eq!(renewed.state(), LeaseState::Held);
    renewed.renew().await.unwrap();
    assert_eq!(renewed.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_overwritten_by_another_client_is_lost() {
    let (server, locks) = single().await;
    let mutex = locks.set_nx_mutex("taken").unwrap();
    let held = mutex.lock().lease(Duration::from_secs(3)).await.unwrap();
    server.run_words::<String>("SET taken by-force").await.unwrap();
    timeout(LONG, held.ended()).await.unwrap();
    assert_eq!(held.state(), LeaseState::Lost);
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    assert_eq!(server.run_words::<String>("GET taken").await.unwrap(), "by-force");
    assert!(mutex.is_held_by("by-force").await.unwrap());
    assert_eq!(mutex.status().await.unwrap().unwrap().remaining, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_call_with_a_lost_reply_is_repeated() {
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let locks = connect(&[proxy.url()]).await.unwrap();
    let mutex = locks.set_nx_mutex("lost").unwrap();
    // The server knows the scripts from here on.
    let _ = mutex.lock().await.unwrap().release().await.unwrap();
    let digest = |name: &str| {
        let script = rwlease::scripts().find(|script| script.name() == name).unwrap();
        script.digest().to_owned()
    };
    for round in 0..10 {
        let sprung = proxy.trap(&digest("set_nx/acquire"), CutPoint::AfterIt);
        server.reset_stats().await.unwrap();
        let held = timeout(LONG, mutex.try_lock()).await.unwrap().unwrap();
        timeout(LONG, sprung).await.unwrap().unwrap();
        let held =
            held.unwrap_or_else(|| panic!("round {round}: refused by its own first attempt"));
        assert_eq!(server.run_words::<String>("GET lost").await.unwrap(), held.id());
        let release = digest("set_nx/release");
        let has_own = server.version().deletes_if_equal();
        let sprung = proxy.trap(if has_own { "DELIFEQ" } else { &release }, CutPoint::AfterIt);
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released, "round {round}");
        timeout(LONG, sprung).await.unwrap().unwrap();
        assert_eq!(server.run_words::<u64>("EXISTS lost").await.unwrap(), 0);
    }
}

/// A user without the right to the server's command releases by the library's script.
#[tokio::test(flavor = "multi_thread")]
async fn mutex_release_uses_delifeq_where_allowed() {
    let (server, locks) = single().await;
    let mutex = locks.set_nx_mutex("deleted").unwrap();
    let has_own = server.version().deletes_if_equal();
    for may in [true, false] {
        if !may && has_own {
            server.run_words::<()>("ACL SETUSER default -delifeq").await.unwrap();
        }
        let _ = mutex.lock().await.unwrap().release().await.unwrap();
        server.reset_stats().await.unwrap();
        for _ in 0..3 {
            let held = mutex.lock().await.unwrap();
            assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
        }
        let own = if may && has_own { 3 } else { 0 };
        assert_eq!(server.calls("delifeq").await.unwrap(), own);
        assert_eq!(server.calls("evalsha").await.unwrap(), 6 - own);
        let held = mutex.lock().await.unwrap();
        server.run_words::<String>("SET deleted another").await.unwrap();
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
        assert_eq!(server.run_words::<String>("GET deleted").await.unwrap(), "another");
        server.run_words::<u64>("DEL deleted").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_retry_ends_by_tries_timeout_or_cancel() {
    let (server, locks) = single().await;
    let mutex = locks.set_nx_mutex("tried").unwrap();
    server.run_words::<String>("SET tried by-another").await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());

    server.reset_stats().await.unwrap();
    let retry = RetryPolicy::exponential(Duration::from_millis(1), Duration::from_millis(8))
        .max_attempts(7);
    let used_up = mutex.lock().retry_policy(retry).await.unwrap_err();
    assert_eq!((used_up.kind(), used_up.lock()), (ErrorKind::AttemptsExhausted, Some("tried")));
    assert_eq!(server.calls("evalsha").await.unwrap(), 7);

    let short = Duration::from_millis(120);
    let timed_out = mutex
        .lock()
        .retry_policy(RetryPolicy::fixed(Duration::from_millis(5)).timeout(short))
        .await
        .unwrap_err();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    assert_eq!(mutex.lock().timeout(short).await.unwrap_err().kind(), ErrorKind::TimedOut);

    let (cancel, cancelled) = tokio::sync::oneshot::channel::<()>();
    let waiting = in_task(&mutex, |mutex| async move {
        mutex.lock().cancel_when(async { drop(cancelled.await) }).await
    });
    server.wait_until_called("evalsha", 2).await.unwrap(); // it tries
    assert!(!waiting.is_finished());
    drop(cancel);
    let cancelled = timeout(LONG, waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!((cancelled.kind(), cancelled.lock()), (ErrorKind::Cancelled, Some("tried")));

    let zero = mutex.lock().timeout(Duration::ZERO).await.unwrap_err();
    assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    assert_eq!(server.run_words::<String>("GET tried").await.unwrap(), "by-another");
}

#[tokio::test(flavor = "multi_thread")]
async fn rwlock_with_retry_is_polled_and_not_queued() {
    let (server, locks) = single().await;
    let lock = locks.rwlock("retried").unwrap();
    let held = lock.write().await.unwrap();
    let retry = RetryPolicy::fixed(Duration::from_millis(2)).max_attempts(5);
    let used_up = lock.read().retry_policy(retry.clone()).await.unwrap_err();
    assert_eq!(used_up.kind(), ErrorKind::AttemptsExhausted);
    let waiters: Option<String> =
        server.run(cmd("HGET").arg("rwlease:retried").arg("waiters")).await.unwrap();
    assert_eq!(waiters, None, "nobody stands in the queue");
    let cancelled = lock.write().cancel_when(tokio::time::sleep(Duration::from_millis(50))).await;
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    let waiting = tokio::spawn({
        let (lock, often) = (lock.clone(), RetryPolicy::fixed(Duration::from_millis(2)));
        async move { lock.write().retry_policy(often).await }
    });
    let token = held.fencing_token();
    let _ = held.release().await.unwrap();
    let next = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.fencing_token() > token);
    drop(next);
    assert!(lock.read().retry_policy(retry).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_request_dropped_leaves_no_key() {
    let (server, locks) = single().await;
    let mutex = locks.set_nx_mutex("dropped").unwrap();
    for polls in 0..200u32 {
        let mut request = std::pin::pin!(mutex.lock().into_future());
        for _ in 0..polls % 8 {
            if futures::poll!(&mut request).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
            if polls % 3 == 0 {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        }
    }
    assert_eq!(locks.shutdown(LONG).await, Vec::<String>::new());
    assert_eq!(server.run_words::<u64>("EXISTS dropped").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_on_a_foreign_key_fails_and_leaves_the_key() {
    let (server, locks) = single().await;
    server.run_words::<u64>("HSET other a 1").await.unwrap();
    let mutex = locks.set_nx_mutex("other").unwrap();
    assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(mutex.status().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(server.run_words::<String>("HGET other a").await.unwrap(), "1");
    assert_eq!(locks.set_nx_mutex("").unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// One task at a time, while the slot moves from master to master: an unprotected read, add and
/// write counts exactly.
#[tokio::test(flavor = "multi_thread")]
async fn mutex_excludes_while_its_slot_moves() {
    const TASKS: usize = 6;
    const ROUNDS: usize = 40;
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let slot = cluster.slot_of("{moving}mutex").await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let locks = connect(&cluster.urls()).await.unwrap();
        let count = count.clone();
        tasks.push(tokio::spawn(async move {
            let mutex = locks.set_nx_mutex("{moving}mutex").unwrap();
            for _ in 0..ROUNDS {
                let retry = RetryPolicy::fixed(Duration::from_millis(2)).timeout(LONG);
                let held: SetNxMutexGuard = mutex.lock().retry_policy(retry).await.unwrap();
                let before = count.load(Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                count.store(before + 1, Ordering::SeqCst);
                assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
            }
        }));
    }
    let mut turn = 0;
    while !tasks.iter().all(|task| task.is_finished()) {
        cluster.move_slot(slot, turn % 3).await.unwrap();
        turn += 1;
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(turn > 2, "the slot moved {turn} times");
    assert_eq!(count.load(Ordering::SeqCst), TASKS * ROUNDS);
}
