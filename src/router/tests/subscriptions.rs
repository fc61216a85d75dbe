//! Channels are kept joined where their slots are served.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::*;
use crate::backend::PubSubEvent;
use crate::backend::fake::SubscribeReply;
use crate::router::SubscriptionEvent;

const CHANNEL: &str = "{k}news";

fn slot() -> Slot {
    Slot::of(CHANNEL)
}

fn channel() -> Bytes {
    Bytes::from_static(CHANNEL.as_bytes())
}

async fn settled() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// The number of events, all of which must be a `Poll` at the slot.
fn looks(events: &mut mpsc::UnboundedReceiver<SubscriptionEvent>) -> usize {
    let mut looks = 0;
    while let Ok(event) = events.try_recv() {
        assert_eq!(event, SubscriptionEvent::PollRequired { slot: slot() });
        looks += 1;
    }
    looks
}

/// A cluster of `a` and `b` in which the channel is joined at `a`.
async fn joined() -> (Bench, mpsc::UnboundedReceiver<SubscriptionEvent>) {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.call("x").await.unwrap();
    let mut events = events(&bench);
    bench.router.subscriptions.subscribe(slot(), channel());
    settled().await;
    assert_eq!(looks(&mut events), 1);
    assert_eq!(at(&bench).as_deref(), Some("a-0123456789"));
    bench.fakes.log("a");
    bench.fakes.log("b");
    (bench, events)
}

fn at(bench: &Bench) -> Option<String> {
    bench.router.subscriptions.subscribed_server(slot())
}

fn joins(bench: &Bench, host: &str) -> usize {
    bench.fakes.count(host, "SSUBSCRIBE")
}

/// All events from here on.
fn events(bench: &Bench) -> mpsc::UnboundedReceiver<SubscriptionEvent> {
    let (tell, events) = mpsc::unbounded_channel();
    bench.router.subscriptions.set_listener(Box::new(move |event| drop(tell.send(event))));
    events
}

#[tokio::test(start_paused = true)]
async fn an_unwanted_channel_is_left_and_an_idle_connection_closed() {
    let (bench, mut events) = joined().await;
    bench.router.subscriptions.unsubscribe(slot());
    settled().await;
    assert_eq!(bench.fakes.count("a", "SUNSUBSCRIBE"), 1);
    assert_eq!(at(&bench), None);
    assert_eq!(looks(&mut events), 0);
    assert_eq!(bench.fakes.subscribers("a"), 1);
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert_eq!(bench.fakes.subscribers("a"), 0);
    bench.router.subscriptions.subscribe(slot(), channel());
    settled().await;
    assert_eq!(looks(&mut events), 1);
}

#[tokio::test(start_paused = true)]
async fn want_of_another_channel_of_the_slot_replaces_the_first() {
    let (bench, mut events) = joined().await;
    bench.router.subscriptions.subscribe(slot(), "{k}other".into());
    settled().await;
    assert_eq!(bench.fakes.log("a"), ["SUNSUBSCRIBE {k}news", "SSUBSCRIBE {k}other"]);
    assert_eq!(looks(&mut events), 1);
    assert!(at(&bench).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_changed_owner_is_followed() {
    let (bench, mut events) = joined().await;
    bench.fakes.queue_replies("a", [redirect("MOVED", "k", "b")]);
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    bench.call("k").await.unwrap();
    settled().await;
    assert_eq!(bench.fakes.count("a", "SUNSUBSCRIBE"), 1);
    assert_eq!(joins(&bench, "b"), 1);
    assert_eq!(looks(&mut events), 1);
    assert_eq!(at(&bench).as_deref(), Some("b-0123456789"));
}

#[tokio::test(start_paused = true)]
async fn ssubscribe_refused_by_moved_is_sent_to_the_new_master() {
    let (bench, mut events) = joined().await;
    let moved: &'static str = format!("MOVED {} b:1", slot()).leak();
    bench.fakes.on_subscribe("a", [SubscribeReply::Refuse(moved)]);
    bench.fakes.set_slots_of("b", crate::backend::fake::slots(&[(0, 16383, "b")]));
    bench.fakes.notify("a", PubSubEvent::Unsubscribed { channel: channel() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((joins(&bench, "a"), joins(&bench, "b")), (1, 1));
    assert_eq!(looks(&mut events), 2);
    assert_eq!(at(&bench).as_deref(), Some("b-0123456789"));
    assert_eq!(bench.router.topology.master_of(slot()), Some(address("b")));
}

#[tokio::test(start_paused = true)]
async fn ssubscribe_at_two_masters_that_name_each_other_pauses_and_goes_on() {
    for (refusals, is_joined) in [(500, false), (5, true)] {
        let (bench, _events) = joined().await;
        for (host, other) in [("a", "b"), ("b", "a")] {
            let moved: &'static str = format!("MOVED {} {other}:1", slot()).leak();
            let refusals = std::iter::repeat_n(SubscribeReply::Refuse(moved), refusals);
            bench.fakes.on_subscribe(host, refusals);
        }
        bench.fakes.notify("a", PubSubEvent::Unsubscribed { channel: channel() });
        tokio::time::sleep(Duration::from_secs(10)).await;
        let joins = joins(&bench, "a") + joins(&bench, "b");
        assert!((6..60).contains(&joins), "{joins} joins in 10 s");
        assert_eq!(at(&bench).is_some(), is_joined);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_broken_connection_it_is_joined_again() {
    let (bench, mut events) = joined().await;
    bench.fakes.refuse("a");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(looks(&mut events), 1, "it was lost");
    assert_eq!(at(&bench), None);
    let dials = bench.fakes.dials("a");
    assert!(dials < 40, "{dials} dials in 5 s, for commands, for the map and for subscriptions");
    bench.fakes.set_dial_behavior("a", DialBehavior::Accept);
    bench.call("k").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(looks(&mut events), 1, "it was made again");
    assert!(at(&bench).is_some());
}

#[tokio::test(start_paused = true)]
async fn subscription_ended_by_an_ask_target_is_not_repeated_there() {
    let (bench, mut events) = joined().await;
    bench.fakes.queue_replies("a", [redirect("ASK", "k", "b")]);
    bench.call("k").await.unwrap();
    settled().await;
    bench.fakes.notify("b", PubSubEvent::Unsubscribed { channel: channel() });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((joins(&bench, "a"), joins(&bench, "b")), (0, 1));
    assert_eq!(looks(&mut events), 2);
    assert!(at(&bench).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_shard_subscriptions_is_left_in_peace() {
    let bench = Bench::new(&[ALL]).await;
    let mut events = events(&bench);
    let unknown = SubscribeReply::Refuse(
        "ERR unknown command `SSUBSCRIBE`, with args beginning with: `{k}news`, ",
    );
    bench.fakes.on_subscribe("a", [unknown]);
    bench.router.subscriptions.subscribe(slot(), channel());
    settled().await;
    // Nor is it tried for other channels.
    bench.router.subscriptions.subscribe(Slot::of("x"), "{x}news".into());
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(joins(&bench, "a"), 1);
    assert_eq!(looks(&mut events), 0);
    // It may have been upgraded.
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(joins(&bench, "a"), 3);
    assert!(at(&bench).is_some());
}

#[tokio::test(start_paused = true)]
async fn ssubscribe_is_retried_after_an_error_or_no_reply() {
    let bench = Bench::new(&[ALL]).await;
    let mut events = events(&bench);
    bench.fakes.on_subscribe(
        "a",
        [
            SubscribeReply::Refuse("CLUSTERDOWN x"),
            SubscribeReply::Ignore,
            SubscribeReply::Refuse("LOADING x"),
        ],
    );
    bench.router.subscriptions.subscribe(slot(), channel());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(joins(&bench, "a"), 4);
    assert_eq!(looks(&mut events), 1);
    assert_eq!(bench.fakes.dials("a"), 2, "one connection for commands, one for subscriptions");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_died_silently_is_noticed() {
    let (bench, mut events) = joined().await;
    bench.fakes.stop("a", true);
    bench.fakes.set_slots_of("b", crate::backend::fake::slots(&[(0, 16383, "b")]));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(looks(&mut events) >= 2);
    assert_eq!(at(&bench).as_deref(), Some("b-0123456789"));
}

#[tokio::test(start_paused = true)]
async fn router_drop_ends_subscription_connections_and_events() {
    let (bench, mut events) = joined().await;
    let Bench { fakes, router, .. } = bench;
    drop(router);
    settled().await;
    assert_eq!(fakes.subscribers("a"), 0);
    assert_eq!(events.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_tried_now_and_then() {
    let (bench, mut events) = joined().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let joins = joins(&bench, "a");
    assert!((3..=6).contains(&joins), "{joins}");
    assert_eq!(looks(&mut events), 0, "all is well");
}

/// Channels of that many slots.
fn channels(count: usize) -> Vec<(Slot, Bytes)> {
    let mut channels = std::collections::BTreeMap::new();
    for key in 0.. {
        let channel: Bytes = format!("{{{key}}}news").into();
        channels.insert(Slot::of(&channel), channel);
        if channels.len() == count {
            break;
        }
    }
    channels.into_iter().collect()
}

/// All of them are wanted at a server that does not answer for now.
async fn many_wanted(count: usize) -> (Bench, Vec<(Slot, Bytes)>) {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.hold_subscribes("a");
    let channels = channels(count);
    for (slot, channel) in &channels {
        bench.router.subscriptions.subscribe(*slot, channel.clone());
    }
    settled().await;
    (bench, channels)
}

#[tokio::test(start_paused = true)]
async fn many_joins_go_out_in_a_window_and_once() {
    let (bench, channels) = many_wanted(300).await;
    assert_eq!(joins(&bench, "a"), 64);
    for answered in 1..=25 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        bench.fakes.answer_joins("a", 10);
        settled().await;
        assert_eq!(joins(&bench, "a"), (64 + 10 * answered).min(300));
    }
    bench.fakes.answer_joins("a", 300);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(joins(&bench, "a"), 300, "each of them once");
    for (slot, _) in channels {
        assert!(bench.router.subscriptions.subscribed_server(slot).is_some());
    }
    assert_eq!(bench.fakes.dials("a"), 2);
}

/// Behind one address, one connection may lead to this server and the next one to another.
#[tokio::test(start_paused = true)]
async fn joined_at_names_no_server_to_which_no_commands_go() {
    let bench = Bench::new(&[ALL]).await;
    bench.call("k").await.unwrap();
    bench.fakes.set_run_id("a", "another-server");
    bench.router.subscriptions.subscribe(slot(), channel());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((at(&bench), joins(&bench, "a")), (None, 0));
    // Now they go there, too.
    bench.fakes.break_connections("a");
    bench.call("k").await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(at(&bench).as_deref(), Some("another-serv"));
}

#[tokio::test(start_paused = true)]
async fn at_a_server_without_a_name_nobody_is_known_to_be_joined() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.set_run_id("a", "");
    bench.router.subscriptions.subscribe(slot(), channel());
    settled().await;
    assert_eq!(joins(&bench, "a"), 1);
    assert_eq!(at(&bench), None);
}

/// A client of the standalone servers `a` and `b` by a name of these hosts, where the channel is
/// joined at `a`.
async fn joined_by_name(hosts: &[&str]) -> Bench {
    let fakes = FakeCluster::new(&[]);
    for host in ["a", "b"] {
        fakes.set_standalone(host);
    }
    fakes.set_name("both", hosts);
    let bench = Bench::of(fakes, &["both"]).await;
    bench.router.subscriptions.subscribe(slot(), channel());
    settled().await;
    assert_eq!(at(&bench).as_deref(), Some("a-0123456789"));
    bench
}

/// The former server still runs, so the connection to it is not cut.
#[tokio::test(start_paused = true)]
async fn subscription_follows_the_commands_to_the_other_server_of_a_name() {
    let bench = joined_by_name(&["a"]).await;
    bench.fakes.set_name("both", &["b"]);
    bench.fakes.set_reply("a", refusal("READONLY You can't write against a read only replica."));
    while bench.fakes.count("b", "EVAL") == 0 {
        let _ = bench.call_within("k", 1).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(at(&bench).as_deref(), Some("b-0123456789"));
    assert_eq!(bench.fakes.subscribers("a"), 0);
}

/// By the name alone, each dial would lead to the other one.
#[tokio::test(start_paused = true)]
async fn subscription_is_dialled_where_the_commands_go() {
    let bench = joined_by_name(&["a", "b"]).await;
    bench.fakes.set_name("both", &["b", "a"]);
    bench.fakes.break_connections("a");
    bench.call_within("k", 2).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.calls(), (1, 0));
    assert_eq!(at(&bench).as_deref(), Some("a-0123456789"));
    assert_eq!(bench.fakes.subscribers("b"), 0);
}
