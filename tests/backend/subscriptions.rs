//! What the subscriptions of all backends must do, on real servers.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use rwlease::testing::PubSubEvent;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::{LONG, address, backends};
use testkit::{ClientKind, Cluster, ClusterConfig, PollLimit, Result, StandaloneServer};

#[tokio::test(flavor = "multi_thread")]
async fn subscription_sends_notice_of_join_message_refusal_and_slot_move() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    if !cluster.version().has_sharded_pubsub() {
        return Ok(());
    }
    let slot = cluster.slot_of("{tag}").await?;
    for (name, backend) in backends() {
        let (from, to) = (cluster.master_of(slot).await?, 1 - cluster.master_of(slot).await?);
        let (here, mut notices) =
            backend.subscribe(&address(cluster.node(from).port()), None).await.unwrap();
        here.subscribe(b"{tag}one", false).await.unwrap();
        here.subscribe(b"{tag}two", false).await.unwrap();
        expect(&mut notices, name, joined("{tag}one")).await;
        expect(&mut notices, name, joined("{tag}two")).await;
        here.subscribe(b"{tag}one", false).await.unwrap();
        expect(&mut notices, name, joined("{tag}one")).await;

        let bytes = [0xff, 0, b' '];
        for (channel, payload) in [("{tag}one", b"text" as &[u8]), ("{tag}two", &bytes)] {
            let mut publish = redis::cmd("SPUBLISH");
            let heard: i64 = cluster.node(from).run(publish.arg(channel).arg(payload)).await?;
            assert_eq!(heard, 1, "{name}");
            expect(&mut notices, name, message(channel, payload)).await;
        }

        let (there, mut answers) =
            backend.subscribe(&address(cluster.node(to).port()), None).await.unwrap();
        there.subscribe(b"{tag}one", false).await.unwrap();
        let Some(PubSubEvent::Rejected { channel, error }) = timeout(LONG, answers.recv()).await?
        else {
            panic!("{name}: not refused")
        };
        assert_eq!((&*channel, error.code.as_str()), (b"{tag}one" as &[u8], "MOVED"), "{name}");

        here.unsubscribe(b"{tag}two").await.unwrap();
        expect(&mut notices, name, left("{tag}two")).await;
        let step = cluster.begin_migration(slot, to).await?;
        there.subscribe(b"{tag}one", true).await.unwrap();
        expect(&mut answers, name, joined("{tag}one")).await;
        cluster.finish_migration(step).await?;
        expect(&mut notices, name, left("{tag}one")).await;
        let heard: i64 = cluster.node(to).run_words("SPUBLISH {tag}one moved").await?;
        assert_eq!(heard, 1, "{name}");
        expect(&mut answers, name, message("{tag}one", b"moved")).await;

        cluster.node(to).kill_clients(ClientKind::Subscribed).await?;
        while let Some(notice) = timeout(LONG, answers.recv()).await? {
            assert_eq!(notice, left("{tag}one"), "{name}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribe_after_a_refused_asking_reports_the_refusal_of_the_channel() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    if !cluster.version().has_sharded_pubsub() {
        return Ok(());
    }
    let slot = cluster.slot_of("{tag}").await?;
    let node = cluster.node(1 - cluster.master_of(slot).await?);
    for (name, backend) in backends() {
        node.run_words::<()>("ACL SETUSER default +asking").await?;
        let (there, mut answers) = backend.subscribe(&address(node.port()), None).await.unwrap();
        node.run_words::<()>("ACL SETUSER default -asking").await?;
        there.subscribe(b"{tag}one", true).await.unwrap();
        match timeout(LONG, answers.recv()).await? {
            Some(PubSubEvent::Rejected { error, .. }) => assert_eq!(error.code, "MOVED", "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    Ok(())
}

/// The server answers with MOVED: it has ended that subscription itself.
#[tokio::test(flavor = "multi_thread")]
async fn sunsubscribe_answered_by_moved_refuses_no_other_channel() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    if !cluster.version().has_sharded_pubsub() {
        return Ok(());
    }
    let moves = cluster.slot_of("{tag}").await?;
    for (name, backend) in backends() {
        let (from, to) = (cluster.master_of(moves).await?, 1 - cluster.master_of(moves).await?);
        let mut stays = String::from("stays");
        while cluster.master_of(cluster.slot_of(&stays).await?).await? != from {
            stays.push('s');
        }
        let (here, mut notices) =
            backend.subscribe(&address(cluster.node(from).port()), None).await.unwrap();
        let channels = |tag: &str| (0..100).map(|number| format!("{{{tag}}}{number}")).collect();
        let (old, new): (Vec<String>, Vec<String>) = (channels("tag"), channels(&stays));
        let joins = old.iter().map(|channel| here.subscribe(channel.as_bytes(), false));
        assert!(join_all(joins).await.iter().all(|one| one.is_ok()), "{name}");
        let step = cluster.begin_migration(moves, to).await?;
        cluster.finish_migration(step).await?;
        let both = old.iter().zip(&new).flat_map(|(old, new)| {
            [here.unsubscribe(old.as_bytes()), here.subscribe(new.as_bytes(), false)]
        });
        assert!(join_all(both).await.iter().all(|one| one.is_ok()), "{name}");
        let mut missing: BTreeSet<String> = new.into_iter().collect();
        while !missing.is_empty() {
            match timeout(LONG, notices.recv()).await?.unwrap() {
                PubSubEvent::Subscribed { channel } => {
                    missing.remove(&*String::from_utf8_lossy(&channel));
                }
                PubSubEvent::Rejected { channel, error } if !channel.starts_with(b"{tag}") => {
                    panic!("{name}: {channel:?} is refused: {error:?}")
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// With `fred`, channels are subscribed again, but not those that were left meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn leave_of_many_channels_ends_every_subscription_at_the_server() -> Result {
    let server = StandaloneServer::start().await?;
    if !server.version().has_sharded_pubsub() {
        return Ok(());
    }
    let channels: Vec<String> = (0..5_000).map(|number| format!("channel{number}")).collect();
    for (name, backend) in backends() {
        let (subscription, notices) =
            backend.subscribe(&address(server.port()), None).await.unwrap();
        let joins =
            channels.iter().map(|channel| subscription.subscribe(channel.as_bytes(), false));
        assert!(join_all(joins).await.iter().all(|one| one.is_ok()), "{name}");
        server.reset_stats().await?;
        // While channels are being subscribed again, if this backend does that.
        let limit = PollLimit::new("channels to be asked for again");
        while name == "fred" && server.calls("ssubscribe").await? == 0 {
            limit.pause(name).await?;
        }
        for some in channels.chunks(200) {
            let leaves = some.iter().map(|channel| subscription.unsubscribe(channel.as_bytes()));
            assert!(join_all(leaves).await.iter().all(|one| one.is_ok()), "{name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let left: Vec<String> = server.run_words("PUBSUB SHARDCHANNELS").await?;
        assert_eq!(left.len(), 0, "{name}");
        drop((subscription, notices));
    }
    Ok(())
}

/// Both are under way at once.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_leave_and_join_keeps_the_channel_subscribed_at_the_server() -> Result {
    let server = StandaloneServer::start().await?;
    if !server.version().has_sharded_pubsub() {
        return Ok(());
    }
    for (name, backend) in backends() {
        let (subscription, mut notices) =
            backend.subscribe(&address(server.port()), None).await.unwrap();
        subscription.subscribe(b"one", false).await.unwrap();
        expect(&mut notices, name, joined("one")).await;
        for turn in 0..100 {
            let (leave, join) =
                (subscription.unsubscribe(b"one"), subscription.subscribe(b"one", false));
            let (leave, join) = tokio::join!(leave, join);
            assert!(leave.is_ok() && join.is_ok(), "{name}");
            while timeout(LONG, notices.recv()).await?.unwrap() != joined("one") {}
            let heard: i64 = server.run_words("SPUBLISH one message").await?;
            assert_eq!(heard, 1, "{name}, turn {turn}");
        }
    }
    Ok(())
}

/// Messages that come faster than they are read are kept. With `fred` the connection ends, so that
/// it is not used any more.
#[tokio::test]
async fn more_messages_than_are_read() -> Result {
    const MANY: usize = 5_000;
    let flood = format!("for number = 1, {MANY} do redis.call('SPUBLISH', 'channel', number) end");
    let server = StandaloneServer::start().await?;
    if !server.version().has_sharded_pubsub() {
        return Ok(());
    }
    for (name, backend) in backends() {
        let (subscription, mut notices) =
            backend.subscribe(&address(server.port()), None).await.unwrap();
        subscription.subscribe(b"channel", false).await.unwrap();
        expect(&mut notices, name, joined("channel")).await;
        let _: () = server.run(redis::cmd("EVAL").arg(&flood).arg(0)).await?;
        let mut heard = 0;
        while heard < MANY && timeout(LONG, notices.recv()).await?.is_some() {
            heard += 1;
        }
        assert_eq!(heard < MANY, name == "fred", "{name}: {heard}");
    }
    Ok(())
}

/// The next notice.
async fn expect(notices: &mut UnboundedReceiver<PubSubEvent>, name: &str, expected: PubSubEvent) {
    let notice = timeout(LONG, notices.recv()).await;
    let notice = notice.unwrap_or_else(|_| panic!("{name}: waited for {expected:?}"));
    assert_eq!(notice, Some(expected), "{name}");
}

fn joined(channel: &'static str) -> PubSubEvent {
    PubSubEvent::Subscribed { channel: channel.into() }
}

fn left(channel: &'static str) -> PubSubEvent {
    PubSubEvent::Unsubscribed { channel: channel.into() }
}

fn message(channel: &'static str, payload: &[u8]) -> PubSubEvent {
    PubSubEvent::Message { channel: channel.into(), payload: Bytes::copy_from_slice(payload) }
}
