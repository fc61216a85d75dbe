//! `rwlease doctor`: a fault of each kind, and none.

use crate::support::{Cluster, Result, ServerSettings, Shape, Single};
use crate::tool::Tool;

#[tokio::test]
async fn a_cluster_as_it_should_be() -> Result {
    let cluster = Cluster::start_with(Shape::of(2, 1).line("appendonly yes")).await?;
    let ran = Tool::new([cluster.node(3).url()]).run(&["doctor"]).await?;
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.out.ends_with("0 wrong, 0 warnings\n"), "{}", ran.out);
    for line in [
        "a cluster of 2 masters and 2 replicas",
        "a lock was taken, handed over and given back",
        "noeviction",
        "1 replica in step",
        "the nodes' clocks are at most",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    assert!(!ran.out.contains('\x1b'), "colour is for terminals");
    Ok(())
}

#[tokio::test]
async fn one_that_loses_locks() -> Result {
    let shape = Shape::of(2, 0)
        .line("maxmemory 100mb")
        .line("maxmemory-policy allkeys-lru");
    let cluster = Cluster::start_with(Shape {
        node_timeout: 15_000,
        ..shape
    })
    .await?;
    let tool = Tool::new(cluster.urls());
    let ran = tool.run(&["doctor"]).await?;
    assert_eq!(ran.status, Some(1), "{ran:?}");
    for line in [
        "the memory policy allkeys-lru evicts locks",
        "has no replica",
        "a failover takes up to 37s",
        "keeps no log",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }

    for number in 0..2 {
        cluster
            .node(number)
            .say::<()>("CONFIG SET maxmemory-policy noeviction")
            .await?;
    }
    assert_eq!(tool.run(&["doctor"]).await?.status, Some(0));

    let owner = cluster.owner(7).await?;
    cluster.node(owner).say::<()>("CLUSTER DELSLOTS 7").await?;
    let ran = tool.run(&["doctor", "--redis", &cluster.node(owner).url()]).await?;
    assert_eq!(ran.status, Some(1));
    assert!(ran.out.contains("nobody serves 1 slots"), "{}", ran.out);
    assert!(
        ran.out.contains("cluster in state") || ran.out.contains("in state `fail`"),
        "{}",
        ran.out
    );
    Ok(())
}

#[tokio::test]
async fn a_master_that_is_away() -> Result {
    let cluster = Cluster::start_with(Shape::of(2, 0)).await?;
    let tool = Tool::new([cluster.node(0).url()]);
    cluster.node(1).kill()?;
    let ran = tool.run(&["doctor"]).await?;
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let away = cluster.node(1).address().to_string();
    let told = |line: &str| line.starts_with("wrong") && line.contains(&away) && line.contains("cannot be asked");
    assert!(ran.out.lines().any(told), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn a_user_that_lacks_rights() -> Result {
    // Of what docs/operating.md lists, all but `+hdel` for one, and `+info`, `+wait`, `+ssubscribe` for the other.
    let poor = "user poor on >p resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time +info \
                +cluster|slots +ssubscribe +sunsubscribe +wait +exists +hget +hmget +hset +pexpireat +pttl +spublish";
    let mute = "user mute on >p resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time \
                +cluster|slots +exists +hget +hmget +hset +hdel +pexpireat +pttl +spublish";
    let server = Single::start_with(ServerSettings::default().line(poor).line(mute)).await?;
    let as_user = |user| Tool::new([server.url().replace("redis://", &format!("redis://{user}:p@"))]);
    let ran = as_user("poor").run(&["doctor"]).await?;
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let told = |line: &str| line.starts_with("wrong") && line.contains("lacks");
    assert!(ran.out.lines().any(told), "{}", ran.out);
    let ran = as_user("mute").run(&["doctor"]).await?;
    assert_eq!(ran.status, Some(0), "locks work, slower: {ran:?}");
    for right in ["+info", "memory", "+wait", "+ssubscribe", "+scan"] {
        assert!(ran.out.contains(right), "{right}: {}", ran.out);
    }
    Ok(())
}
