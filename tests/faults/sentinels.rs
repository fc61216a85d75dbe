//! A server that sentinels watch: how a client finds it, and what a failover keeps.

use std::time::Duration;

use rwlease::{Client, Credentials, ErrorKind, ReleaseOutcome, SentinelConfig};
use tokio::time::timeout;

use conformance::LONG;
use testkit::{
    Backend, Error, PollLimit, Result, SentinelDeployment, Server, ServerSettings,
    wait_for_waiters, wait_renewed,
};

/// Longer than a failover after a death, which may take several elections.
const LEASE: Duration = Duration::from_secs(90);

/// The chosen backend, if it supports sentinels.
fn backend() -> Backend {
    match Backend::chosen() {
        chosen @ (Backend::Native | Backend::Redis) => chosen,
        _ if cfg!(feature = "native") => Backend::Native,
        _ => Backend::Redis,
    }
}

async fn connect(url: &str) -> rwlease::Result<Client> {
    backend().connect(Client::builder().call_timeout(LONG), &[url]).await
}

/// How the master fails, or the order to fail over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Order,
    Kill,
    Pause,
}

/// Leases that a replica has confirmed survive the failover. No other client is granted the lock,
/// tokens rise, and the new master serves the waiter.
async fn confirmed_leases_survive(fault: Fault) -> Result {
    let sentinels = SentinelDeployment::start().await?;
    let (one, other) = (connect(&sentinels.url()).await?, connect(&sentinels.url()).await?);
    let (lock, others) = (one.rwlock("kept")?, other.rwlock("kept")?);
    let held = lock.write().min_replicas(1).lease(LEASE).await?;
    let waiting = tokio::spawn(async move { others.write().min_replicas(1).lease(LEASE).await });
    wait_for_waiters(&lock, 1).await?;

    let old = sentinels.master().await?;
    match fault {
        Fault::Order => drop(sentinels.fail_over().await?),
        Fault::Kill => sentinels.server(old).kill()?,
        Fault::Pause => sentinels.server(old).freeze()?,
    }
    let new = sentinels.new_master(old).await?;
    assert!(other.rwlock("kept")?.try_read().await?.is_none(), "{fault:?}");
    assert!(held.is_held(), "{fault:?}");
    assert!(!waiting.is_finished(), "{fault:?}");

    // The old master returns as a master.
    match fault {
        Fault::Order => {}
        Fault::Kill => sentinels.server(old).restart().await?,
        Fault::Pause => sentinels.server(old).thaw()?,
    }
    assert!(connect(&sentinels.url()).await?.rwlock("kept")?.try_read().await?.is_none());
    sentinels.agree().await?;
    assert_eq!(sentinels.master().await?, new, "{fault:?}");
    wait_renewed(&held, 1).await?;
    let token = held.fencing_token().get();
    assert_eq!(held.release().await?, ReleaseOutcome::Released, "{fault:?}");
    let next = timeout(LONG, waiting).await???;
    assert!(next.fencing_token().get() > token, "{fault:?}");
    assert_eq!(next.release().await?, ReleaseOutcome::Released, "{fault:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_lease_survives_an_ordered_failover() -> Result {
    confirmed_leases_survive(Fault::Order).await
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_lease_survives_a_killed_master() -> Result {
    confirmed_leases_survive(Fault::Kill).await
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_lease_survives_a_paused_master() -> Result {
    confirmed_leases_survive(Fault::Pause).await
}

/// The client makes no calls meanwhile, so only the sentinels can have told it of the failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_master_that_goes_on_grants_nothing_to_a_client_that_was_idle() -> Result {
    let sentinels = SentinelDeployment::start().await?;
    let (idle, other) = (connect(&sentinels.url()).await?, connect(&sentinels.url()).await?);
    assert_eq!(idle.rwlock("first")?.write().await?.release().await?, ReleaseOutcome::Released);
    let old = sentinels.master().await?;
    sentinels.server(old).freeze()?;
    let new = sentinels.new_master(old).await?;
    let held = other.rwlock("second")?.write().await?;
    // The sentinels demote it some seconds later.
    sentinels.server(old).thaw()?;
    assert!(idle.rwlock("second")?.try_write().await?.is_none());
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    let third = idle.rwlock("third")?.write().await?;
    let key: bool = sentinels.server(new).run_words("EXISTS rwlease:third").await?;
    assert!(key, "it is at the new master");
    assert_eq!(third.release().await?, ReleaseOutcome::Released);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel_client_with_one_sentinel_left_follows_a_failover() -> Result {
    let sentinels = SentinelDeployment::start().await?;
    sentinels.sentinel(0).kill()?;
    let locks = connect(&sentinels.url()).await?;
    assert_eq!(locks.rwlock("a")?.write().await?.release().await?, ReleaseOutcome::Released);
    // The client learns of the other sentinels from the one in its URL.
    let locks = connect(&sentinels.url_of(&sentinels.sentinels()[1..2], "mymaster")).await?;
    let held = locks.rwlock("b")?.write().lease(LEASE).await?;
    let old = sentinels.master().await?;
    let wait_limit = PollLimit::new("the replica to have the lock");
    wait_limit.until(|| sentinels.server(1 - old).run_words("EXISTS rwlease:b")).await?;
    sentinels.server(old).kill()?;
    sentinels.new_master(old).await?;
    sentinels.sentinel(1).kill()?;
    wait_renewed(&held, 2).await?;
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    Ok(())
}

/// The least rights are those in `docs/operating.md`.
#[tokio::test(flavor = "multi_thread")]
async fn the_least_rights_at_sentinels_are_enough() -> Result {
    let rights = rights()?;
    let sentinels = SentinelDeployment::start().await?;
    for sentinel in sentinels.sentinels() {
        sentinel.run_words::<()>(&format!("ACL SETUSER {rights}")).await?;
    }
    let sentinel = sentinels.url().parse::<SentinelConfig>()?;
    let settings =
        Client::builder().sentinel(sentinel.credentials(Credentials::new("locker", "PASSWORD")));
    let locks = backend().connect::<&str>(settings, &[]).await?;
    let wait_limit = PollLimit::new("the client to be subscribed");
    let is_subscribed = || async {
        let mut subscribers = 0;
        for sentinel in sentinels.sentinels() {
            let clients: String = sentinel.run_words("CLIENT LIST").await?;
            subscribers += clients.lines().filter(|line| line.contains(" sub=1 ")).count();
        }
        Ok(subscribers == 2)
    };
    wait_limit.until(is_subscribed).await?;
    for sentinel in sentinels.sentinels() {
        // The right to set the library's name may be missing.
        let refused: redis::Value = sentinel.run_words("ACL LOG").await?;
        let refused = format!("{refused:?}");
        let is_needed = |what| refused.contains(what);
        assert!(!is_needed("sentinel|") && !is_needed("cmd=subscribe"), "{refused}");
    }
    assert_eq!(locks.rwlock("a")?.write().await?.release().await?, ReleaseOutcome::Released);
    Ok(())
}

/// The rights of the user in the documentation, in one line.
fn rights() -> Result<String> {
    let page = include_str!("../../docs/operating.md");
    let start = page.find("user locker on >PASSWORD resetchannels -@all &+switch-master");
    let block = start.and_then(|start| page[start..].split("```").next());
    let block = block.ok_or_else(|| testkit::Error::new("no rights at sentinels there"))?;
    let words: Vec<&str> = block.split_whitespace().skip(1).collect();
    Ok(words.join(" "))
}

/// The sentinels name a node of a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn connect_by_sentinels_of_a_cluster_node_is_invalid_and_names_it() -> Result {
    let servers = ServerSettings { cluster: true, ..ServerSettings::default() };
    let node = Server::start(&servers).await?;
    node.run::<()>(redis::cmd("CLUSTER").arg("ADDSLOTS").arg((0..16_384).collect::<Vec<u16>>()))
        .await?;
    let monitor = format!("sentinel monitor mymaster {} {} 1", node.host(), node.port());
    let settings = ServerSettings { sentinel: true, ..ServerSettings::default() }.line(monitor);
    let sentinel = Server::start(&settings).await?;
    let url = format!("redis+sentinel://{}/mymaster", sentinel.address());
    let error = connect(&url).await.err().ok_or_else(|| Error::new("it connected"))?;
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert!(error.to_string().contains(&node.address()), "{error}");
    Ok(())
}
