//! What is known about the places where a channel is joined, and about the links there.

use bytes::Bytes;
use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;
use tokio::sync::mpsc;

use crate::router::subscriptions::link::LinkCommand;

#[derive(Debug)]
pub(super) struct WantedChannel {
    pub(super) channel: Bytes,
    /// The master of the slot, and while it migrates the target too.
    pub(super) targets: Vec<ChannelTarget>,
    /// The servers that have named another one since the channel was joined last.
    pub(super) redirect_count: u32,
    /// Nothing is joined before then.
    pub(super) retry_at: LocalInstant,
}

/// A server where a channel should be joined.
#[derive(Debug)]
pub(super) struct ChannelTarget {
    pub(super) address: Address,
    /// Joined after ASK: the server is not the master of the slot (yet).
    pub(super) asking: bool,
    pub(super) state: TargetState,
    pub(super) failure_count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TargetState {
    /// It waits for its link.
    NoLink,
    /// No join is tried before then.
    BackingOff(LocalInstant),
    /// Its link was told to join it.
    Subscribing,
    /// Joined since then.
    Subscribed(LocalInstant),
}

/// The state of a server, as the manager knows it.
#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) id: u64,
    /// `None` while there is no link.
    pub(super) commands: Option<mpsc::UnboundedSender<LinkCommand>>,
    pub(super) is_connected: bool,
    /// The name of the server that its connection leads to.
    pub(super) server_name: Option<Box<str>>,
    pub(super) failures: u32,
    pub(super) retry_at: LocalInstant,
}

impl WantedChannel {
    pub(super) fn new(channel: Bytes) -> WantedChannel {
        let retry_at = LocalInstant::default();
        WantedChannel { channel, targets: Vec::new(), redirect_count: 0, retry_at }
    }
}

impl ChannelTarget {
    pub(super) fn new(address: Address, asking: bool) -> ChannelTarget {
        ChannelTarget { address, asking, state: TargetState::NoLink, failure_count: 0 }
    }
}
