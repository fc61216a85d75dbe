//! Tests that need only two clients.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use rwlease::{
    Client, ErrorKind, LeaseState, LeaseTransfer, LockMode, ReleaseOutcome, RenewalPolicy,
    Semaphore,
};
use tokio::time::timeout;

use super::LONG;
use testkit::{ExclusionCheck, PollLimit, spawn_read, spawn_write, wait_for_waiters, wait_renewed};

pub async fn readers_share_and_writers_exclude(one: &Client, other: &Client) {
    for name in ["a", "order:{42}", "b{1}", "Größe", "d d"] {
        let (mine, theirs) = (one.rwlock(name).unwrap(), other.rwlock(name).unwrap());
        let first = mine.read().await.unwrap();
        let second = theirs.try_read().await.unwrap().expect("readers share");
        assert!(second.fencing_token() > first.fencing_token());
        assert!(theirs.try_write().await.unwrap().is_none());
        assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(mine.try_write().await.unwrap().is_none(), "the second still reads");
        assert_eq!(second.release().await.unwrap(), ReleaseOutcome::Released);
        let writing = mine.write().await.unwrap();
        assert_eq!(writing.state(), LeaseState::Held);
        assert!(theirs.try_read().await.unwrap().is_none());
        assert!(theirs.try_write().await.unwrap().is_none());
        assert_eq!(writing.release().await.unwrap(), ReleaseOutcome::Released);
        let reading = theirs.try_read().await.unwrap().expect("free again");
        assert_eq!(reading.release().await.unwrap(), ReleaseOutcome::Released);
    }
}

pub async fn locks_of_many_slots_are_held_at_once(one: &Client, other: &Client) {
    let names: Vec<String> = (0..200).map(|number| format!("many{number}")).collect();
    let held =
        join_all(names.iter().map(async |name| one.rwlock(name).unwrap().write().await.unwrap()))
            .await;
    let refused = join_all(
        names.iter().map(async |name| other.rwlock(name).unwrap().try_read().await.unwrap()),
    );
    assert!(refused.await.iter().all(Option::is_none));
    for released in join_all(held.into_iter().map(|guard| guard.release())).await {
        assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    }
    let taken = join_all(
        names.iter().map(async |name| other.rwlock(name).unwrap().try_read().await.unwrap()),
    );
    assert!(taken.await.iter().all(Option::is_some));
}

/// Granted in memory where possible, and by requests elsewhere, with the same exclusion.
pub async fn cached_locks_exclude_and_give_way(one: &Client, other: &Client) {
    let lock = one.rwlock("cached").unwrap().cached().unwrap();
    let theirs = other.rwlock("cached").unwrap();
    let mut last = 0;
    for _ in 0..3 {
        for _ in 0..20 {
            drop(lock.read().await.unwrap());
            let writing = lock.write().await.unwrap();
            assert!(writing.is_held() && writing.fencing_token().get() > last);
            last = writing.fencing_token().get();
            assert_eq!(writing.release().await.unwrap(), ReleaseOutcome::Released);
        }
        let held = lock.read().await.unwrap();
        assert!(theirs.try_write().await.unwrap().is_none(), "it is in use");
        drop(held);
        let writing = timeout(LONG, theirs.write().into_future()).await.unwrap().unwrap();
        assert!(writing.fencing_token().get() > last);
        last = writing.fencing_token().get();
        assert!(lock.try_read().await.unwrap().is_none());
        assert_eq!(writing.release().await.unwrap(), ReleaseOutcome::Released);
    }
    assert!(one.shutdown(LONG).await.is_empty());
    let error = lock.read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error:?}");
    assert!(timeout(LONG, theirs.write().into_future()).await.unwrap().is_ok());
}

/// Writers are granted in the order in which they came; readers that wait meanwhile are granted
/// together, after one writer.
pub async fn queued_writers_are_granted_in_order_and_readers_together(
    one: &Client,
    other: &Client,
) {
    let held = one.rwlock("turn").unwrap().write().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for (number, locks) in (0..).zip([one, other, one, other]) {
        let (lock, tell) = (locks.rwlock("turn").unwrap(), tell.clone());
        tokio::spawn(async move {
            let writing = lock.write().await.unwrap();
            tell.send((number, writing.fencing_token().get())).unwrap();
            let _ = writing.release().await.unwrap();
        });
        wait_for_waiters(&one.rwlock("turn").unwrap(), number + 1).await.unwrap();
    }
    let first = held.fencing_token().get();
    let _ = held.release().await.unwrap();
    let mut last = first;
    for expected in 0..4 {
        let (number, token) = timeout(LONG, told.recv()).await.unwrap().unwrap();
        assert_eq!(number, expected);
        assert!(token > last);
        last = token;
    }

    let held = one.rwlock("turn").unwrap().write().await.unwrap();
    let readers = [one, other, other].map(|locks| spawn_read(&locks.rwlock("turn").unwrap()));
    wait_for_waiters(&one.rwlock("turn").unwrap(), 3).await.unwrap();
    let _ = held.release().await.unwrap();
    let reading = timeout(LONG, join_all(readers)).await.unwrap();
    assert!(reading.iter().flatten().flatten().filter(|guard| guard.is_held()).count() == 3);
}

pub async fn writers_and_readers_take_turns(one: &Client, other: &Client) {
    let (lock, elsewhere) = (one.rwlock("phases").unwrap(), other.rwlock("phases").unwrap());
    let held = lock.read().await.unwrap();
    let first = spawn_write(&elsewhere);
    wait_for_waiters(&lock, 1).await.unwrap();
    assert!(lock.try_read().await.unwrap().is_none(), "a reader passed a writer that waits");
    let reader = spawn_read(&lock);
    wait_for_waiters(&lock, 2).await.unwrap();
    let second = spawn_write(&elsewhere);
    wait_for_waiters(&lock, 3).await.unwrap();
    let _ = held.release().await.unwrap();

    let first = timeout(LONG, first).await.unwrap().unwrap().unwrap();
    let token = first.fencing_token();
    let _ = first.release().await.unwrap();
    let reader = timeout(LONG, reader).await.unwrap().unwrap().unwrap();
    assert!(reader.fencing_token() > token);
    let token = reader.fencing_token();
    let _ = reader.release().await.unwrap();
    let second = timeout(LONG, second).await.unwrap().unwrap().unwrap();
    assert!(second.fencing_token() > token, "a writer passed a reader that waits");
}

pub async fn write_with_timeout_while_held_returns_timed_out(one: &Client, other: &Client) {
    let held = one.rwlock("vain").unwrap().read().await.unwrap();
    let lock = other.rwlock("vain").unwrap();
    let error = lock.write().timeout(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.lock(), Some("vain"));
    assert_eq!(error.slot(), Some(lock.slot()));
    // It has left the queue, so it does not block readers.
    let reading = timeout(LONG, lock.read()).await.unwrap().unwrap();
    drop((held, reading));
}

pub async fn dropped_acquire_leaves_no_lock_and_no_waiter(one: &Client, other: &Client) {
    let lock = one.rwlock("interest").unwrap();
    for pause in [0, 1, 3, 10, 100] {
        let held = other.rwlock("interest").unwrap().read().await.unwrap();
        let waited = timeout(Duration::from_millis(pause), lock.write()).await;
        assert!(waited.is_err(), "others hold it");
        let beside = timeout(LONG, other.rwlock("interest").unwrap().read()).await.unwrap();
        let _ = held.release().await.unwrap();
        let _ = beside.unwrap().release().await.unwrap();
        let (cancelled, tried) =
            (timeout(Duration::from_millis(pause), lock.write()), lock.clone());
        drop(cancelled.await);
        let taken = timeout(LONG, tried.write()).await.unwrap().unwrap();
        let _ = taken.release().await.unwrap();
    }
}

pub async fn a_dropped_guard_is_released(one: &Client, other: &Client) {
    let (mine, theirs) = (one.rwlock("dropped").unwrap(), other.rwlock("dropped").unwrap());
    drop(mine.write().lease(LONG * 10).await.unwrap());
    drop(timeout(LONG, theirs.write().lease(LONG * 10)).await.unwrap().unwrap());
    drop(timeout(LONG, mine.read().lease(LONG * 10)).await.unwrap().unwrap());
    drop(timeout(LONG, theirs.write()).await.unwrap().unwrap());
}

pub async fn release_tells_the_truth(one: &Client, other: &Client) {
    let (mine, theirs) = (one.rwlock("truth").unwrap(), other.rwlock("truth").unwrap());
    let short = mine.write().lease(Duration::from_millis(200)).renewal(RenewalPolicy::Manual);
    let short = short.await.unwrap();
    assert!(short.renew().await.is_ok());
    timeout(LONG, short.ended()).await.unwrap();
    assert_eq!(short.state(), LeaseState::Lost);
    assert_eq!(short.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let next = timeout(LONG, theirs.write()).await.unwrap().unwrap();
    assert_eq!(short.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    assert_eq!(
        next.release().await.unwrap(),
        ReleaseOutcome::Released,
        "a stranger's release changed nothing"
    );
}

pub async fn leases_are_renewed_for_as_long_as_they_are_held(one: &Client, other: &Client) {
    let lease = Duration::from_secs(6);
    let names: Vec<String> = (0..100).map(|number| format!("renewed{number}")).collect();
    let held = join_all(names.iter().map(async |name| {
        let lock = one.rwlock(name).unwrap();
        lock.write().lease(lease).await.unwrap()
    }))
    .await;
    let shared = one.rwlock("renewed together").unwrap();
    let readers = (0..100).map(async |_| shared.read().lease(lease).await.unwrap());
    let readers = join_all(readers).await;
    try_join_all(held.iter().map(|guard| wait_renewed(guard, 4))).await.unwrap();
    try_join_all(readers.iter().map(|guard| wait_renewed(guard, 4))).await.unwrap();
    for reader in readers {
        assert_eq!(reader.release().await.unwrap(), ReleaseOutcome::Released);
    }
    for name in &names {
        assert!(other.rwlock(name).unwrap().try_read().await.unwrap().is_none(), "{name}");
    }
    drop(held);
}

pub async fn tokens_rise(one: &Client, other: &Client) {
    let mut last = None;
    for number in 0..20 {
        let lock = [one, other][number % 2].rwlock("tokens").unwrap();
        let token = match number % 3 {
            0 => lock.read().await.unwrap().fencing_token(),
            _ => lock.write().await.unwrap().fencing_token(),
        };
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
    }
}

pub async fn a_held_lock_is_handed_on(one: &Client, other: &Client) {
    const NAME: &str = "{größer} handed on";
    for write in [false, true] {
        let lock = one.rwlock(NAME).unwrap();
        let (lease, ticket) = match write {
            true => {
                let guard = lock.write().await.unwrap();
                (guard.clone(), guard.into_transfer().await.unwrap())
            }
            false => {
                let guard = lock.read().await.unwrap();
                (guard.clone(), guard.into_transfer().await.unwrap())
            }
        };
        assert!(!lease.is_held(), "a watcher learns that it must stop");
        let parsed: LeaseTransfer = ticket.to_string().parse().unwrap();
        assert_eq!((parsed.name(), parsed.mode() == LockMode::Write), (NAME, write));
        let guard = other.accept_transfer(&parsed).lease(Duration::from_secs(3)).await.unwrap();
        assert_eq!(guard.fencing_token(), ticket.fencing_token());
        assert!(guard.id().starts_with(&other.client_id()));
        let again = one.accept_transfer(&ticket).await.unwrap_err();
        assert_eq!((again.kind(), again.lock()), (ErrorKind::LeaseLost, Some(NAME)));
        wait_renewed(&guard, 2).await.unwrap();
        assert!(lock.try_write().await.unwrap().is_none());
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(other.accept_transfer(&ticket).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    }
}

/// Never beyond the limit; first in, first out, as soon as enough permits are released; and only to
/// callers that know the limit.
pub async fn permits_are_shared_up_to_the_limit(one: &Client, other: &Client) {
    let mine = one.semaphore("permits", 5).unwrap();
    let theirs = other.semaphore("permits", 5).unwrap();
    let mut held = mine.acquire(3).lease(Duration::from_secs(6)).await.unwrap();
    let beside = theirs.try_acquire(2).await.unwrap().expect("two are left");
    let token = held.fencing_token();
    assert!(beside.fencing_token() > token && beside.mode() == Some(LockMode::Read));
    assert!(mine.try_acquire(1).await.unwrap().is_none(), "none is left");
    let four = other.semaphore("permits", 4).unwrap();
    for error in [four.acquire(1).await.unwrap_err(), four.try_acquire(1).await.unwrap_err()] {
        assert_eq!((error.kind(), error.semaphore_limit()), (ErrorKind::LimitMismatch, Some(5)));
    }

    let waiting = |semaphore: &Semaphore, permits: u32| {
        let semaphore = semaphore.clone();
        tokio::spawn(async move { semaphore.acquire(permits).await.unwrap() })
    };
    let many = waiting(&theirs, 4);
    until_requests(&mine, 1).await;
    let few = waiting(&mine, 1);
    until_requests(&mine, 2).await;
    held.release_permits(2).await.unwrap();
    assert_eq!((held.num_permits(), held.fencing_token()), (1, token));
    let status = mine.status().await.unwrap();
    assert_eq!((status.in_use, status.waiter_count), (3, 2), "two are left, and four come first");
    assert!(mine.try_acquire(1).await.unwrap().is_none(), "others wait for it");
    assert_eq!(beside.release().await.unwrap(), ReleaseOutcome::Released);
    let many = timeout(LONG, many).await.unwrap().unwrap();
    assert!(!few.is_finished(), "the five are in use again");
    wait_renewed(&held, 2).await.unwrap();
    assert_eq!(mine.status().await.unwrap().in_use, 5, "a renewal takes none");
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    let few = timeout(LONG, few).await.unwrap().unwrap();
    assert!(few.fencing_token() > many.fencing_token());
    assert_eq!((many.num_permits(), few.num_permits()), (4, 1));
    drop((many, few));
    let all = timeout(LONG, theirs.acquire(5).into_future()).await.unwrap().unwrap();
    assert_eq!(all.release().await.unwrap(), ReleaseOutcome::Released);
}

/// Waits until that many requests wait for permits.
async fn until_requests(semaphore: &Semaphore, count: u64) {
    let until = tokio::time::Instant::now() + LONG;
    while semaphore.status().await.unwrap().waiter_count != count {
        assert!(tokio::time::Instant::now() < until, "{count} do not wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub async fn the_lead_is_handed_on_and_watched(one: &Client, other: &Client) {
    let (mine, theirs) = (one.election("elected").unwrap(), other.election("elected").unwrap());
    let mut watch = theirs.observe().poll_interval(Duration::from_millis(10));
    assert!(timeout(LONG, watch.changed()).await.unwrap().unwrap().is_none());
    let first = mine.campaign().await.unwrap();
    let told = timeout(LONG, watch.changed()).await.unwrap().unwrap().unwrap();
    assert_eq!((told.term, told.id.as_str()), (first.term(), first.id()));
    assert_eq!(told.client_id(), one.client_id());
    assert!(theirs.try_campaign().await.unwrap().is_none());
    let next = tokio::spawn(async move { theirs.campaign().await });
    wait_for_waiters(mine.lock(), 1).await.unwrap();
    assert_eq!(first.resign().await.unwrap(), ReleaseOutcome::Released);
    let next = timeout(LONG, next).await.unwrap().unwrap().unwrap();
    assert!(next.is_leading() && next.term() > told.term);
    let told = timeout(LONG, watch.changed()).await.unwrap().unwrap().unwrap();
    assert_eq!((told.term, told.client_id()), (next.term(), other.client_id().as_str()));
    assert_eq!(
        next.run_while_leader(async |lease| lease.fencing_token()).await.unwrap(),
        Some(told.term)
    );
    assert!(timeout(LONG, watch.changed()).await.unwrap().unwrap().is_none());
}

pub async fn write_of_many_tasks_excludes_each_other(one: &Client, other: &Client) {
    let inside = Arc::new(ExclusionCheck::default());
    let tasks = (0..12).map(|number| {
        let (lock, inside) = ([one, other][number % 2].rwlock("crowd").unwrap(), inside.clone());
        tokio::spawn(async move {
            for turn in 0..8 {
                let taken = timeout(LONG, inside.takes(&lock, (number + turn) % 3 == 0)).await;
                assert_eq!(taken.unwrap().unwrap(), ReleaseOutcome::Released);
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
}

pub async fn shutdown_gives_everything_back(one: &Client, other: &Client) {
    let names: Vec<String> = (0..20).map(|number| format!("shut{number}")).collect();
    let held = join_all(
        names
            .iter()
            .map(async |name| one.rwlock(name).unwrap().write().lease(LONG * 10).await.unwrap()),
    );
    let held = held.await;
    assert!(one.shutdown(LONG).await.is_empty());
    for guard in held {
        assert_eq!(guard.state(), LeaseState::Lost);
        timeout(LONG, guard.ended()).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    }
    for name in &names {
        assert!(other.rwlock(name).unwrap().try_write().await.unwrap().is_some(), "{name}");
        let error = one.rwlock(name).unwrap().read().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
}

pub async fn fenced_value_refuses_the_stale_writer(one: &Client, other: &Client) {
    let account = one.rwlock("account:{42}").unwrap();
    let balance = account.fenced_value("balance:{42}").unwrap();
    let theirs = other.rwlock("account:{42}").unwrap();
    assert_eq!(balance.status().await.unwrap(), None);

    let slow = account.write().lease(Duration::from_millis(300)).renewal(RenewalPolicy::Manual);
    let slow = slow.await.unwrap();
    let stale = balance.writer(&slow).unwrap();
    stale.set("100").await.unwrap();
    slow.ended().await; // its process was stopped

    let held = theirs.write().await.unwrap();
    let fresh = theirs.fenced_value("balance:{42}").unwrap().writer(&held).unwrap();
    assert_eq!(fresh.get().await.unwrap(), Some(b"100".to_vec()));
    for refused in [
        stale.set("110").await.unwrap_err(),
        stale.replace("110").await.unwrap_err(),
        stale.delete().await.unwrap_err(),
        stale.get().await.unwrap_err(),
    ] {
        let found = (refused.kind(), refused.stored_token(), refused.lock());
        let expected = (ErrorKind::StaleToken, Some(fresh.fencing_token()), Some("account:{42}"));
        assert_eq!(found, expected, "{refused}");
    }
    fresh.replace(b"90\0\xff").await.unwrap();
    assert_eq!(balance.get().await.unwrap(), Some(b"90\0\xff".to_vec()));
    fresh.delete().await.unwrap();
    assert_eq!(balance.get().await.unwrap(), None);
    assert_eq!(stale.set("110").await.unwrap_err().kind(), ErrorKind::StaleToken);
    let status = balance.status().await.unwrap().expect("its token is kept");
    assert_eq!((status.value, status.fencing_token), (None, held.fencing_token()));
    assert_eq!(fresh.replace("80").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(held.release().await.unwrap().was_held());
}

pub async fn fenced_writer_of_an_accepted_transfer_takes_over(one: &Client, other: &Client) {
    let lock = one.rwlock("passed:{7}").unwrap();
    let guard = lock.write().await.unwrap();
    let before = lock.fenced_value("state:{7}").unwrap().writer(&guard).unwrap();
    let unused = lock.fenced_value("state:{7}").unwrap().writer(&guard).unwrap();
    before.set("one").await.unwrap();
    let transfer = guard.into_transfer().await.unwrap();
    before.set("one, in the meantime").await.unwrap();

    let accepted = other.accept_transfer(&transfer).await.unwrap();
    assert_eq!(accepted.fencing_token(), before.fencing_token());
    let value = other.rwlock("passed:{7}").unwrap().fenced_value("state:{7}").unwrap();
    let after = value.writer(&accepted).unwrap();
    after.set("two").await.unwrap();
    for writer in [before, unused] {
        let refused = writer.set("one, again").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StaleToken, "{refused}");
        assert_eq!(refused.stored_token(), Some(after.fencing_token()));
    }
    after.set("three").await.unwrap();
    assert_eq!(value.get().await.unwrap(), Some(b"three".to_vec()));
    assert!(accepted.release().await.unwrap().was_held());
}

/// Whoever asks, also the holder itself.
pub async fn status_names_the_client_of_the_holder(one: &Client, other: &Client) {
    let lock = one.rwlock("named").unwrap();
    let held = lock.write().await.unwrap();
    for client in [one, other] {
        let lock = client.rwlock("named").unwrap();
        let limit = PollLimit::new("the record of the client");
        let info = loop {
            let status = lock.status().await.unwrap();
            match status.writer.expect("a holder").client {
                Some(info) => break info,
                None => limit.pause("no record").await.unwrap(),
            }
        };
        let pid = std::process::id();
        assert_eq!(info.pid, pid);
        assert!(info.label.ends_with(&format!(":{pid}")), "{info:?}");
        assert!(!info.host.is_empty() && info.version.starts_with("rwlease/"), "{info:?}");
    }
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
}
