//! Shard channels: who receives which message, and when a subscription ends.

use rwlease_core::resp::{PubSubEvent, RespValue};
use rwlease_core::slot::Slot;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;

use super::words;
use crate::EmbeddedCluster;
use crate::link::PubSubLink;

const CHANNEL: &str = "{key}channel";

type Listener = (PubSubLink, UnboundedReceiver<PubSubEvent>);

fn engine() -> (EmbeddedCluster, usize, usize) {
    let engine = EmbeddedCluster::builder().manual_time().build();
    let master = engine.faults().master_of(Slot::of(CHANNEL));
    (engine, master, (master + 1) % 3)
}

fn listen(engine: &EmbeddedCluster, server: usize) -> Listener {
    engine.subscribe(&engine.addresses()[server]).unwrap()
}

fn join(listener: &Listener, asking: bool) {
    listener.0.subscribe(CHANNEL.as_bytes(), asking).unwrap();
}

fn joined(engine: &EmbeddedCluster, server: usize, asking: bool) -> Listener {
    let mut listener = listen(engine, server);
    join(&listener, asking);
    assert_eq!(listener.1.try_recv(), Ok(begun()));
    listener
}

fn publish(engine: &EmbeddedCluster, server: usize) -> RespValue {
    engine.query(server, &words(&["SPUBLISH", CHANNEL, "x"]))
}

fn message() -> PubSubEvent {
    PubSubEvent::Message { channel: CHANNEL.into(), payload: "x".into() }
}

fn begun() -> PubSubEvent {
    PubSubEvent::Subscribed { channel: CHANNEL.into() }
}

fn left() -> PubSubEvent {
    PubSubEvent::Unsubscribed { channel: CHANNEL.into() }
}

#[test]
fn spublish_reply_counts_the_subscribers_that_get_the_message() {
    let (engine, master, _) = engine();
    assert_eq!(publish(&engine, master), RespValue::Int(0));
    let (mut first, mut second) = (joined(&engine, master, false), joined(&engine, master, false));
    let script =
        words(&["EVAL", "return redis.call('SPUBLISH', ARGV[1], 'x')", "1", "{key}", CHANNEL]);
    assert_eq!(engine.query(master, &script), RespValue::Int(2));
    assert_eq!(first.1.try_recv(), Ok(message()));
    assert_eq!(second.1.try_recv(), Ok(message()));
    first.0.unsubscribe(CHANNEL.as_bytes()).unwrap();
    assert_eq!(first.1.try_recv(), Ok(left()));
    assert_eq!(publish(&engine, master), RespValue::Int(1));
    assert_eq!(first.1.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn spublish_reply_counts_a_repeated_subscribe_once() {
    let (engine, master, _) = engine();
    let listener = joined(&engine, master, false);
    join(&listener, false);
    assert_eq!(publish(&engine, master), RespValue::Int(1));
}

#[test]
fn spublish_reply_does_not_count_dropped_subscribers() {
    let (engine, master, _) = engine();
    let (subscription, receiver) = joined(&engine, master, false);
    drop(receiver);
    assert_eq!(publish(&engine, master), RespValue::Int(0));
    drop(subscription);
    let (subscription, mut receiver) = joined(&engine, master, false);
    drop(subscription);
    assert_eq!(publish(&engine, master), RespValue::Int(0));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
}

#[test]
fn a_channel_of_a_foreign_slot_is_refused() {
    let (engine, _, other) = engine();
    let mut listener = listen(&engine, other);
    join(&listener, true);
    let Ok(PubSubEvent::Rejected { error, .. }) = listener.1.try_recv() else {
        panic!("not refused");
    };
    assert_eq!(error.code, "MOVED");
}

#[test]
fn spublish_during_slot_move_reaches_one_side_and_the_source_ends_after_it() {
    let (engine, source, target) = engine();
    let mut at_source = joined(&engine, source, false);
    engine.faults().begin_move(Slot::of(CHANNEL), target);
    let mut at_target = joined(&engine, target, true);
    engine.query(source, &words(&["SPUBLISH", CHANNEL, "x"]));
    assert_eq!(at_source.1.try_recv(), Ok(message()));
    assert_eq!(at_target.1.try_recv(), Err(TryRecvError::Empty));
    engine.faults().finish_move(Slot::of(CHANNEL));
    assert_eq!(at_source.1.try_recv(), Ok(left()));
    assert_eq!(publish(&engine, target), RespValue::Int(1));
    assert_eq!(at_target.1.try_recv(), Ok(message()));
    assert_eq!(at_source.1.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn subscriptions_end_when_a_master_learns_that_it_is_none() {
    let (engine, master, _) = engine();
    let mut listener = joined(&engine, master, false);
    let new = engine.faults().promote(master, 0).unwrap();
    assert_eq!(listener.1.try_recv(), Ok(left()));
    assert_eq!(publish(&engine, new), RespValue::Int(0));
}

#[test]
fn killed_connections_and_killed_servers_end_the_receivers() {
    let (engine, master, _) = engine();
    let mut listener = joined(&engine, master, false);
    engine.faults().kill_connections(master);
    assert_eq!(listener.1.try_recv(), Err(TryRecvError::Disconnected));
    assert!(listener.0.subscribe(CHANNEL.as_bytes(), false).is_err());
    let mut listener = joined(&engine, master, false);
    engine.faults().stop(master);
    assert_eq!(listener.1.try_recv(), Err(TryRecvError::Disconnected));
    assert!(engine.subscribe(&engine.addresses()[master]).is_err());
}

#[test]
fn a_paused_server_answers_subscribers_later() {
    let (engine, master, _) = engine();
    let mut listener = listen(&engine, master);
    engine.faults().pause(master);
    join(&listener, false);
    assert_eq!(listener.1.try_recv(), Err(TryRecvError::Empty));
    engine.faults().resume(master);
    assert_eq!(listener.1.try_recv(), Ok(begun()));
}
