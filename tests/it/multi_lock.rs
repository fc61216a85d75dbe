//! Several locks, all or none, on a real cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use rwlease::{
    Client, ErrorKind, LeaseState, LockMode, ReleaseOutcome, RenewalPolicy, RetryPolicy,
};
use testkit::{
    Cluster, ClusterConfig, ConnectBuilder, ExclusionCheck, PollLimit, connect, wait_for_waiters,
};
use tokio::time::{Instant, timeout};

use crate::fixture::{LONG, eventually};

async fn cluster() -> (Cluster, Client) {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let locks = connect(&cluster.urls()).await.unwrap();
    (cluster, locks)
}

/// Waits until nobody holds these locks.
async fn free(locks: &Client, names: &[&str]) {
    for name in names {
        let lock = locks.rwlock(*name).unwrap();
        eventually(name, async || !lock.is_locked().await.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_holds_all_locks_in_their_modes_and_releases_together() {
    let (_cluster, locks) = cluster().await;
    let request =
        || locks.multi_lock().write("c").read("a").set_nx_mutex("b").write("a{1}").read("c");
    let held = request().await.unwrap();
    let leases: Vec<_> =
        held.leases().map(|lease| (lease.name().to_owned(), lease.mode().unwrap())).collect();
    // By key: the mutex has no prefix, and a write stands for a read of the same lock.
    let expected = [
        ("b", LockMode::Write),
        ("a", LockMode::Read),
        ("a{1}", LockMode::Write),
        ("c", LockMode::Write),
    ];
    assert_eq!(leases, expected.map(|(name, mode)| (name.to_owned(), mode)));
    assert!(held.is_held() && held.remaining() > Duration::from_secs(1));
    assert_eq!(held.state(), LeaseState::Held);
    assert!(held.lease("c").unwrap().fencing_token().is_some() && held.lease("none").is_none());

    assert!(request().try_acquire().await.unwrap().is_none());
    assert!(locks.rwlock("a").unwrap().try_read().await.unwrap().is_some());
    assert!(locks.set_nx_mutex("b").unwrap().is_locked().await.unwrap());
    held.renew().await.unwrap();
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    free(&locks, &["a", "a{1}", "c"]).await;
    assert!(!locks.set_nx_mutex("b").unwrap().is_locked().await.unwrap());
    drop(request().try_acquire().await.unwrap().expect("all are free"));
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_that_cannot_get_all_locks_keeps_none() {
    let (_cluster, locks) = cluster().await;
    let middle = locks.rwlock("m").unwrap();
    let theirs = middle.write().await.unwrap();
    let request = || locks.multi_lock().write("a").write("m").write("z");

    assert!(request().try_acquire().await.unwrap().is_none());
    free(&locks, &["a", "z"]).await;
    let timed_out = request().timeout(Duration::from_millis(200)).await.unwrap_err();
    assert_eq!((timed_out.kind(), timed_out.lock()), (ErrorKind::TimedOut, Some("m")));
    let retry = RetryPolicy::fixed(Duration::from_millis(2)).max_attempts(3);
    assert_eq!(
        request().retry_policy(retry).await.unwrap_err().kind(),
        ErrorKind::AttemptsExhausted
    );
    let cancelled = request().cancel_when(tokio::time::sleep(Duration::from_millis(50))).await;
    let cancelled = cancelled.unwrap_err();
    assert_eq!((cancelled.kind(), cancelled.lock()), (ErrorKind::Cancelled, Some("a")));
    free(&locks, &["a", "z"]).await;

    // While the request waits for the middle lock, it holds the locks before it, and none after it.
    let waiting = tokio::spawn(request().into_future());
    wait_for_waiters(&middle, 1).await.unwrap();
    assert!(locks.rwlock("a").unwrap().is_locked().await.unwrap());
    free(&locks, &["z"]).await;
    let _ = theirs.release().await.unwrap();
    let held = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(held.leases().len(), 3);
    drop(held);
    free(&locks, &["a", "m", "z"]).await;

    assert_eq!(locks.multi_lock().await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let mixed = locks.multi_lock().set_nx_mutex("rwlease:a").read("a").await.unwrap_err();
    assert_eq!(mixed.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        locks.multi_lock().read("").read("a").await.unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_guard_with_one_lost_lease_is_lost() {
    let (_cluster, locks) = cluster().await;
    let held =
        locks.multi_lock().write("a").write("b").lease(Duration::from_secs(2)).await.unwrap();
    locks.rwlock("b").unwrap().force_release().await.unwrap();
    timeout(LONG, held.ended()).await.unwrap();
    assert_eq!((held.state(), held.remaining()), (LeaseState::Lost, Duration::ZERO));
    assert!(held.lease("a").unwrap().is_held());
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    free(&locks, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_work_runs_while_all_locks_are_held_and_is_cancelled_at_a_loss() {
    let (_cluster, locks) = cluster().await;
    let both = || locks.multi_lock().write("a").write("b").lease(Duration::from_secs(2));
    let held =
        both().run_while_held(async |guard| guard.leases().filter(|it| it.is_held()).count());
    assert_eq!(held.await.unwrap(), 2);
    free(&locks, &["a", "b"]).await;

    let other = locks.rwlock("b").unwrap();
    let shared = Arc::new(());
    let cancelled = both().run_while_held(async |_guard| {
        let _kept = shared.clone();
        other.force_release().await.unwrap();
        std::future::pending::<()>().await;
    });
    let lost = timeout(LONG, cancelled).await.unwrap().unwrap_err();
    assert_eq!((lost.kind(), lost.lock()), (ErrorKind::LeaseLost, Some("b")));
    assert_eq!(Arc::strong_count(&shared), 1, "the work is dropped");
    free(&locks, &["a", "b"]).await;

    // The loss is found before the output counts, even if the work completes first.
    let late = both().run_while_held(async |guard| {
        other.force_release().await.unwrap();
        while guard.is_held() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(late.await.unwrap_err().kind(), ErrorKind::LeaseLost);
    free(&locks, &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_renew_after_a_revocation_and_a_loss_returns_lost() {
    let (_cluster, locks) = cluster().await;
    let [a, b] = ["a", "b"].map(|name| locks.rwlock(name).unwrap());
    let held = locks.multi_lock().write("a").write("b").await.unwrap();
    a.revoke().await.unwrap();
    assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::LeaseRevoked);
    b.force_release().await.unwrap();
    assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_reacquires_locks_lost_while_it_waits() {
    let (_cluster, locks) = cluster().await;
    let last = locks.rwlock("z").unwrap();
    let theirs = last.write().await.unwrap();
    let request = locks.multi_lock().write("a").write("z");
    let waiting = tokio::spawn(request.into_future());
    let first = locks.rwlock("a").unwrap();
    let mut tokens = std::collections::BTreeSet::new();
    let wait_limit = PollLimit::new("the first lock to be taken three times");
    while tokens.len() < 3 {
        let status = first.status().await.unwrap();
        if let Some(writer) = status.writer
            && tokens.insert(writer.fencing_token.get())
        {
            first.force_release().await.unwrap();
        }
        wait_limit.pause(format!("{tokens:?}")).await.unwrap();
    }
    let _ = theirs.release().await.unwrap();
    let held = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(held.leases().len(), 2);
}

/// Many tasks acquire the same locks in every order and mode. No task waits forever, and each
/// writer is alone.
#[tokio::test(flavor = "multi_thread")]
async fn multi_requests_in_any_order_never_deadlock() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 25;
    const NAMES: [&str; 5] = ["a", "b{2}", "c", "d{4}", "e"];
    let (cluster, _) = cluster().await;
    let inside: Arc<[ExclusionCheck; 5]> = Arc::default();
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let locks = connect(&cluster.urls()).await.unwrap();
        let inside = inside.clone();
        tasks.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(task as u64);
            for round in 0..ROUNDS {
                let mut places: Vec<usize> = (0..NAMES.len()).collect();
                random.shuffle(&mut places);
                places.truncate(random.usize(2..=4));
                let writes: Vec<bool> = places.iter().map(|_| random.bool()).collect();
                let mut request = locks.multi_lock();
                for (place, write) in places.iter().zip(&writes) {
                    request = match write {
                        true => request.write(NAMES[*place]),
                        false => request.read(NAMES[*place]),
                    };
                }
                if round % 4 == 3 {
                    request = request.retry_policy(RetryPolicy::fixed(Duration::from_millis(3)));
                }
                let held = request.timeout(LONG).await.unwrap();
                join_all(places.iter().zip(&writes).map(async |(place, write)| match write {
                    true => inside[*place].writes().await,
                    false => inside[*place].reads().await,
                }))
                .await;
                assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_request_dropped_leaves_no_holder_and_no_waiter() {
    let (_cluster, locks) = cluster().await;
    let theirs = locks.rwlock("b").unwrap().write().await.unwrap();
    for polls in 0..60u64 {
        let request = locks.multi_lock().write("a").write("b").write("c").into_future();
        let _ = timeout(Duration::from_micros(150 * polls), request).await;
    }
    let _ = theirs.release().await.unwrap();
    free(&locks, &["a", "b", "c"]).await;
    for name in ["a", "b", "c"] {
        assert_eq!(locks.rwlock(name).unwrap().status().await.unwrap().waiter_count, 0);
    }
    assert_eq!(locks.shutdown(LONG).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_without_renewal_keeps_its_locks_while_it_waits() {
    let (cluster, locks) = cluster().await;
    let losses = Arc::new(AtomicUsize::new(0));
    let count = losses.clone();
    let waiting_client = Client::builder()
        .on_lease_lost(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .connect_to(&cluster.urls())
        .await
        .unwrap();
    let theirs = locks.rwlock("m").unwrap().write().await.unwrap();
    let lease = Duration::from_secs(1);
    let request = waiting_client.multi_lock().write("a").write("m");
    let request = request.renewal(RenewalPolicy::Manual).lease(lease);
    let waiting = tokio::spawn(request.into_future());
    let first = locks.rwlock("a").unwrap();
    let holder = async || first.status().await.unwrap().writer.map(|writer| writer.id);
    let wait_limit = PollLimit::new("the first lock to be held");
    let id = loop {
        if let Some(id) = holder().await {
            break id;
        }
        wait_limit.pause("it is free").await.unwrap();
    };
    let since = Instant::now();
    while since.elapsed() < 3 * lease {
        assert_eq!(holder().await.as_ref(), Some(&id), "it has lost its place");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let _ = theirs.release().await.unwrap();
    let held = waiting.await.unwrap().unwrap();
    assert!(held.is_held());
    assert!(held.remaining() > lease / 2, "the first lease was renewed before the guard exists");
    assert_eq!(losses.load(Ordering::SeqCst), 0, "a loss of a lease that nobody had");
    // From now on it is the caller who renews.
    timeout(LONG, held.ended()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_guard_distinguishes_a_lock_from_a_mutex_of_the_same_name() {
    let (_cluster, locks) = cluster().await;
    let held = locks.multi_lock().write("both").set_nx_mutex("both").await.unwrap();
    assert!(held.lease("both").unwrap().fencing_token().is_some());
    assert!(held.set_nx_mutex_lease("both").unwrap().fencing_token().is_none());
    assert!(held.set_nx_mutex_lease("other").is_none());
    let _ = held.release().await.unwrap();
}

#[cfg(feature = "embedded")]
mod embedded {
    use rwlease::embedded::EmbeddedCluster;
    use tokio::time::sleep;

    use super::*;
    use crate::fixture::{MS, SECOND, client};

    /// The names of a lock on each of two masters, in the order of their keys.
    async fn two_masters() -> (EmbeddedCluster, Client, [String; 2]) {
        let engine = EmbeddedCluster::builder().masters(2).replicas(0).build();
        let locks = client(&engine).await;
        let on = |letter: &str, master: usize| {
            let mut names = (0..).map(|number| format!("{letter}{number}"));
            let is_there = |name: &String| {
                engine.faults().master_of(locks.rwlock(name).unwrap().slot()) == master
            };
            names.find(is_there).unwrap()
        };
        let names = [on("a", 0), on("c", 1)];
        (engine, locks, names)
    }

    #[tokio::test(start_paused = true)]
    async fn multi_try_that_is_cancelled_keeps_none() {
        let (engine, locks, [a, c]) = two_masters().await;
        let request = || locks.multi_lock().write(&a).write(&c);
        engine.faults().pause(1);
        let began = Instant::now();
        let cancelled = request().cancel_when(sleep(50 * MS)).try_acquire().await.unwrap_err();
        assert_eq!((cancelled.kind(), began.elapsed()), (ErrorKind::Cancelled, 50 * MS));
        assert_eq!(cancelled.lock(), Some(&*a));
        free(&locks, &[&a]).await;
        engine.faults().resume(1);
        free(&locks, &[&a, &c]).await;
        drop(request().cancel_when(sleep(50 * MS)).try_acquire().await.unwrap().expect("free"));
    }

    #[tokio::test(start_paused = true)]
    async fn multi_waits_for_the_silent_server_of_a_set_nx_mutex() {
        let (engine, locks, [a, c]) = two_masters().await;
        engine.faults().pause(1);
        let faults = engine.faults();
        tokio::spawn(async move {
            sleep(25 * SECOND).await;
            faults.resume(1);
        });
        drop(locks.multi_lock().write(&a).set_nx_mutex(&c).await.unwrap());
    }

    /// In real time, because a loop without a pause would stop simulated time.
    #[tokio::test]
    async fn multi_request_at_a_server_that_knows_no_script_fails() {
        let (engine, locks, [a, c]) = two_masters().await;
        engine.faults().reply_with_error(1, Some("NOSCRIPT x"));
        let error = locks.multi_lock().write(&a).set_nx_mutex(&c).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    /// A client that counts its lost leases.
    async fn counting_client(engine: &EmbeddedCluster) -> (Client, Arc<AtomicUsize>) {
        let losses = Arc::new(AtomicUsize::new(0));
        let count = losses.clone();
        let settings = Client::builder().on_lease_lost(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        (settings.connect_embedded(engine).await.unwrap(), losses)
    }

    /// The leases are not renewed in use, and end before the second shard answers.
    #[tokio::test(start_paused = true)]
    async fn multi_guard_has_no_lease_that_ended_while_a_shard_was_silent() {
        let (engine, _locks, [a, c]) = two_masters().await;
        for (limit, retry) in [(0, false), (1, false), (0, true), (1, true)] {
            let (locks, losses) = counting_client(&engine).await;
            let request = locks.multi_lock().write(&a).write(&c).lease(SECOND);
            let request = match limit {
                0 => request.renewal(RenewalPolicy::Manual),
                _ => request.max_hold(SECOND),
            };
            engine.faults().pause(1);
            let faults = engine.faults();
            tokio::spawn(async move {
                sleep(3 * SECOND).await;
                faults.resume(1);
            });
            let held = match retry {
                true => request.retry_policy(RetryPolicy::fixed(10 * MS)).await.unwrap(),
                false => request.try_acquire().await.unwrap().expect("they are free"),
            };
            assert_eq!(held.state(), LeaseState::Held, "{limit}, {retry}");
            // From now on the limits count.
            sleep(2 * SECOND).await;
            assert!(held.leases().all(|lease| !lease.is_held()), "{limit}, {retry}");
            assert_eq!(losses.load(Ordering::SeqCst), 2, "those of the guard");
            drop(held);
            free(&locks, &[&a, &c]).await;
        }
    }

    /// Both shards are silent in turn, so that the first lease is lost before the second grant.
    #[tokio::test(start_paused = true)]
    async fn multi_that_loses_a_lease_before_the_last_grant_has_no_guard() {
        let (engine, _locks, [a, c]) = two_masters().await;
        for retry in [false, true] {
            let (locks, losses) = counting_client(&engine).await;
            let request = locks.multi_lock().write(&a).write(&c).lease(SECOND);
            engine.faults().pause(1);
            let faults = engine.faults();
            tokio::spawn(async move {
                sleep(10 * MS).await;
                faults.pause(0);
                sleep(3 * SECOND).await;
                faults.resume(1);
                sleep(SECOND).await;
                faults.resume(0);
            });
            let request = request.renewal(RenewalPolicy::Manual);
            if retry {
                let retrying = request.retry_policy(RetryPolicy::fixed(10 * MS));
                assert!(retrying.await.unwrap().is_held(), "another try");
            } else {
                assert!(request.try_acquire().await.unwrap().is_none());
                sleep(2 * SECOND).await;
            }
            assert_eq!(losses.load(Ordering::SeqCst), 0, "a loss of a lease that nobody had");
            free(&locks, &[&a, &c]).await;
        }
    }

    /// The last renewal before the guard is returned has no reply.
    #[tokio::test(start_paused = true)]
    async fn multi_whose_first_shard_falls_silent_ends_at_its_timeout() {
        let (engine, locks, [a, c]) = two_masters().await;
        let theirs = client(&engine).await.rwlock(&c).unwrap().write().await.unwrap();
        let request = locks.multi_lock().write(&a).write(&c).renewal(RenewalPolicy::Manual);
        let began = Instant::now();
        let waiting = tokio::spawn(request.timeout(3 * SECOND).into_future());
        sleep(2 * SECOND).await;
        engine.faults().pause(0);
        let _ = theirs.release().await.unwrap();
        let late = timeout(LONG, waiting).await.unwrap().unwrap().unwrap_err();
        assert_eq!((late.kind(), late.lock()), (ErrorKind::TimedOut, Some(&*a)), "{late}");
        assert!(began.elapsed() <= 3_100 * MS, "{:?}", began.elapsed());
        engine.faults().resume(0);
        free(&locks, &[&a, &c]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn multi_try_with_a_retry_policy_or_a_timeout_of_zero_returns_invalid() {
        let (_engine, locks, [a, c]) = two_masters().await;
        let request = || locks.multi_lock().write(&a).write(&c);
        for request in
            [request().retry_policy(RetryPolicy::default()), request().timeout(Duration::ZERO)]
        {
            let invalid = request.try_acquire().await.unwrap_err();
            assert_eq!(invalid.kind(), ErrorKind::InvalidInput);
        }
    }

    /// A failover of one shard that takes longer than the call timeout.
    #[tokio::test(start_paused = true)]
    async fn multi_waits_for_a_shard_that_fails_over_as_long_as_its_timeout() {
        for limit in [Some(LONG), None] {
            let (engine, locks, [a, c]) = two_masters().await;
            let began = Instant::now();
            engine.faults().pause(1);
            let faults = engine.faults();
            tokio::spawn(async move {
                sleep(15 * SECOND).await;
                faults.resume(1);
            });
            let request = locks.multi_lock().write(&a).write(&c);
            let request = limit.into_iter().fold(request, |request, limit| request.timeout(limit));
            let held = request.await.unwrap();
            assert!((15 * SECOND..25 * SECOND).contains(&began.elapsed()), "{:?}", began.elapsed());
            sleep(LONG).await;
            assert_eq!((held.leases().len(), held.state()), (2, LeaseState::Held));
            assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
            free(&locks, &[&a, &c]).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn multi_on_a_shard_that_never_answers_fails_at_its_timeout_and_keeps_none() {
        let (engine, locks, [a, c]) = two_masters().await;
        for limit in [5 * SECOND, 25 * SECOND] {
            engine.faults().pause(1);
            let began = Instant::now();
            let silent = locks.multi_lock().write(&a).write(&c).timeout(limit).await.unwrap_err();
            assert_eq!((silent.kind(), silent.lock()), (ErrorKind::Unavailable, Some(&*c)));
            assert!((limit..limit + SECOND).contains(&began.elapsed()), "{:?}", began.elapsed());
            free(&locks, &[&a]).await;
            engine.faults().resume(1);
            free(&locks, &[&a, &c]).await;
        }
    }

    /// The time limit passes soon after the last call was sent: the server is not to blame.
    #[tokio::test(start_paused = true)]
    async fn multi_out_of_time_soon_after_a_grant_has_timed_out() {
        let (engine, locks, [a, c]) = two_masters().await;
        let other = client(&engine).await;
        let retry = || RetryPolicy::fixed(10 * MS);
        for retry in [None, Some(retry())] {
            let theirs = other.rwlock(&a).unwrap().write().await.unwrap();
            let request = locks.multi_lock().write(&a).write(&c).timeout(5 * SECOND);
            let request = retry.into_iter().fold(request, |request, it| request.retry_policy(it));
            let waiting = tokio::spawn(request.into_future());
            sleep(4_900 * MS).await;
            engine.faults().pause(1);
            let _ = theirs.release().await.unwrap();
            let late = timeout(LONG, waiting).await.unwrap().unwrap().unwrap_err();
            assert_eq!((late.kind(), late.lock()), (ErrorKind::TimedOut, Some(&*c)), "{late}");
            engine.faults().resume(1);
            free(&locks, &[&a, &c]).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn multi_work_with_a_lost_lock_is_lost_even_if_another_release_fails() {
        let (engine, locks, [a, c]) = two_masters().await;
        let other = client(&engine).await.rwlock(&a).unwrap();
        let request = || locks.multi_lock().write(&a).write(&c);
        let lost = request().run_while_held(async |_guard| {
            other.force_release().await.unwrap();
            engine.faults().reply_with_error(1, Some("NOPERM not now"));
        });
        let lost = lost.await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::LeaseLost);
        engine.faults().reply_with_error(1, None);
        free(&locks, &[&a, &c]).await;

        let held = request().await.unwrap();
        engine.faults().reply_with_error(1, Some("NOPERM not now"));
        assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Rejected);
    }
}
