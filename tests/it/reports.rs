//! Public reports about other locks and clients, where no other suite has the same test. Each test
//! names its report; `docs/reports.md` has the symptoms, and the tests in other suites.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use rwlease::{Client, ReleaseOutcome, RenewalPolicy, RetryPolicy, SentinelConfig};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fixture::{LONG, MS, SECOND, client, engine, eventually, single, soon};
use testkit::{
    ConnectBuilder, Fake, PollLimit, Proxy, SentinelConfigForTest, SentinelDeployment, Server,
    ServerAct, ServerSettings, StandaloneServer, connect, scripts_run, spawn_write,
    wait_for_waiters,
};

async fn scripts(server: &Server) -> u64 {
    scripts_run(&server.command_stats().await.unwrap())
}

/// hazelcast/hazelcast#13552: the limit of a call does not end a wait. bsm/redislock#28: neither
/// does the length of the requested lease. mike-marcacci/node-redlock#169: the lease counts from
/// the grant.
#[tokio::test(flavor = "multi_thread")]
async fn wait_longer_than_a_call_and_a_lease_is_granted_a_whole_lease() {
    const LEASE: Duration = Duration::from_secs(2);
    let (server, holder) = single().await;
    let settings = Client::builder().call_timeout(SECOND).lease(LEASE);
    let locks = settings.connect_to(&[server.url()]).await.unwrap();
    let held = (
        holder.rwlock("a").unwrap().write().lease(LONG).await.unwrap(),
        holder.set_nx_mutex("a").unwrap().lock().lease(LONG).await.unwrap(),
        holder.semaphore("b", 1).unwrap().acquire(1).lease(LONG).await.unwrap(),
    );
    let (lock, pool) = (locks.rwlock("a").unwrap(), locks.semaphore("b", 1).unwrap());
    let mutex = locks.set_nx_mutex("a").unwrap();
    let waits = [
        tokio::spawn(async move { lock.write().await.map(drop) }),
        tokio::spawn(async move { pool.acquire(1).await.map(drop) }),
        tokio::spawn(async move {
            let request = mutex.lock().renewal(RenewalPolicy::Manual);
            let guard = request.retry_policy(RetryPolicy::fixed(50 * MS)).await?;
            assert!(guard.remaining() > LEASE / 2, "{:?} of {LEASE:?}", guard.remaining());
            guard.renew().await
        }),
    ];
    sleep(LEASE + SECOND).await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    drop(held);
    for wait in waits {
        soon("the wait", wait).await.unwrap().unwrap();
    }
}

/// redis/rueidis#604: waiters of a held lock cost the server a few calls a second, however many
/// times it is released.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_do_not_hammer_the_server() {
    let (server, locks) = single().await;
    let lock = locks.rwlock("job").unwrap();
    let mut held = lock.write().lease(LONG).await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let lock = lock.clone();
        waiting.spawn(async move { lock.read().await.map(drop) });
    }
    wait_for_waiters(&lock, 20).await.unwrap();
    let before = scripts(&server).await;
    sleep(3 * SECOND).await;
    let calls = scripts(&server).await - before;
    assert!(calls < 200, "{calls} calls in three seconds");
    let _ = held.release().await.unwrap();
    waiting.join_all().await;
    held = lock.write().lease(LONG).await.unwrap();
    let before = scripts(&server).await;
    sleep(SECOND).await;
    assert!(scripts(&server).await - before < 5, "nobody waits");
    drop(held);
}

/// redisson/redisson#3166: however many waiters have died with their client, the next waiter waits
/// for seconds. redisson/redisson#2099: the same after short waits, and whatever the leases.
#[tokio::test(flavor = "multi_thread")]
async fn waiter_behind_many_dead_ones_is_granted_soon() {
    let (server, locks) = single().await;
    let lock = locks.rwlock("doc").unwrap();
    let held = lock.write().lease(LONG).await.unwrap();
    for _ in 0..10 {
        let waits = (0..5).map(|_| lock.write().timeout(30 * MS).lease(60 * LONG).into_future());
        let waits = futures::future::join_all(waits).await;
        assert!(waits.iter().all(|wait| wait.is_err()), "it is held");
    }
    let proxy = Proxy::start(&server).await.unwrap();
    let doomed = Client::builder().lease(60 * LONG).connect_to(&[proxy.url()]).await.unwrap();
    let doomed = doomed.rwlock("doc").unwrap();
    let dead: Vec<_> = (0..50).map(|_| spawn_write(&doomed)).collect();
    wait_for_waiters(&lock, 50).await.unwrap();
    // Nothing arrives any more, and the server is not told that the client is gone.
    proxy.drop_all();
    let next = spawn_write(&lock);
    wait_for_waiters(&lock, 51).await.unwrap();
    let _ = held.release().await.unwrap();
    drop(soon("the wait", next).await.unwrap().unwrap());
    dead.iter().for_each(|waiter| waiter.abort());
}

/// redisson/redisson#4064: after a minute without waiters, no channel is left, however many locks
/// had waiters.
#[tokio::test(flavor = "multi_thread")]
async fn channels_are_left_when_nobody_waits() {
    let (server, locks) = single().await;
    let (mut held, mut waits) = (Vec::new(), JoinSet::new());
    for number in 0..40 {
        let lock = locks.rwlock(format!("lock:{number}")).unwrap();
        held.push(lock.write().lease(LONG).await.unwrap());
        let waiting = lock.clone();
        // Half of them give up.
        let limit = if number % 2 == 0 { LONG } else { 300 * MS };
        waits.spawn(async move { waiting.write().timeout(limit).await.is_ok() });
        if number % 2 == 0 {
            wait_for_waiters(&lock, 1).await.unwrap();
        }
    }
    held.clear();
    soon("the waits", waits.join_all()).await;
    let wait_limit = PollLimit::limited("no channels", 2 * LONG);
    loop {
        let plain: Vec<String> = server.run_words("PUBSUB CHANNELS").await.unwrap();
        let sharded: Vec<String> =
            server.run_words("PUBSUB SHARDCHANNELS").await.unwrap_or_default();
        if plain.is_empty() && sharded.is_empty() {
            break;
        }
        wait_limit.pause(format!("{plain:?} {sharded:?}")).await.unwrap();
    }
}

/// redisson/redisson#5697: the holder keeps its lock, however many clients request it.
#[tokio::test(flavor = "multi_thread")]
async fn holder_is_renewed_while_many_ask() {
    let (server, locks) = single().await;
    let lock = locks.rwlock("channel").unwrap();
    let held = lock.write().lease(3 * SECOND).await.unwrap();
    let (is_over, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for number in 0..60 {
        let lock = match number % 2 {
            0 => lock.clone(),
            _ => connect(&[server.url()]).await.unwrap().rwlock("channel").unwrap(),
        };
        let is_over = is_over.clone();
        tasks.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                assert!(lock.try_write().await.unwrap().is_none(), "two hold it");
                assert!(lock.write().timeout(50 * MS).await.is_err(), "two hold it");
            }
        });
    }
    sleep(7 * SECOND).await;
    assert!(held.is_held());
    is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
}

/// redis/redis-py#375, ghostdogpr/sage#255, mike-marcacci/node-redlock#11: a lease outlasts a
/// server that refuses for a part of it. A refused release is reported, and carried out later.
#[tokio::test(start_paused = true)]
async fn refusals_for_a_while_end_no_lease_and_lose_no_release() {
    let engine = engine();
    let locks = client(&engine).await;
    let held = locks.rwlock("held").unwrap().write().lease(6 * SECOND).await.unwrap();
    let lock = locks.rwlock("released").unwrap();
    for (error, is_transient) in [
        ("BUSY Redis is busy running a script.", true),
        ("NOREPLICAS Not enough good replicas to write.", true),
        ("MISCONF Redis is configured to save RDB snapshots", false),
        ("OOM command not allowed", false),
    ] {
        let released = lock.write().lease(LONG).await.unwrap();
        engine.faults().reply_with_error(0, Some(error));
        let releasing = tokio::spawn(released.release());
        sleep(3 * SECOND).await;
        engine.faults().reply_with_error(0, None);
        let outcome = releasing.await.unwrap();
        assert_eq!(matches!(outcome, Ok(ReleaseOutcome::Released)), is_transient, "{outcome:?}");
        drop(timeout(10 * SECOND, lock.write()).await.expect("it is released").unwrap());
        sleep(6 * SECOND).await;
        assert!(held.is_held(), "{error}");
    }
}

/// spring-projects/spring-integration#2660: a failed release leaves nothing in the process that
/// would refuse the next request.
#[tokio::test(flavor = "multi_thread")]
async fn lock_whose_release_failed_is_taken_again() {
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let settings = Client::builder().lease(2 * SECOND).call_timeout(SECOND);
    let locks = settings.connect_to(&[proxy.url()]).await.unwrap();
    let (owner, lock) = (locks.reentrant_owner(), locks.rwlock("user").unwrap());
    let mutex = locks.set_nx_mutex("user").unwrap();
    let (held, also) = (owner.write(&lock).await.unwrap(), mutex.lock().await.unwrap());
    proxy.close();
    let _ = soon("a release", held.release()).await;
    let _ = soon("a release", also.release()).await;
    proxy.heal();
    // By another owner, and by the same one.
    drop(soon("a write", lock.write().into_future()).await.unwrap());
    drop(soon("a write", owner.write(&lock).into_future()).await.unwrap());
    drop(soon("a mutex", mutex.lock().into_future()).await.unwrap());
}

/// redis/node-redis#1510: if connections are accepted and closed, the pauses between dials grow.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_closed_at_once_are_made_again_with_pauses() {
    let server = StandaloneServer::start().await.unwrap();
    let closes = Arc::new(AtomicBool::new(false));
    let fake = Fake::before(&server, {
        let closes = closes.clone();
        move |act| match closes.load(Ordering::SeqCst) && !act.is_opened() {
            true => vec![ServerAct::Close],
            false => ServerAct::forward(act),
        }
    });
    let fake = fake.await.unwrap();
    let lock = Client::connect([fake.url()]).await.unwrap().rwlock("doc").unwrap();
    drop(lock.write().await.unwrap());
    closes.store(true, Ordering::SeqCst);
    let before = fake.connections();
    assert!(soon("a write", lock.write().timeout(5 * SECOND).into_future()).await.is_err());
    let dials = fake.connections() - before;
    assert!(dials < 100, "{dials} connections in five seconds");
    closes.store(false, Ordering::SeqCst);
    drop(soon("a write", lock.write().into_future()).await.unwrap());
}

/// redis/redis#12798: a message of an old failover makes the client query the sentinels; the client
/// does not believe the message alone.
#[tokio::test(flavor = "multi_thread")]
async fn old_message_of_a_failover_misleads_nobody() {
    let watch =
        SentinelConfigForTest { replicas: 1, sentinels: 1, ..SentinelConfigForTest::default() };
    let watched = SentinelDeployment::start_with(watch).await.unwrap();
    let master = watched.master().await.unwrap();
    let (own, other) = (watched.server(master).port(), watched.server(1 - master).port());
    let text = format!("mymaster 127.0.0.1 {own} 127.0.0.1 {other}");
    let lies = Arc::new(AtomicBool::new(false));
    let fake = Fake::before(watched.sentinel(0), {
        let lies = lies.clone();
        move |act| {
            let mut says = ServerAct::forward(act);
            // It comes on each connection, with whatever is answered.
            if lies.load(Ordering::SeqCst) && !act.is_opened() {
                let push = format!(
                    ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{text}\r\n",
                    text.len()
                );
                says.push(ServerAct::Bytes(push.into_bytes()));
            }
            says
        }
    });
    let fake = fake.await.unwrap();
    let sentinel = SentinelConfig::new("mymaster").node(format!("127.0.0.1:{}", fake.port()));
    let locks = Client::builder().sentinel(sentinel).connect().await.unwrap();
    let lock = locks.rwlock("doc").unwrap();
    drop(lock.write().await.unwrap());
    lies.store(true, Ordering::SeqCst);
    for _ in 0..10 {
        sleep(SECOND / 2).await;
        let guard = soon("a write", lock.write().into_future()).await.unwrap();
        let is_there = watched.server(master).run_words::<bool>("EXISTS rwlease:doc").await;
        assert!(is_there.unwrap(), "it is at the master");
        let _ = guard.release().await.unwrap();
    }
}

/// redis/rueidis#37: if a server redirects to itself, the client makes a new connection to the
/// address.
#[tokio::test(flavor = "multi_thread")]
async fn write_at_a_server_that_redirects_to_itself_is_granted_on_a_new_connection() {
    let settings = ServerSettings { cluster: true, ..ServerSettings::default() };
    let node = Server::start(&settings).await.unwrap();
    node.run_words::<()>("CLUSTER ADDSLOTSRANGE 0 16383").await.unwrap();
    eventually("the cluster serves", async || {
        node.run_words::<String>("CLUSTER INFO").await.unwrap().contains("cluster_state:ok")
    })
    .await;
    let port = Arc::new(AtomicU16::new(0));
    // Connections below this number lead to the old master.
    let old = Arc::new(AtomicUsize::new(0));
    let fake = Fake::before(&node, {
        let (port, old) = (port.clone(), old.clone());
        move |act| {
            let is_old = act.connection < old.load(Ordering::SeqCst);
            if act.is("WAIT") {
                return ServerAct::bytes(":1\r\n"); // of a replica that this test does without
            }
            match is_old && (act.is("EVALSHA") || act.is("EVAL")) {
                true => {
                    let slot = rwlease::Slot::of(act.words.get(3).map_or("", |key| key)).get();
                    let port = port.load(Ordering::SeqCst);
                    ServerAct::bytes(format!("-MOVED {slot} 127.0.0.1:{port}\r\n"))
                }
                false => ServerAct::forward(act),
            }
        }
    });
    let fake = fake.await.unwrap();
    port.store(fake.port(), Ordering::SeqCst);
    let announce = format!("CONFIG SET cluster-announce-port {}", fake.port());
    node.run_words::<()>(&announce).await.unwrap();
    eventually("the node announces the port", async || {
        let nodes = node.run_words::<String>("CLUSTER NODES").await.unwrap();
        nodes.contains(&format!(":{}@", fake.port()))
    })
    .await;
    let settings = Client::builder().call_timeout(20 * SECOND);
    let lock = settings.urls([fake.url()]).connect().await.unwrap().rwlock("doc").unwrap();
    for replicas in [0, 1] {
        let write = || soon("a write", lock.write().min_replicas(replicas).into_future());
        assert!(write().await.unwrap().release().await.unwrap().was_held());
        old.store(fake.connections(), Ordering::SeqCst);
        assert!(write().await.unwrap().release().await.unwrap().was_held());
    }
}
