//! Stub until the real one is merged.
use super::Slot;
use crate::clock::Moment;
use crate::node::Address;
use bytes::Bytes;
use tokio::sync::mpsc;

#[derive(Debug)]
#[allow(dead_code)]
pub(crate) enum Event {
    Message {
        slot: Slot,
        address: Address,
        payload: Bytes,
        received: Moment,
    },
    Look {
        slot: Slot,
    },
}
#[derive(Debug, Default)]
pub(crate) struct Subscriptions;
impl Subscriptions {
    pub(crate) fn want(&self, _: Slot, _: Bytes) {}
    pub(crate) fn unwant(&self, _: Slot) {}
    pub(crate) fn joined_at(&self, _: Slot) -> Option<String> {
        None
    }
    pub(crate) fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        mpsc::unbounded_channel().1
    }
}
