//! The checks of a cluster node before it runs a command: whether it serves the slots of the keys.

use rwlease_core::slot::Slot;

use crate::cluster_state::ClusterWorld;
use crate::reply::ErrorReply;
use crate::server::EmbeddedServer;

/// Why a server does not serve a command itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotRedirect {
    Moved(Slot, usize),
    Ask(Slot, usize),
    TryAgain,
    CrossSlotError,
    ClusterDown,
}

/// The kinds of things that have a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Key,
    Channel,
}

impl EmbeddedServer {
    /// Checks that this server of a cluster serves all these keys (or this shard channel). The slot
    /// of the key `home` is already known.
    pub(crate) fn route(
        &mut self,
        keys: &[&[u8]],
        kind: KeyKind,
        asked: bool,
        home: Option<(&[u8], Slot)>,
    ) -> Result<(), SlotRedirect> {
        let Some((first, others)) = keys.split_first() else {
            return Ok(());
        };
        let slot_of = |key: &[u8]| match home {
            Some((known, slot)) if known == key => slot,
            _ => Slot::of(key),
        };
        let slot = slot_of(first);
        if others.iter().any(|key| slot_of(key) != slot) {
            return Err(SlotRedirect::CrossSlotError);
        }
        let is_channel = kind == KeyKind::Channel;
        if self.cluster_down && !is_channel {
            return Err(SlotRedirect::ClusterDown);
        }
        let master = self.slots.master_of(slot);
        if master == self.index {
            let Some(&target) = self.migrating.get(&slot) else {
                return Ok(());
            };
            // The source serves a channel until the slot has moved.
            let missing = match is_channel {
                true => 0,
                false => keys.iter().filter(|key| !self.store.contains(key)).count(),
            };
            return match missing {
                0 => Ok(()),
                _ if missing == keys.len() => Err(SlotRedirect::Ask(slot, target)),
                _ => Err(SlotRedirect::TryAgain),
            };
        }
        if asked && self.importing.contains_key(&slot) {
            let several = others.iter().any(|key| key != first);
            let misses_one =
                !is_channel && several && keys.iter().any(|key| !self.store.contains(key));
            return if misses_one { Err(SlotRedirect::TryAgain) } else { Ok(()) };
        }
        Err(SlotRedirect::Moved(slot, master))
    }
}

impl ClusterWorld {
    /// The error for a client.
    pub(crate) fn client_error(&self, redirect: SlotRedirect) -> ErrorReply {
        let to = |word, slot, server: usize| {
            ErrorReply::new(format!("{word} {slot} {}", self.servers[server].address))
        };
        match redirect {
            SlotRedirect::Moved(slot, master) => to("MOVED", slot, master),
            SlotRedirect::Ask(slot, target) => to("ASK", slot, target),
            SlotRedirect::TryAgain => {
                ErrorReply::from_static("TRYAGAIN Multiple keys request during rehashing of slot")
            }
            SlotRedirect::CrossSlotError => {
                ErrorReply::from_static("CROSSSLOT Keys in request don't hash to the same slot")
            }
            SlotRedirect::ClusterDown => ErrorReply::from_static("CLUSTERDOWN The cluster is down"),
        }
    }
}

impl SlotRedirect {
    /// The error that `redis.call` raises.
    pub(crate) fn script_error(self) -> ErrorReply {
        match self {
            SlotRedirect::ClusterDown => ErrorReply::from_static(
                "ERR Script attempted to execute a command while the cluster is down",
            ),
            _ => ErrorReply::from_static(
                "ERR Script attempted to access a non local key in a cluster node",
            ),
        }
    }
}
