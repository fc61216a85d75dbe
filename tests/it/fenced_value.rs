//! Fenced values: what their callers may pass, what two writers with one token get, and what is
//! left after a loss.

use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{Client, ErrorKind, FencedValue, FencedWriter, RwLock};
use testkit::{ConnectBuilder, CutPoint, Proxy, ProxyFlow, StandaloneServer, connect};

use crate::fixture::{LONG, MS, client, engine, in_task, single, soon};

const DAY: Duration = Duration::from_secs(86_400);

/// A lock and its value in an embedded cluster.
async fn embedded() -> (EmbeddedCluster, Client, RwLock, FencedValue) {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).manual_time().build();
    let locks = client(&engine).await;
    let lock = locks.rwlock("account:{42}").unwrap();
    let value = lock.fenced_value("balance:{42}").unwrap();
    (engine, locks, lock, value)
}

/// A writer with a new token. Its lease has ended.
async fn writer(lock: &RwLock, value: &FencedValue) -> FencedWriter {
    let guard = lock.write().await.unwrap();
    let writer = value.writer(&guard).unwrap();
    assert!(guard.release().await.unwrap().was_held());
    writer
}

#[tokio::test]
async fn fenced_value_with_a_bad_name_is_refused() {
    let (_engine, locks, lock, _) = embedded().await;
    for (name, kind) in [
        ("".to_owned(), ErrorKind::InvalidInput),
        (format!("{{42}}{}", "x".repeat(509)), ErrorKind::InvalidInput),
        ("balance:{43}".to_owned(), ErrorKind::CrossSlot),
        ("balance".to_owned(), ErrorKind::CrossSlot),
    ] {
        let error = lock.fenced_value(&name).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    lock.fenced_value(format!("{{42}}{}", "x".repeat(508))).unwrap();
    // The key of a value cannot be the key of a lock.
    lock.fenced_value("fenced:{42}").unwrap();
    assert_eq!(locks.rwlock("fenced:{42}").unwrap_err().kind(), ErrorKind::InvalidInput);
    // A name without a tag of its own has the tag of its slot.
    for name in ["orders", "or}ders", "{}orders"] {
        let lock = locks.rwlock(name).unwrap();
        let value = lock.fenced_value(format!("v{{{}}}", lock.slot().hash_tag())).unwrap();
        writer(&lock, &value).await.set("1").await.unwrap();
    }
}

#[tokio::test]
async fn fenced_writer_with_a_bad_value_or_option_is_refused() {
    let (_engine, _locks, lock, value) = embedded().await;
    let largest = writer(&lock, &value).await;
    largest.set(vec![7; FencedValue::MAX_LEN]).await.unwrap();
    let error = largest.set(vec![7; FencedValue::MAX_LEN + 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(value.get().await.unwrap().map(|value| value.len()), Some(FencedValue::MAX_LEN));
    let too_long = Duration::from_millis(1_000_000_000_001);
    for bad in [
        value.clone().ttl(Duration::ZERO),
        value.clone().ttl(too_long),
        value.clone().token_retention(Duration::ZERO),
        value.clone().token_retention(too_long),
    ] {
        let error = writer(&lock, &bad).await.set("1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[tokio::test]
async fn fenced_value_refuses_leases_that_are_no_write_of_its_lock() {
    let (_engine, locks, lock, value) = embedded().await;
    let other = locks.rwlock("other:{42}").unwrap().write().await.unwrap();
    let permit = locks.semaphore("permits:{42}", 1).unwrap();
    let permit = permit.acquire(1).await.unwrap();
    let mutex = locks.set_nx_mutex("account:{42}").unwrap().lock().await.unwrap();
    for error in [
        value.writer(&other).unwrap_err(),
        value.writer(&permit).unwrap_err(),
        value.writer(&mutex).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::OtherLock, "{error}");
    }
    let read = lock.read().await.unwrap();
    assert_eq!(value.writer(&read).unwrap_err().kind(), ErrorKind::InvalidInput);
    drop(read);
    let write = lock.write().await.unwrap();
    let lease = rwlease::Lease::clone(&write);
    drop(write);
    assert_eq!(value.writer(&lease).unwrap_err().kind(), ErrorKind::LeaseLost);
}

#[tokio::test]
async fn fenced_value_of_another_lock_is_refused_by_the_server() {
    let (_engine, locks, lock, value) = embedded().await;
    writer(&lock, &value).await.set("1").await.unwrap();
    let other = locks.rwlock("other:{42}").unwrap();
    let wrong = other.fenced_value("balance:{42}").unwrap();
    let writer = writer(&other, &wrong).await;
    for error in [
        writer.set("2").await.unwrap_err(),
        writer.get().await.map(drop).unwrap_err(),
        writer.delete().await.unwrap_err(),
        wrong.get().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::OtherLock, "{error}");
        assert!(error.to_string().contains("`account:{42}`"), "{error}");
    }
    assert_eq!(value.get().await.unwrap(), Some(b"1".to_vec()));
}

#[tokio::test]
async fn fenced_writers_of_elections_mutexes_and_cached_locks_write() {
    let (_engine, locks, lock, value) = embedded().await;
    let leader = locks.election("account:{42}").unwrap().campaign().await.unwrap();
    value.writer(&leader).unwrap().set("leader").await.unwrap();
    assert!(leader.resign().await.unwrap().was_held());
    let mutex = locks.mutex("account:{42}").unwrap();
    let held = mutex.lock().await.unwrap();
    let same = mutex.rwlock().fenced_value("balance:{42}").unwrap();
    same.writer(&held).unwrap().set("mutex").await.unwrap();
    drop(held);
    let cached = lock.cached().unwrap();
    let mut last = None;
    for _ in 0..3 {
        let held = cached.write().await.unwrap();
        let writer = value.writer_with_token(held.fencing_token());
        writer.set("cached").await.unwrap();
        assert!(last.replace(held.fencing_token()) < last);
    }
    assert_eq!(value.get().await.unwrap(), Some(b"cached".to_vec()));
}

#[tokio::test]
async fn fenced_writer_that_is_cloned_keeps_the_last_call() {
    let (_engine, _locks, lock, value) = embedded().await;
    let first = writer(&lock, &value).await;
    let second = first.clone();
    first.set("1").await.unwrap();
    second.set("2").await.unwrap();
    first.set("3").await.unwrap();
    assert_eq!(second.get().await.unwrap(), Some(b"3".to_vec()));
}

#[tokio::test]
async fn fenced_writer_of_its_own_takes_over_once() {
    let (_engine, _locks, lock, value) = embedded().await;
    let first = writer(&lock, &value).await;
    let [second, third] = [(); 2].map(|()| value.writer_with_token(first.fencing_token()));
    first.set("1").await.unwrap();
    second.set("2").await.unwrap();
    let refused = first.set("1 again").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StaleToken);
    assert_eq!(refused.stored_token(), Some(first.fencing_token()));
    assert!(refused.to_string().contains("has taken over"), "{refused}");
    third.delete().await.unwrap();
    assert_eq!(second.get().await.unwrap_err().kind(), ErrorKind::StaleToken);
    assert_eq!(value.get().await.unwrap(), None);
}

#[tokio::test]
async fn fenced_writer_whose_first_write_full_memory_refused_takes_over_later() {
    let (engine, _locks, lock, value) = embedded().await;
    let guard = lock.write().await.unwrap();
    let (old, new) = (value.writer(&guard).unwrap(), value.writer(&guard).unwrap());
    old.set("1").await.unwrap();
    engine.faults().set_out_of_memory(0, true);
    assert_eq!(new.set("2").await.unwrap_err().kind(), ErrorKind::Rejected);
    engine.faults().set_out_of_memory(0, false);
    new.set("2").await.unwrap();
    assert_eq!(old.set("3").await.unwrap_err().kind(), ErrorKind::StaleToken);
}

/// The server asks for the script of the `set`. So the `get` takes over first, and the `set` finds
/// a writer that has begun.
#[tokio::test]
async fn fenced_clones_whose_first_calls_race_take_over_once() {
    let (_server, locks) = single().await;
    let lock = locks.rwlock("account:{42}").unwrap();
    let value = lock.fenced_value("balance:{42}").unwrap();
    let earlier = writer(&lock, &value).await;
    assert_eq!(earlier.get().await.unwrap(), None);
    let first = value.writer_with_token(earlier.fencing_token());
    let second = first.clone();
    let (read, written) = tokio::join!(first.get(), second.set("1"));
    assert_eq!(read.unwrap(), None);
    written.unwrap();
    assert_eq!(value.get().await.unwrap(), Some(b"1".to_vec()));
    assert_eq!(earlier.get().await.unwrap_err().kind(), ErrorKind::StaleToken);
}

/// The first attempt is carried out, and its reply is lost. Meanwhile another writer takes over.
/// The repeated attempt must not take over a second time.
#[tokio::test(flavor = "multi_thread")]
async fn fenced_set_whose_reply_was_lost_does_not_take_over_again() {
    let (server, locks) = single().await;
    let proxy = Proxy::start(&server).await.unwrap();
    let settings = Client::builder().response_timeout(LONG);
    let slow = settings.connect_to(&[proxy.url()]).await.unwrap();
    let lock = locks.rwlock("account:{42}").unwrap();
    let value = lock.fenced_value("balance:{42}").unwrap();
    writer(&lock, &value).await.set("0").await.unwrap(); // the server knows the script
    let token = writer(&lock, &value).await.fencing_token();
    let ours = value.writer_with_token(token);
    let theirs = slow.rwlock("account:{42}").unwrap().fenced_value("balance:{42}").unwrap();
    theirs.get().await.unwrap(); // it is connected
    let theirs = theirs.writer_with_token(token);

    proxy.replies(ProxyFlow::Dropped);
    let call = in_task(&theirs, |theirs| async move { theirs.set("theirs").await });
    let written = async || value.get().await.unwrap() == Some(b"theirs".to_vec());
    crate::fixture::eventually("the first attempt arrives", written).await;
    ours.set("ours").await.unwrap();
    proxy.heal();
    proxy.cut();
    let refused = soon("the call", call).await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StaleToken, "{refused}");
    assert_eq!(theirs.set("theirs").await.unwrap_err().kind(), ErrorKind::StaleToken);
    assert_eq!(value.get().await.unwrap(), Some(b"ours".to_vec()));
}

/// The server knows the script of the `get`, and asks for the script of the write. So the `get`,
/// which was made after the write, is carried out before it.
#[tokio::test]
async fn fenced_write_that_a_later_get_overtakes_is_written() {
    let (_server, locks) = single().await;
    let lock = locks.rwlock("account:{42}").unwrap();
    let value = lock.fenced_value("balance:{42}").unwrap();
    let writer = writer(&lock, &value).await;
    assert_eq!(writer.get().await.unwrap(), None);
    let (written, read) = tokio::join!(writer.set("1"), writer.get());
    written.unwrap();
    assert_eq!(read.unwrap(), None, "the `get` was carried out first");
    assert_eq!(value.get().await.unwrap(), Some(b"1".to_vec()));
    let (deleted, read) = tokio::join!(writer.delete(), writer.get());
    deleted.unwrap();
    assert_eq!(read.unwrap(), Some(b"1".to_vec()), "the `get` was carried out first");
    assert_eq!(value.get().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn fenced_set_whose_reply_was_lost_is_sent_again() {
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let locks = connect(&[proxy.url()]).await.unwrap();
    let lock = locks.rwlock("account:{42}").unwrap();
    let value = lock.fenced_value("balance:{42}").unwrap();
    let writer = writer(&lock, &value).await;
    writer.set("1").await.unwrap();
    let lost = proxy.trap("lost-reply", CutPoint::AfterIt);
    writer.set("lost-reply").await.unwrap();
    lost.await.expect("a reply was lost");
    assert_eq!(value.get().await.unwrap(), Some(b"lost-reply".to_vec()));
    let lost = proxy.trap("fenced:", CutPoint::AfterIt);
    assert_eq!(writer.get().await.unwrap(), Some(b"lost-reply".to_vec()));
    lost.await.expect("a reply was lost");
}

#[tokio::test]
async fn fenced_value_past_its_ttl_keeps_its_token_for_the_retention() {
    let (engine, _locks, lock, value) = embedded().await;
    let value = value.ttl(Duration::from_secs(10)).token_retention(Duration::from_secs(60));
    let (old, new) = (writer(&lock, &value).await, writer(&lock, &value).await);
    new.set("1").await.unwrap();
    engine.advance(Duration::from_secs(9));
    assert_eq!(value.get().await.unwrap(), Some(b"1".to_vec()));
    engine.advance(Duration::from_secs(1));
    let status = value.status().await.unwrap().expect("the token is kept");
    assert_eq!((status.value, status.fencing_token), (None, new.fencing_token()));
    engine.advance(Duration::from_secs(59));
    assert_eq!(old.set("0").await.unwrap_err().kind(), ErrorKind::StaleToken);
    engine.advance(Duration::from_secs(2));
    assert_eq!(value.status().await.unwrap(), None);
    old.set("0").await.unwrap(); // nothing is left that knows of a newer token
}

#[tokio::test]
async fn fenced_value_deleted_keeps_its_token_for_a_day_by_default() {
    let (engine, _locks, lock, value) = embedded().await;
    let (old, new) = (writer(&lock, &value).await, writer(&lock, &value).await);
    new.delete().await.unwrap();
    engine.advance(DAY - MS);
    assert_eq!(old.set("0").await.unwrap_err().kind(), ErrorKind::StaleToken);
    engine.advance(2 * MS);
    assert_eq!(value.status().await.unwrap(), None);
}

#[tokio::test]
async fn fenced_value_whose_key_was_lost_is_not_replaced_by_a_stale_writer() {
    let (engine, _locks, lock, value) = embedded().await;
    let (old, new) = (writer(&lock, &value).await, writer(&lock, &value).await);
    new.set("1").await.unwrap();
    engine.faults().flush_data(0);
    assert_eq!(value.status().await.unwrap(), None);
    assert_eq!(old.replace("0").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(old.get().await.unwrap(), None);
    assert_eq!(old.replace("0").await.unwrap_err().kind(), ErrorKind::NotFound);
    // The next holder creates it again, and from then on older writers are refused again.
    new.set("2").await.unwrap();
    assert_eq!(old.replace("0").await.unwrap_err().kind(), ErrorKind::StaleToken);
}

/// A failover that loses a write loses its token. A write that a replica has confirmed stays.
#[tokio::test]
async fn fenced_set_lost_by_a_failover_reopens_the_value_unless_a_replica_confirmed_it() {
    for replicas in [0, 1] {
        let engine = EmbeddedCluster::builder().masters(1).replicas(1).build();
        let settings = Client::builder().call_timeout(LONG);
        let locks = settings.connect_embedded(&engine).await.unwrap();
        let lock = locks.rwlock("account:{42}").unwrap();
        let value = lock.fenced_value("balance:{42}").unwrap().min_replicas(replicas);
        let (old, new) = (writer(&lock, &value).await, writer(&lock, &value).await);
        old.set("0").await.unwrap();
        let (faults, replica) = (engine.faults(), engine.faults().replicas(0)[0]);
        faults.lag_replica(replica);
        let written = new.set("1");
        if replicas == 0 {
            written.await.unwrap();
        } else {
            let error = written.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            faults.sync_replica(replica);
            new.set("1").await.unwrap();
        }
        faults.promote(0, usize::from(replicas == 0)).unwrap();
        let stale = old.set("stale").await;
        assert_eq!(stale.is_ok(), replicas == 0, "{replicas} replicas: {stale:?}");
        let found = if replicas == 0 { b"stale".to_vec() } else { b"1".to_vec() };
        assert_eq!(value.get().await.unwrap(), Some(found));
    }
}

#[tokio::test]
async fn fenced_value_is_not_listed_as_a_lock() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = locks.rwlock("account:{42}").unwrap();
    let value = lock.fenced_value("balance:{42}").unwrap();
    let guard = lock.write().await.unwrap();
    value.writer(&guard).unwrap().set("1").await.unwrap();
    for start in ["", "fenced:"] {
        let mut found = Vec::new();
        let mut scan = locks.scan(start);
        while let Some(names) = scan.next_page().await.unwrap() {
            found.extend(names);
        }
        let expected: &[&str] = if start.is_empty() { &["account:{42}"] } else { &[] };
        assert_eq!(found, expected);
    }
}

/// The fragment of `docs/fencing.md`, before a script of the user's own.
#[tokio::test(flavor = "multi_thread")]
async fn fencing_fragment_before_a_script_refuses_stale_tokens() {
    let (server, locks) = single().await;
    let page = std::fs::read_to_string(testkit::project_root().join("docs/fencing.md")).unwrap();
    let fragment = page.split("```lua\n").nth(1).and_then(|rest| rest.split("```").next());
    let script = format!("{}return redis.call('SET', KEYS[2], ARGV[3])", fragment.unwrap());
    let write = async |token: u64, number: u64, value: &str| -> testkit::Result<String> {
        let mut call = redis::cmd("EVAL");
        call.arg(&script).arg(2).arg("{42}token").arg("{42}balance");
        call.arg(token).arg(number).arg(value);
        server.run(&call).await
    };
    // Also where the number of digits differs.
    for (token, stale) in [(9, 8), (10, 9), (1_000_000, 999_999), (1 << 53, (1 << 53) - 1)] {
        write(token, 9, "new").await.unwrap();
        for _repeated in 0..2 {
            write(token, 10, "newer").await.unwrap();
        }
        for (token_of_late, number) in [(stale, 11), (token, 9)] {
            let refused = write(token_of_late, number, "late").await.unwrap_err().to_string();
            assert!(refused.contains("STALETOKEN"), "{refused}");
            assert!(refused.contains(&format!("{token:016}{:016}", 10)), "{refused}");
        }
        let value: String = server.run_words("GET {42}balance").await.unwrap();
        assert_eq!(value, "newer");
    }
    // A token of a real lock has fewer than 17 digits.
    let guard = locks.rwlock("account:{43}").unwrap().write().await.unwrap();
    assert!(guard.fencing_token().to_string().len() <= 16);
}
