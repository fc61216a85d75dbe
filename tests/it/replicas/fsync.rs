//! `fsync`: a grant and its renewals are on disk, or do not count.

use std::time::Duration;

use rwlease::{Client, ErrorKind, Fsync, LeaseState, Redlock, RwLock};
use testkit::{ConnectBuilder, ServerSettings, StandaloneServer, connect, wait_renewed};

use super::LEASE;
use crate::fixture::{Record, eventually, in_task, soon};

/// Settings of a server that writes its file to disk `always`, `everysec`, or never by itself
/// (`no`).
fn on_disk(appendfsync: &str) -> ServerSettings {
    ServerSettings::default().line("appendonly yes").line(format!("appendfsync {appendfsync}"))
}

async fn set(server: &StandaloneServer, setting: &str) {
    server.run_words::<()>(&format!("CONFIG SET {setting}")).await.unwrap();
}

/// A server without `WAITAOF` refuses the request, and nothing is locked.
async fn must_be_refused(server: &StandaloneServer, lock: &RwLock, advice: &str) {
    let error = lock.write().fsync(Fsync::Master).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    assert!(error.to_string().contains(advice), "{error}");
    eventually("it is released", async || Record::of(server, lock.name()).await.is_free()).await;
}

/// A server with these settings, and a lock on it. `None` if the server has no `WAITAOF`, and
/// refuses.
async fn stage(settings: ServerSettings) -> Option<(StandaloneServer, RwLock)> {
    let server = StandaloneServer::start_with(settings).await.unwrap();
    let lock = connect(&[server.url()]).await.unwrap().rwlock("a").unwrap();
    if server.version().has_waitaof() {
        return Some((server, lock));
    }
    must_be_refused(&server, &lock, "needs Redis 7.2 or later, or Valkey").await;
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn write_with_fsync_counts_only_when_the_master_has_it_on_disk() {
    let Some((server, lock)) = stage(on_disk("no")).await else { return };
    let error = lock.write().fsync(Fsync::Master).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("did not write its append-only file to disk"), "{error}");
    eventually("it is released", async || Record::of(&server, "a").await.is_free()).await;
    set(&server, "appendfsync always").await;
    let held = lock.write().fsync(Fsync::Master).await.unwrap();
    held.renew().await.unwrap();
    assert!(lock.try_read().fsync(Fsync::All).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_with_fsync_counts_only_when_it_is_on_disk() {
    let Some((server, lock)) = stage(on_disk("always")).await else { return };
    let held = lock.write().lease(2 * LEASE).fsync(Fsync::Master).await.unwrap();
    wait_renewed(&held, 4).await.unwrap();
    set(&server, "appendfsync no").await;
    eventually("renewals fail", async || held.state() == LeaseState::Uncertain).await;
    soon("the loss", held.ended()).await;
}

/// The server writes its file to disk once a second, which is longer than the limit for calls.
#[tokio::test(flavor = "multi_thread")]
async fn calls_with_fsync_everysec_may_take_longer_than_the_call_timeout() {
    let Some((server, _)) = stage(on_disk("everysec")).await else { return };
    let settings = Client::builder().call_timeout(Duration::from_millis(100)).fsync(Fsync::Master);
    let lock = settings.connect_to(&[server.url()]).await.unwrap().rwlock("{b}").unwrap();
    let held = lock.write().await.unwrap();
    let writer = lock.fenced_value("{b}").unwrap().writer(&held).unwrap();
    for _ in 0..3 {
        held.renew().await.unwrap();
        writer.set("1").await.unwrap();
    }
}

/// As above, for requests that do not wait in a queue.
#[tokio::test(flavor = "multi_thread")]
async fn tries_with_fsync_everysec_may_take_longer_than_the_call_timeout() {
    let Some((server, _)) = stage(on_disk("everysec")).await else { return };
    let settings = Client::builder().call_timeout(Duration::from_millis(100)).fsync(Fsync::Master);
    let locks = settings.connect_to(&[server.url()]).await.unwrap();
    let lock = |name| locks.rwlock(name).unwrap();
    let _tried = lock("try").try_write().await.unwrap().expect("it is free");
    let _mutex = locks.set_nx_mutex("m").unwrap().lock().await.unwrap();
    let _all = locks.multi_lock().write("one").write("two").await.unwrap();
    let _each = locks.multi_lock().write("three").try_acquire().await.unwrap().expect("free");
    let upgraded = lock("upgrade").read().await.unwrap().try_upgrade().await.unwrap().upgraded();
    let transfer = upgraded.expect("nobody else reads").into_transfer().await.unwrap();
    let _accepted = locks.accept_transfer(&transfer).await.unwrap();
    let cached = lock("cached").cached().unwrap();
    let _cached = cached.try_write().await.unwrap().expect("it is free");
}

/// The second try comes less than a second after the first one, so that its members wait.
#[tokio::test(flavor = "multi_thread")]
async fn quorum_with_fsync_everysec_is_granted_within_the_default_member_timeout() {
    let mut members = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..3 {
        let Some((server, _)) = stage(on_disk("everysec")).await else { return };
        let settings = Client::builder().fsync(Fsync::Master);
        members.push(settings.connect_to(&[server.url()]).await.unwrap());
        servers.push(server);
    }
    let quorum = Redlock::new(members).unwrap();
    for name in ["a", "b", "c"] {
        assert!(quorum.write(name).try_acquire().await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fenced_write_with_fsync_counts_only_when_the_master_has_it_on_disk() {
    let Some((server, _)) = stage(on_disk("no")).await else { return };
    let lock = connect(&[server.url()]).await.unwrap().rwlock("{a}").unwrap();
    let held = lock.write().await.unwrap();
    let value = lock.fenced_value("{a}").unwrap();
    let on_disk = value.clone().fsync(Fsync::Master).writer(&held).unwrap();
    let error = on_disk.set("1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("did not write its append-only file to disk"), "{error}");
    set(&server, "appendfsync always").await;
    on_disk.set("1").await.unwrap();
    let invalid = value.fsync(Fsync::Replicas).writer(&held).unwrap().set("2").await.unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::InvalidInput, "{invalid}");
}

/// The grant is pushed to the waiter, and its claim is confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn pushed_grant_with_fsync_counts_only_when_it_is_on_disk() {
    let Some((server, lock)) = stage(on_disk("always")).await else { return };
    let held = lock.write().await.unwrap();
    let waiting = in_task(&lock, |lock| async move { lock.write().fsync(Fsync::Master).await });
    eventually("it waits", async || Record::of(&server, "a").await.has_waiters()).await;
    set(&server, "appendfsync no").await;
    let _ = held.release().await.unwrap();
    let error = soon("the refusal", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_with_fsync_of_replicas_counts_their_disks() {
    let Some((server, lock)) = stage(ServerSettings::default()).await else { return };
    let replica = server.start_replica().await.unwrap();
    let write = async || lock.write().min_replicas(1).fsync(Fsync::Replicas).await;
    super::must_be_unconfirmed(write().await);
    set(&replica, "appendonly yes").await;
    let on_disk = async || write().await.is_ok();
    eventually("the replica has it on disk", on_disk).await;
    let all = lock.write().min_replicas(1).fsync(Fsync::All).await.unwrap_err();
    assert_eq!(all.kind(), ErrorKind::Rejected, "the master keeps no file: {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fsync_without_an_append_only_file_is_rejected() {
    let Some((server, lock)) = stage(ServerSettings::default()).await else { return };
    must_be_refused(&server, &lock, "set `appendonly yes` there").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fsync_without_the_right_is_rejected() {
    let rights = "user default on nopass ~* &* +@all -waitaof";
    let settings = ServerSettings::default().line("appendonly yes");
    let Some((server, lock)) = stage(settings).await else { return };
    server.run_words::<()>(&rights.replacen("user", "ACL SETUSER", 1)).await.unwrap();
    must_be_refused(&server, &lock, "lacks a right").await;
}

/// The rights that `docs/operating.md` lists, and `+waitaof`.
#[tokio::test(flavor = "multi_thread")]
async fn fsync_with_the_least_rights_is_granted() {
    let settings = ServerSettings::default().line("appendonly yes");
    let Some((server, _)) = stage(settings).await else { return };
    let rights = "ACL SETUSER locker on >p resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time +info \
                  +cluster|slots +cluster|myid +cluster|info +ssubscribe +sunsubscribe +wait +waitaof +exists +hget +hmget \
                  +hset +hdel +pexpireat +spublish";
    server.run_words::<()>(rights).await.unwrap();
    let url = server.url().replace("redis://", "redis://locker:p@");
    let lock = connect(&[url]).await.unwrap().rwlock("a").unwrap();
    assert!(lock.write().fsync(Fsync::Master).await.unwrap().is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn fsync_of_the_client_applies_to_all_requests() {
    let Some((server, _)) = stage(on_disk("no")).await else { return };
    let settings = Client::builder().fsync(Fsync::Master);
    let locks = settings.connect_to(&[server.url()]).await.unwrap();
    let lock = locks.rwlock("b").unwrap();
    assert_eq!(lock.write().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let both = locks.multi_lock().write("c").write("d");
    assert_eq!(both.await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(lock.write().fsync(Fsync::None).await.unwrap().is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_with_fsync_is_held_after_a_restart_of_the_master() {
    let Some((server, lock)) = stage(on_disk("always")).await else { return };
    let held = lock.write().fsync(Fsync::Master).await.unwrap();
    server.kill().unwrap();
    server.restart().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    held.renew().await.unwrap();
}

#[cfg(feature = "embedded")]
#[tokio::test]
async fn fsync_on_embedded_servers_is_rejected() {
    let locks = Client::builder().fsync(Fsync::Master);
    let engine = rwlease::embedded::EmbeddedCluster::builder().build();
    let locks = locks.connect_embedded(&engine).await.unwrap();
    let error = locks.rwlock("a").unwrap().write().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
}

#[cfg(feature = "embedded")]
#[tokio::test]
async fn fsync_of_replicas_without_min_replicas_is_invalid_input() {
    let locks = Client::embedded().await.unwrap();
    let lock = locks.rwlock("a").unwrap();
    let error = lock.write().fsync(Fsync::Replicas).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let settings = Client::builder().fsync(Fsync::Replicas);
    let engine = rwlease::embedded::EmbeddedCluster::builder().build();
    let error = settings.connect_embedded(&engine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
