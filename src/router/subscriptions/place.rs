//! What is known about the places where a channel is joined, and about the links there.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::clock::Moment;
use crate::node::Address;
use crate::router::subscriptions::link::LinkCommand;

#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) channel: Bytes,
    /// The master of the slot, and while it migrates the target too.
    pub(super) places: Vec<Place>,
}

/// A server where a channel should be joined.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) address: Address,
    /// Joined after ASK: the server is not the master of the slot (yet).
    pub(super) asking: bool,
    pub(super) state: State,
    pub(super) failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// It waits for its link.
    Unlinked,
    /// No join is tried before then.
    Resting(Moment),
    /// Its link was told to join it.
    Joining,
    /// Joined since then.
    Joined(Moment),
}

/// What the keeper knows about a server.
#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) id: u64,
    /// `None` while there is no link.
    pub(super) commands: Option<mpsc::UnboundedSender<LinkCommand>>,
    pub(super) up: bool,
    /// The name of the server that its connection leads to.
    pub(super) name: Option<Box<str>>,
    pub(super) failures: u32,
    pub(super) rest_until: Moment,
}

impl Place {
    pub(super) fn new(address: Address, asking: bool) -> Place {
        Place { address, asking, state: State::Unlinked, failures: 0 }
    }
}
