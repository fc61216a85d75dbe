//! One node's view of its cluster: `CLUSTER NODES`, parsed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::{Error, Result, Server};

/// The nodes by their ids, as one of them sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNodes(pub BTreeMap<String, ClusterNodeEntry>);

/// One node in such a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNodeEntry {
    pub port: u16,
    pub flags: Vec<String>,
    /// The id of its master, for a replica.
    pub master: Option<String>,
    pub epoch: u64,
    pub is_connected: bool,
    pub slots: Vec<RangeInclusive<u16>>,
    /// Slots that this node is giving or taking, which a node reports only about itself.
    pub moving: Vec<String>,
}

impl ClusterNodes {
    pub async fn of(server: &Server) -> Result<ClusterNodes> {
        let text: String = server.run_words("CLUSTER NODES").await?;
        text.lines().map(parse_line).collect::<Result<_>>().map(ClusterNodes)
    }

    /// The id of the master that has the slot.
    pub fn master_of(&self, slot: u16) -> Option<&str> {
        let master =
            self.0.iter().find(|(_, entry)| entry.slots.iter().any(|range| range.contains(&slot)));
        master.map(|(id, _)| id.as_str())
    }
}

impl ClusterNodeEntry {
    pub fn is_master(&self) -> bool {
        self.has("master")
    }

    /// Known, reached, and not suspected of a failure.
    pub fn is_healthy(&self) -> bool {
        self.is_connected
            && !["handshake", "noaddr", "fail", "fail?"].into_iter().any(|flag| self.has(flag))
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|have| have == flag)
    }
}

/// `<id> <ip:port@bus[,name]> <flags> <master> <ping> <pong> <epoch> <link> <slot>...`
fn parse_line(line: &str) -> Result<(String, ClusterNodeEntry)> {
    parse_words(line).ok_or_else(|| Error::new(format!("not a line of CLUSTER NODES: {line}")))
}

fn parse_words(line: &str) -> Option<(String, ClusterNodeEntry)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [id, address, flags, master, _ping, _pong, epoch, link, slots @ ..] = words.as_slice()
    else {
        return None;
    };
    let port = address.split('@').next()?.rsplit(':').next()?.parse().ok()?;
    let (moving, owned): (Vec<&str>, Vec<&str>) =
        slots.iter().partition(|slot| slot.starts_with('['));
    let entry = ClusterNodeEntry {
        port,
        flags: flags.split(',').map(String::from).collect(),
        master: (*master != "-").then(|| master.to_string()),
        epoch: epoch.parse().ok()?,
        is_connected: *link == "connected",
        slots: owned.into_iter().map(parse_slots).collect::<Option<_>>()?,
        moving: moving.into_iter().map(String::from).collect(),
    };
    Some((id.to_string(), entry))
}

/// `7` or `0-5460`
fn parse_slots(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
