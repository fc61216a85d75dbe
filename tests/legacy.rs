//! The two-key lock beside the fleet that has always run it: what they agree on, what is added, and what stays dangerous.

#![cfg(feature = "legacy")]
// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::cmd;
use rwlease::{ErrorKind, LegacyGuard, LegacyRwLock, Locks, Mode, Released, Slot, WriteGuard};
use support::published::TwoKeys;
use support::{Cluster, Cut, Patience, Proxy, Result, Shape, Single, connect};
use tokio::time::sleep;

const LEASE: Duration = Duration::from_secs(60);
const NAME: &str = "order";

/// A server, the lock on it, and one client of the old fleet.
async fn stage() -> Result<(Single, LegacyRwLock, TwoKeys)> {
    let server = Single::start().await?;
    let locks = connect(&[server.url()]).await?;
    let old = old_client(&server).await?;
    Ok((server, LegacyRwLock::tagged(&locks, NAME)?, old))
}

async fn old_client(server: &support::Server) -> Result<TwoKeys> {
    Ok(TwoKeys::new(
        server.connect().await?,
        "{order}:read",
        "{order}:write",
        LEASE.as_secs(),
    ))
}

async fn try_read(lock: &LegacyRwLock) -> Result<Option<LegacyGuard>> {
    Ok(lock.try_read(LEASE).await?)
}

async fn try_write(lock: &LegacyRwLock) -> Result<Option<LegacyGuard>> {
    Ok(lock.try_write(LEASE).await?)
}

#[tokio::test]
async fn two_keys_must_be_of_one_slot() -> Result {
    let server = Single::start().await?;
    let locks = connect(&[server.url()]).await?;
    let error = LegacyRwLock::new(&locks, "order:read", "order:write").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CrossSlot);
    let said = error.to_string();
    for key in ["order:read", "order:write"] {
        assert!(
            said.contains(key) && said.contains(&Slot::of(key).to_string()),
            "{said}"
        );
    }
    for (name, keys) in [
        ("order", ["{order}:read", "{order}:write"]),
        ("order:{42}", ["order:{42}:read", "order:{42}:write"]),
    ] {
        let lock = LegacyRwLock::tagged(&locks, name)?;
        assert_eq!(lock.keys(), keys.map(str::as_bytes));
        assert_eq!(lock.slot(), Slot::of(keys[1]));
    }
    assert_eq!(
        LegacyRwLock::tagged(&locks, "a}b").unwrap_err().kind(),
        ErrorKind::CrossSlot
    );
    assert_eq!(
        LegacyRwLock::new(&locks, "a", "a").unwrap_err().kind(),
        ErrorKind::Invalid
    );
    Ok(())
}

#[tokio::test]
async fn both_fleets_exclude_each_other() -> Result {
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
    assert_eq!(writing.mode(), Mode::Write);
    assert!(!old.acquire_read().await? && !old.acquire_write().await?);
    let (value, left): (String, u64) = redis::pipe()
        .cmd("GET")
        .arg("{order}:write")
        .cmd("TTL")
        .arg("{order}:write")
        .query_async(&mut server.connect().await?)
        .await?;
    assert!(value.len() > 10, "the owner, not {value}");
    assert!((1..=60).contains(&left));
    assert!(writing.remaining() <= LEASE);
    assert_eq!(writing.release().await?, Released::Released);

    let reading = try_read(&lock).await?.expect("free");
    assert!(!old.acquire_write().await?);
    assert_eq!(reading.release().await?, Released::Released);
    assert!(old.acquire_write().await?);
    Ok(())
}

#[tokio::test]
async fn a_release_deletes_only_what_is_its_own() -> Result {
    let (server, lock, old) = stage().await?;
    for mode in [Mode::Write, Mode::Read] {
        let short = Duration::from_secs(1);
        let guard = match mode {
            Mode::Write => lock.try_write(short).await?,
            Mode::Read => lock.try_read(short).await?,
        };
        let guard = guard.expect("free");
        let key = ["{order}:read", "{order}:write"][usize::from(mode == Mode::Write)];
        let patience = Patience::new("the key to run out");
        while server.run::<bool>(cmd("EXISTS").arg(key)).await? {
            patience.pause("it is there").await?;
        }
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert!(old.acquire_write().await?);
        assert_eq!(guard.release().await?, Released::AlreadyLost);
        assert!(try_read(&lock).await?.is_none(), "the old fleet still writes");
        old.release_write().await?;
    }
    // One that came later has the readers' key: the earlier one's release leaves it.
    let first = try_read(&lock).await?.expect("free");
    let second = try_read(&lock).await?.expect("readers share");
    assert_eq!(first.release().await?, Released::AlreadyLost);
    assert!(!old.acquire_write().await?);
    assert_eq!(second.release().await?, Released::Released);
    let first = try_read(&lock).await?.expect("free");
    assert!(old.acquire_read().await?);
    assert_eq!(first.release().await?, Released::AlreadyLost);
    assert!(try_write(&lock).await?.is_none(), "the old fleet still reads");
    Ok(())
}

#[tokio::test]
async fn a_short_read_does_not_cut_a_long_one_short() -> Result {
    let (server, lock, _) = stage().await?;
    let long = try_read(&lock).await?.expect("free");
    let short = lock.try_read(Duration::from_secs(1)).await?.expect("readers share");
    assert!(short.remaining() <= Duration::from_secs(1));
    assert!(server.say::<u64>("TTL {order}:read").await? > 30);
    drop((long, short));
    Ok(())
}

#[tokio::test]
async fn a_lost_answer_makes_no_second_owner() -> Result {
    let server = Single::start().await?;
    let proxy = Proxy::start(&server).await?;
    let locks = connect(&[proxy.url()]).await?;
    let lock = LegacyRwLock::tagged(&locks, NAME)?;
    try_write(&lock).await?.expect("free").release().await?; // the server knows the scripts now
    for cut in [Cut::AfterIt, Cut::BeforeIt] {
        let sprung = proxy.trap("EVALSHA", cut);
        let guard = try_write(&lock).await?.expect("free");
        sprung.await?;
        assert_eq!(guard.release().await?, Released::Released);
        assert!(!server.say::<bool>("EXISTS {order}:write").await?);
    }
    Ok(())
}

#[tokio::test]
async fn what_is_dropped_is_given_back() -> Result {
    let (_server, lock, old) = stage().await?;
    drop(try_write(&lock).await?.expect("free"));
    let guard = lock.read(LEASE, LEASE).await?;
    std::thread::spawn(move || drop(guard))
        .join()
        .expect("dropped outside a runtime");
    drop(lock.write(LEASE, LEASE).await?);
    for pause in [0, 1, 2] {
        let waited = tokio::time::timeout(Duration::from_millis(pause), lock.write(LEASE, LEASE)).await;
        drop(waited);
        let patience = Patience::new("the lock to be given back");
        while !old.acquire_write().await? {
            patience.pause("it is taken").await?;
        }
        old.release_write().await?;
    }
    assert!(old.acquire_read().await?);
    let error = lock.write(LEASE, Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    Ok(())
}

#[tokio::test]
async fn keys_of_another_type_are_left_alone() -> Result {
    let (server, lock, _) = stage().await?;
    server.say::<()>("HSET {order}:read f v").await?;
    assert_eq!(lock.try_read(LEASE).await.unwrap_err().kind(), ErrorKind::Foreign);
    assert_eq!(server.say::<String>("HGET {order}:read f").await?, "v");
    server.say::<()>("DEL {order}:read").await?;
    server.say::<()>("HSET {order}:write f v").await?;
    assert_eq!(lock.try_write(LEASE).await.unwrap_err().kind(), ErrorKind::Foreign);
    Ok(())
}

/// The hazards of the protocol, which the documentation warns of.
#[tokio::test]
async fn hazards() -> Result {
    let (_server, lock, old) = stage().await?;
    // The reader that came last releases, and a writer comes in beside the first one.
    let first = try_read(&lock).await?.expect("free");
    let second = try_read(&lock).await?.expect("readers share");
    second.release().await?;
    let writing = try_write(&lock)
        .await?
        .expect("the hazard is gone: say so in the documentation");
    assert!(first.remaining() > Duration::ZERO);
    // A release of the old fleet deletes whatever is there.
    old.release_write().await?;
    assert!(
        try_write(&lock).await?.is_some(),
        "the hazard is gone: say so in the documentation"
    );
    assert_eq!(writing.release().await?, Released::AlreadyLost);
    Ok(())
}

/// Another one: with one of the two keys moved, no server can run the script.
#[tokio::test]
async fn nobody_takes_it_while_its_slot_migrates_but_what_is_held_is_released() -> Result {
    let cluster = Cluster::start_with(Shape::of(2, 0)).await?;
    let url = cluster.node(0).url();
    let locks = support::Backend::chosen()
        .connect(Locks::builder().call_timeout(Duration::from_secs(1)), &[url])
        .await?;
    let lock = LegacyRwLock::tagged(&locks, NAME)?;
    let slot = lock.slot().get();
    let owner = cluster.owner(slot).await?;
    let held = try_write(&lock).await?.expect("free");
    let step = cluster.begin_move(slot, 1 - owner).await?;
    let error = lock.try_read(LEASE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(format!("{error:?}").contains("TRYAGAIN"), "{error:?}");
    cluster.move_keys(step).await?;
    assert_eq!(held.release().await?, Released::Released);
    cluster.finish_move(step).await?;
    assert!(try_write(&lock).await?.is_some());
    Ok(())
}

/// One member of a fleet on its way from the two-key lock to the single hash.
enum Member {
    /// Has not been changed yet.
    Old(TwoKeys),
    /// Takes both: first the old one, then the new one.
    Both(LegacyRwLock, Locks),
    /// Has arrived.
    New(Locks),
}

/// What a member holds while it writes.
enum Held<'a> {
    Old(&'a TwoKeys),
    Both(LegacyGuard, WriteGuard),
    New(WriteGuard),
}

impl Member {
    async fn write(&self) -> Result<Held<'_>> {
        match self {
            Member::Old(old) => {
                while !old.acquire_write().await? {
                    sleep(Duration::from_millis(5)).await;
                }
                Ok(Held::Old(old))
            }
            Member::Both(old, new) => {
                let first = old.write(LEASE, LEASE).await?;
                Ok(Held::Both(first, new.rwlock(NAME)?.write().await?))
            }
            Member::New(new) => Ok(Held::New(new.rwlock(NAME)?.write().await?)),
        }
    }
}

impl Held<'_> {
    /// In the opposite order.
    async fn release(self) -> Result {
        let released = match self {
            Held::Old(old) => return old.release_write().await,
            Held::Both(old, new) => [new.release().await?, old.release().await?],
            Held::New(new) => [new.release().await?, Released::Released],
        };
        assert_eq!(released, [Released::Released; 2]);
        Ok(())
    }
}

/// At each stage of the change-over two generations run side by side, and exclude each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_moves_to_the_single_hash() -> Result {
    let server = Single::start().await?;
    let both = async || -> Result<Member> {
        let locks = connect(&[server.url()]).await?;
        Ok(Member::Both(LegacyRwLock::tagged(&locks, NAME)?, locks))
    };
    let old = async || -> Result<Member> { Ok(Member::Old(old_client(&server).await?)) };
    let new = async || -> Result<Member> { Ok(Member::New(connect(&[server.url()]).await?)) };
    let stages = [
        (
            "old and both",
            [old().await?, old().await?, both().await?, both().await?],
        ),
        (
            "both and new",
            [both().await?, both().await?, new().await?, new().await?],
        ),
    ];
    for (stage, members) in stages {
        let inside = Arc::new(AtomicBool::new(false));
        let tasks = members.map(|member| {
            let inside = inside.clone();
            tokio::spawn(async move {
                for _ in 0..15 {
                    let held = member.write().await?;
                    assert!(!inside.swap(true, Ordering::SeqCst), "{stage}: two writers");
                    sleep(Duration::from_millis(2)).await;
                    assert!(inside.swap(false, Ordering::SeqCst), "{stage}: two writers");
                    held.release().await?;
                }
                Ok::<_, support::Error>(())
            })
        });
        for task in tasks {
            task.await??;
        }
    }
    Ok(())
}
