//! How a client connects, and servers that refuse it.

use std::net::TcpListener;
use std::sync::Arc;

use redis::cmd;
use rwlease::{ErrorKind, Locks, Released};

use super::raw;
use super::{PATIENCE, key, on_cluster};
use crate::support::{Cluster, Error, Result, ServerSettings, StandaloneServer, connect};

#[tokio::test(flavor = "multi_thread")]
async fn any_one_node_that_lives_is_enough() -> Result {
    on_cluster(async |cluster: Arc<Cluster>| {
        let master = cluster.master_of(0).await?;
        let replica = cluster.replicas_of(master).await?[0];
        let mostly_dead = [dead_url()?, cluster.node(replica).url(), dead_url()?];
        for seeds in [&[cluster.node(replica).url()][..], &mostly_dead] {
            let locks = connect(seeds).await?;
            for number in 0..20 {
                let lock = locks.rwlock(format!("seed:{number}"))?;
                let writing = lock.write().await?;
                assert_eq!(writing.release().await?, Released::Released);
            }
            assert!(locks.shutdown(PATIENCE).await.is_empty());
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_that_lives_is_an_error() -> Result {
    let error = refused(connect(&[dead_url()?, dead_url()?]).await)?;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_know_us_is_an_error() -> Result {
    let server = StandaloneServer::start_with(ServerSettings::default().password("right")).await?;
    let wrong = format!("redis://:wrong@{}", server.address());
    let none = format!("redis://{}", server.address());
    for url in [wrong, none] {
        let error = refused(connect(&[&url]).await)?;
        assert_eq!(error.kind(), ErrorKind::Refused, "{url}: {error:?}");
    }
    let locks = connect(&[server.url()]).await?;
    let _ = locks.rwlock("known")?.write().await?.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_will_do() -> Result {
    let server = StandaloneServer::start().await?;
    let locks = connect(&[server.url()]).await?;
    let (lock, other) = (locks.rwlock("{one}lock")?, locks.rwlock("{two}lock")?);
    let (first, second) = (lock.read().await?, lock.read().await?);
    assert!(lock.try_write().await?.is_none());
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { Ok::<_, Error>(lock.write().timeout(PATIENCE).await?) }
    });
    let elsewhere = other.write().await?;
    let last = second.token();
    drop((first, second));
    let writing = waiting.await??;
    assert!(writing.token() > last);
    assert_eq!(writing.release().await?, Released::Released);
    assert_eq!(elsewhere.release().await?, Released::Released);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_key_is_refused_and_left_unchanged() -> Result {
    on_cluster(async |cluster: Arc<Cluster>| {
        for (name, make) in [("text", "SET"), ("list", "RPUSH"), ("hash", "HSET")] {
            let locks = connect(&cluster.urls()).await?;
            let name = format!("foreign:{name}");
            let lock = locks.rwlock(&name)?;
            let node = cluster.node(cluster.master_of(lock.slot().get()).await?);
            let mut command = cmd(make);
            command.arg(key(&name)).arg("theirs");
            if make == "HSET" {
                command.arg("value");
            }
            node.run::<()>(&command).await?;
            let dump = format!("DUMP {}", key(&name));
            let before: Vec<u8> = node.run_words(&dump).await?;

            let errors = [
                lock.write().await.map(drop).err(),
                lock.read().await.map(drop).err(),
                lock.try_write().await.map(drop).err(),
                lock.try_read().await.map(drop).err(),
            ];
            for error in errors {
                assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Foreign), "{name}");
            }
            assert!(locks.shutdown(PATIENCE).await.is_empty());
            assert_eq!(node.run_words::<Vec<u8>>(&dump).await?, before, "{name}");
            assert_eq!(node.run_words::<i64>(&format!("PTTL {}", key(&name))).await?, -1);
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_what_takes_and_nothing_else() -> Result {
    let server = StandaloneServer::start().await?;
    let locks = connect(&[server.url()]).await?;
    let (held, free) = (locks.rwlock("held")?, locks.rwlock("free")?);
    let (first, second) = (held.read().await?, held.read().await?);
    let waiting = tokio::spawn({
        let lock = held.clone();
        async move { Ok::<_, Error>(lock.write().timeout(PATIENCE).await?) }
    });
    wait_for_waiter(&server, "held").await?;

    server.run_words::<()>("CONFIG SET maxmemory 1").await?;
    let errors = [free.write().await.map(drop).err(), free.try_read().await.map(drop).err()];
    for (at, error) in errors.into_iter().enumerate() {
        let error = error.ok_or_else(|| Error::new(format!("{at} was granted")))?;
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    }
    assert!(held.try_read().await?.is_none(), "a refusal needs no memory");
    first.renew().await?;
    assert_eq!(first.release().await?, Released::Released);
    assert_eq!(second.release().await?, Released::Released);
    // The release has granted the waiter its lock, or the waiter waits for memory. It is not
    // refused.
    server.run_words::<()>("CONFIG SET maxmemory 0").await?;
    assert_eq!(waiting.await??.release().await?, Released::Released);
    assert_eq!(free.write().await?.release().await?, Released::Released);
    Ok(())
}

async fn wait_for_waiter(server: &StandaloneServer, name: &str) -> Result {
    let wait_limit = crate::support::PollLimit::new("a waiter");
    loop {
        let fields: raw::Fields = server.run(cmd("HGETALL").arg(key(name))).await?;
        if raw::queue(&fields).len() == 1 {
            return Ok(());
        }
        wait_limit.pause("nobody waits").await?;
    }
}

/// A URL at which nothing listens.
fn dead_url() -> Result<String> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    Ok(format!("redis://127.0.0.1:{port}"))
}

fn refused(outcome: rwlease::Result<Locks>) -> Result<rwlease::Error> {
    outcome.err().ok_or_else(|| Error::new("it connected"))
}
