//! The two-key lock in a fleet that already uses it: where both implementations agree, what this
//! one adds, and what stays dangerous.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{OptionFuture, join_all};
use redis::cmd;
use rwlease::guard::TwoKeyGuard;
use rwlease::{Client, ErrorKind, LockMode, ReleaseOutcome, RwLock, Slot, TwoKeyRwLock};
use testkit::ExclusionCheck;
use testkit::published::TwoKeys;
use testkit::{
    Cluster, ClusterConfig, ConnectBuilder, CutPoint, Proxy, ProxyFlow, Result, StandaloneServer,
    connect,
};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::fixture::{eventually, single};

const LEASE: Duration = Duration::from_secs(60);
const NAME: &str = "order";

/// A server, the lock on it, and one client of the old fleet.
async fn stage() -> Result<(StandaloneServer, TwoKeyRwLock, TwoKeys)> {
    let (server, locks) = single().await;
    let old = old_client(&server).await?;
    Ok((server, TwoKeyRwLock::tagged(&locks, NAME)?, old))
}

async fn old_client(server: &testkit::Server) -> Result<TwoKeys> {
    Ok(TwoKeys::new(server.connect().await?, "{order}:read", "{order}:write", LEASE.as_secs()))
}

async fn try_read(lock: &TwoKeyRwLock) -> Result<Option<TwoKeyGuard>> {
    Ok(lock.try_read(LEASE).await?)
}

async fn try_write(lock: &TwoKeyRwLock) -> Result<Option<TwoKeyGuard>> {
    Ok(lock.try_write(LEASE).await?)
}

#[tokio::test]
async fn two_key_lock_of_a_client_with_min_replicas_is_invalid_input() -> Result {
    let server = StandaloneServer::start().await?;
    let locks = Client::builder().min_replicas(1).connect_to(&[server.url()]).await?;
    let error = TwoKeyRwLock::tagged(&locks, NAME).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    Ok(())
}

#[tokio::test]
async fn two_key_lock_with_keys_of_two_slots_returns_cross_slot() -> Result {
    let (_server, locks) = single().await;
    let error = TwoKeyRwLock::new(&locks, "order:read", "order:write").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CrossSlot);
    let said = error.to_string();
    for key in ["order:read", "order:write"] {
        assert!(said.contains(key) && said.contains(&Slot::of(key).to_string()), "{said}");
    }
    for (name, keys) in [
        ("order", ["{order}:read", "{order}:write"]),
        ("order:{42}", ["order:{42}:read", "order:{42}:write"]),
    ] {
        let lock = TwoKeyRwLock::tagged(&locks, name)?;
        assert_eq!(lock.keys(), keys.map(str::as_bytes));
        assert_eq!(lock.slot(), Slot::of(keys[1]));
    }
    assert_eq!(TwoKeyRwLock::tagged(&locks, "a}b").unwrap_err().kind(), ErrorKind::CrossSlot);
    assert_eq!(TwoKeyRwLock::new(&locks, "a", "a").unwrap_err().kind(), ErrorKind::InvalidInput);
    Ok(())
}

#[tokio::test]
async fn two_key_lock_and_published_lock_exclude_each_other() -> Result {
    let (server, lock, old) = stage().await?;

    assert!(old.acquire_write().await?);
    assert!(try_read(&lock).await?.is_none() && try_write(&lock).await?.is_none());
    old.release_write().await?;

    assert!(old.acquire_read().await?);
    assert!(try_write(&lock).await?.is_none());
    let reading = try_read(&lock).await?.expect("readers share");
    assert!(old.acquire_read().await?);
    old.release_read().await?;
    drop(reading);

    let writing = try_write(&lock).await?.expect("free");
    assert_eq!(writing.mode(), LockMode::Write);
    assert!(!old.acquire_read().await? && !old.acquire_write().await?);
    let (value, left): (String, u64) = redis::pipe()
        .cmd("GET")
        .arg("{order}:write")
        .cmd("TTL")
        .arg("{order}:write")
        .query_async(&mut server.connect().await?)
        .await?;
    assert!(value.len() > 10, "the master, not {value}");
    assert!((1..=60).contains(&left));
    assert!(writing.remaining() <= LEASE);
    assert_eq!(writing.release().await?, ReleaseOutcome::Released);

    let reading = try_read(&lock).await?.expect("free");
    assert!(!old.acquire_write().await?);
    assert_eq!(reading.release().await?, ReleaseOutcome::Released);
    assert!(old.acquire_write().await?);
    Ok(())
}

#[tokio::test]
async fn two_key_release_deletes_only_its_own_key() -> Result {
    let (server, lock, old) = stage().await?;
    for mode in [LockMode::Write, LockMode::Read] {
        let short = Duration::from_secs(1);
        let guard = match mode {
            LockMode::Write => lock.try_write(short).await?,
            LockMode::Read => lock.try_read(short).await?,
        };
        let guard = guard.expect("free");
        let key = ["{order}:read", "{order}:write"][usize::from(mode == LockMode::Write)];
        let is_there = async || server.run::<bool>(cmd("EXISTS").arg(key)).await.unwrap();
        eventually("it has run out", async || !is_there().await).await;
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert!(old.acquire_write().await?);
        assert_eq!(guard.release().await?, ReleaseOutcome::AlreadyLost);
        assert!(try_read(&lock).await?.is_none(), "the old fleet still writes");
        old.release_write().await?;
    }
    // A later reader has the readers' key, so the earlier reader's release leaves it.
    let first = try_read(&lock).await?.expect("free");
    let second = try_read(&lock).await?.expect("readers share");
    assert_eq!(first.release().await?, ReleaseOutcome::AlreadyLost);
    assert!(!old.acquire_write().await?);
    assert_eq!(second.release().await?, ReleaseOutcome::Released);
    let first = try_read(&lock).await?.expect("free");
    assert!(old.acquire_read().await?);
    assert_eq!(first.release().await?, ReleaseOutcome::AlreadyLost);
    assert!(try_write(&lock).await?.is_none(), "the old fleet still reads");
    Ok(())
}

#[tokio::test]
async fn two_key_short_reads_do_not_shorten_a_longer_read() -> Result {
    const NOW: &str =
        "local time = redis.call('TIME') local now = time[1] * 1000 + math.floor(time[2] / 1000)";
    // If time passes within a script, `no_later` may return a time that is too early, and
    // `no_earlier` one that is too late.
    let no_later = format!("{NOW} return now + redis.call('PTTL', KEYS[1])");
    let no_earlier = format!("local left = redis.call('PTTL', KEYS[1]) {NOW} return now + left");
    let (server, lock, _) = stage().await?;
    let deadline = async |script: &str| -> Result<u64> {
        server.run(cmd("EVAL").arg(script).arg(1).arg("{order}:read")).await
    };
    let mut held = vec![try_read(&lock).await?.expect("free")];
    for left in [59_999, 59_499, 59_001, 30_499, 5_250, 1_499] {
        // As if the rest of it had passed.
        assert!(server.run(cmd("PEXPIRE").arg("{order}:read").arg(left)).await?, "gone");
        let before = deadline(&no_later).await?;
        let short = lock.try_read(Duration::from_secs(1)).await?.expect("readers share");
        assert!(short.remaining() <= Duration::from_secs(1));
        let after = deadline(&no_earlier).await?;
        assert!(after >= before, "{} ms less of {left}", before - after);
        held.push(short);
    }
    Ok(())
}

/// Takes the lock for reading for 60 s, by a direct call of the script.
async fn call_to_read(server: &testkit::Server, master: &str) -> Result<String> {
    let mut scripts = rwlease::scripts();
    let script = scripts.find(|script| script.name() == "legacy/acquire_read");
    let mut call = cmd("EVAL");
    call.arg(script.expect("a script").text()).arg(2);
    call.arg(&["{order}:read", "{order}:write", "here", "0", master, "60"]);
    let reply: String = server.run(&call).await?;
    let words: Vec<&str> = reply.split(' ').collect();
    let (now, ends): (u64, u64) = (words[1].parse()?, words[5].parse()?);
    assert!(ends - now <= LEASE.as_millis().try_into()?);
    Ok(words[0].into())
}

#[tokio::test]
async fn two_key_read_repeated_changes_nothing() -> Result {
    let server = StandaloneServer::start().await?;
    assert_eq!(call_to_read(&server, "first").await?, "granted");
    server.run_words::<()>("PEXPIRE {order}:read 30000").await?;
    assert_eq!(call_to_read(&server, "first").await?, "granted");
    assert_eq!(server.run_words::<String>("GET {order}:read").await?, "first");
    assert!(server.run_words::<u64>("PTTL {order}:read").await? <= 30_000);
    Ok(())
}

#[tokio::test]
async fn two_key_write_with_a_lost_reply_has_one_owner() -> Result {
    let server = StandaloneServer::start().await?;
    let proxy = Proxy::start(&server).await?;
    let locks = connect(&[proxy.url()]).await?;
    let lock = TwoKeyRwLock::tagged(&locks, NAME)?;
    // The server knows the scripts from here on.
    let _ = try_write(&lock).await?.expect("free").release().await?;
    for cut in [CutPoint::AfterIt, CutPoint::BeforeIt] {
        let sprung = proxy.trap("EVALSHA", cut);
        let guard = try_write(&lock).await?.expect("free");
        sprung.await?;
        assert_eq!(guard.release().await?, ReleaseOutcome::Released);
        assert!(!server.run_words::<bool>("EXISTS {order}:write").await?);
    }
    Ok(())
}

#[tokio::test]
async fn two_key_guard_or_request_dropped_is_released() -> Result {
    let (_server, lock, old) = stage().await?;
    drop(try_write(&lock).await?.expect("free"));
    let guard = lock.read(LEASE, LEASE).await?;
    std::thread::spawn(move || drop(guard)).join().expect("dropped outside a runtime");
    drop(lock.write(LEASE, LEASE).await?);
    for pause in [0, 1, 2] {
        let waited =
            tokio::time::timeout(Duration::from_millis(pause), lock.write(LEASE, LEASE)).await;
        drop(waited);
        eventually("it is free", async || old.acquire_write().await.unwrap()).await;
        old.release_write().await?;
    }
    assert!(old.acquire_read().await?);
    let error = lock.write(LEASE, Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    Ok(())
}

/// As with every lock of a client.
#[cfg(feature = "embedded")]
#[tokio::test(start_paused = true)]
async fn two_key_lease_end_calls_on_lost_and_shutdown_releases() -> Result {
    let engine = rwlease::embedded::EmbeddedCluster::builder().masters(1).replicas(0).build();
    let (tell, mut losses) = tokio::sync::mpsc::unbounded_channel();
    let settings = Client::builder().on_lease_lost(move |loss| tell.send(loss.mode).unwrap_or(()));
    let locks = settings.connect_embedded(&engine).await?;
    let lock = TwoKeyRwLock::tagged(&locks, NAME)?;
    let short = lock.try_write(Duration::from_secs(1)).await?.expect("free");
    assert_eq!(losses.recv().await, Some(LockMode::Write));
    assert_eq!(short.remaining(), Duration::ZERO);
    sleep(Duration::from_secs(1)).await; // past the margin as well
    assert_eq!(short.release().await?, ReleaseOutcome::AlreadyLost);
    let _held = try_write(&lock).await?.expect("free");
    assert_eq!(locks.shutdown(LEASE).await, [""; 0]);
    let other = Client::builder().connect_embedded(&engine).await?;
    assert!(try_write(&TwoKeyRwLock::tagged(&other, NAME)?).await?.is_some());
    assert!(losses.try_recv().is_err(), "given back is not lost");
    Ok(())
}

#[tokio::test]
async fn two_key_write_with_an_unanswered_last_try_returns_timed_out() -> Result {
    let server = StandaloneServer::start().await?;
    let proxy = Proxy::start(&server).await?;
    let lock = TwoKeyRwLock::tagged(&connect(&[proxy.url()]).await?, NAME)?;
    assert!(old_client(&server).await?.acquire_write().await?);
    let waiting = tokio::spawn(async move { lock.write(LEASE, Duration::from_secs(1)).await });
    sleep(Duration::from_millis(750)).await;
    proxy.replies(ProxyFlow::Paused);
    assert_eq!(waiting.await?.unwrap_err().kind(), ErrorKind::TimedOut);
    Ok(())
}

#[tokio::test]
async fn two_key_lock_on_keys_of_another_type_returns_foreign() -> Result {
    let (server, lock, _) = stage().await?;
    server.run_words::<()>("HSET {order}:read f v").await?;
    assert_eq!(lock.try_read(LEASE).await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(server.run_words::<String>("HGET {order}:read f").await?, "v");
    server.run_words::<()>("DEL {order}:read").await?;
    server.run_words::<()>("HSET {order}:write f v").await?;
    assert_eq!(lock.try_write(LEASE).await.unwrap_err().kind(), ErrorKind::WrongType);
    Ok(())
}

#[tokio::test]
async fn two_key_lock_errors_have_the_kind_of_their_cause() -> Result {
    let (server, lock, _) = stage().await?;
    for waiting in [
        lock.read(LEASE, Duration::ZERO).await,
        lock.write(LEASE, Duration::ZERO).await,
        lock.read(Duration::ZERO, LEASE).await,
    ] {
        assert_eq!(waiting.unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    server.run_words::<()>("ACL SETUSER default -set").await?;
    assert_eq!(lock.try_read(LEASE).await.unwrap_err().kind(), ErrorKind::Rejected);
    assert_eq!(lock.write(LEASE, LEASE).await.unwrap_err().kind(), ErrorKind::Rejected);
    server.run_words::<()>("ACL SETUSER default +@all -del").await?;
    let held = try_write(&lock).await?.expect("free");
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Rejected);

    let locks = connect(&[server.url()]).await?;
    let lock = TwoKeyRwLock::tagged(&locks, "other")?;
    assert!(locks.shutdown(LEASE).await.is_empty());
    assert_eq!(lock.try_read(LEASE).await.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(lock.write(LEASE, LEASE).await.unwrap_err().kind(), ErrorKind::Cancelled);
    Ok(())
}

/// The hazards of the protocol, which the documentation warns of.
#[tokio::test]
async fn two_key_lock_known_hazards() -> Result {
    let (server, lock, old) = stage().await?;
    // The last reader releases, and a writer gets in beside the first one.
    let first = try_read(&lock).await?.expect("free");
    let second = try_read(&lock).await?.expect("readers share");
    let _ = second.release().await?;
    let writing = try_write(&lock).await?.expect("the hazard is gone: say so in the documentation");
    assert!(first.remaining() > Duration::ZERO);
    // The first reader counts as the last one if its call was repeated.
    let _ = writing.release().await?;
    for master in ["first", "second", "first"] {
        assert_eq!(call_to_read(&server, master).await?, "granted");
    }
    assert_eq!(
        server.run_words::<String>("GET {order}:read").await?,
        "first",
        "the hazard is gone: say so in the documentation"
    );
    server.run_words::<()>("DEL {order}:read").await?;
    // A release by the old fleet deletes whatever is there.
    let writing = try_write(&lock).await?.expect("free");
    old.release_write().await?;
    assert!(try_write(&lock).await?.is_some(), "the hazard is gone: say so in the documentation");
    assert_eq!(writing.release().await?, ReleaseOutcome::AlreadyLost);
    // A reader of the old fleet sets the readers' key to its own time, even if that is shorter.
    server.run_words::<()>("DEL {order}:write").await?;
    let short = TwoKeys::new(server.connect().await?, "{order}:read", "{order}:write", 5);
    let reading = try_read(&lock).await?.expect("free");
    assert!(short.acquire_read().await?);
    assert!(
        server.run_words::<u64>("PTTL {order}:read").await? <= 5_000,
        "the hazard is gone: say so in the documentation"
    );
    assert!(reading.remaining() > Duration::from_secs(5));
    Ok(())
}

/// Another hazard: with one of the two keys moved, no server can run the script.
#[tokio::test]
async fn two_key_lock_in_a_moving_slot_is_unavailable_and_can_be_released() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let url = cluster.node(0).url();
    let locks = testkit::Backend::chosen()
        .connect(Client::builder().call_timeout(Duration::from_secs(1)), &[url])
        .await?;
    let lock = TwoKeyRwLock::tagged(&locks, NAME)?;
    let slot = lock.slot().get();
    let master = cluster.master_of(slot).await?;
    let held = try_write(&lock).await?.expect("free");
    let step = cluster.begin_migration(slot, 1 - master).await?;
    let error = lock.try_read(LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(format!("{error:?}").contains("TRYAGAIN"), "{error:?}");
    cluster.move_keys(step).await?;
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    cluster.finish_migration(step).await?;
    assert!(try_write(&lock).await?.is_some());
    Ok(())
}

/// The longest wait for the two keys of a task that takes both locks.
const PATIENCE: Duration = Duration::from_secs(29);

/// One member of a fleet on its way from the two-key lock to the single hash.
enum Member {
    /// Not changed yet.
    Old(TwoKeys),
    /// Takes both: first the old one, then the new one.
    Both(TwoKeyRwLock, RwLock),
    /// Fully migrated.
    New(RwLock),
}

impl Member {
    /// Takes the lock, works, and releases in the opposite order.
    async fn work(&self, mode: LockMode, inside: &ExclusionCheck) -> Result {
        let writes = mode == LockMode::Write;
        match self {
            Member::Old(old) if writes => {
                while !old.acquire_write().await? {
                    sleep(Duration::from_millis(5)).await;
                }
                inside.writes().await;
                old.release_write().await?;
            }
            Member::Old(old) => {
                while !old.acquire_read().await? {
                    sleep(Duration::from_millis(5)).await;
                }
                inside.reads().await;
                old.release_read().await?;
            }
            Member::Both(old, new) => {
                let legacy = match mode {
                    LockMode::Read => old.read(LEASE, PATIENCE).await?,
                    LockMode::Write => old.write(LEASE, PATIENCE).await?,
                };
                assert_eq!(inside.takes(new, writes).await?, ReleaseOutcome::Released);
                let released = legacy.release().await?;
                // By now the readers' key may belong to another reader.
                assert!(released == ReleaseOutcome::Released || !writes, "{released:?}");
            }
            Member::New(new) => {
                assert_eq!(inside.takes(new, writes).await?, ReleaseOutcome::Released);
            }
        }
        Ok(())
    }
}

/// Runs two generations side by side, with a writer and a reader of each.
async fn work_together(step: &'static str, members: [Member; 4], one_reader: bool) -> Result {
    let (inside, reading) = (Arc::new(ExclusionCheck::default()), Arc::new(Mutex::new(())));
    let tasks = members.into_iter().enumerate().map(|(number, member)| {
        let (inside, reading) = (inside.clone(), reading.clone());
        tokio::spawn(async move {
            for _ in 0..15 {
                if number % 2 == 0 {
                    member.work(LockMode::Write, &inside).await?;
                } else {
                    let alone = one_reader.then(|| reading.lock());
                    let _alone = OptionFuture::from(alone).await;
                    member.work(LockMode::Read, &inside).await?;
                }
            }
            Ok::<_, testkit::Error>(())
        })
    });
    for task in join_all(tasks).await {
        task.map_err(|panicked| testkit::Error::new(format!("{step}: {panicked}")))??;
    }
    Ok(())
}

/// Takes each step of the migration. The old fleet calls the server of the two keys directly.
#[tokio::test(flavor = "multi_thread")]
async fn two_key_fleet_migrates_to_rwlock() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let urls = cluster.urls();
    let node = cluster.node(cluster.master_of(Slot::of("{order}:read").get()).await?);
    let old = async || -> Result<Member> { Ok(Member::Old(old_client(node).await?)) };
    let both = async || -> Result<Member> {
        let locks = connect(&urls).await?;
        Ok(Member::Both(TwoKeyRwLock::tagged(&locks, NAME)?, locks.rwlock(NAME)?))
    };
    let new = async || -> Result<Member> { Ok(Member::New(connect(&urls).await?.rwlock(NAME)?)) };
    // In the old fleet, the release of one reader releases all readers. So there is one reader at a
    // time.
    work_together("old and both", [old().await?, old().await?, both().await?, both().await?], true)
        .await?;
    work_together("both", [both().await?, both().await?, both().await?, both().await?], false)
        .await?;
    work_together("both and new", [both().await?, both().await?, new().await?, new().await?], false)
        .await
}
