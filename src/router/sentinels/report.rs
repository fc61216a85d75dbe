//! What one sentinel reports about the master.

use std::sync::Arc;

use crate::node::{Address, Command, NodeError, Reply, ReplyShape};
use crate::router::about::name_of;
use crate::router::translation::Translation;

/// A sentinel's report.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The sentinel's id, or the address at which it was queried if it reports none.
    pub(crate) sentinel: Box<str>,
    /// The epoch of the failover that promoted the master; 0 if the sentinel reports none.
    pub(crate) epoch: u64,
    /// `None` if the sentinel knows no master of that name.
    pub(crate) master: Option<Named>,
    /// How many other sentinels watch the master, if it reports that.
    pub(crate) others: Option<usize>,
    pub(crate) peers: Vec<Peer>,
}

/// A master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) address: Address,
    /// The name of its process, if the sentinel knows that by now.
    pub(crate) process: Option<Box<str>>,
}

/// Another sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) sentinel: Box<str>,
    pub(crate) address: Address,
}

/// The queries for a sentinel, in one pipeline. The epoch is read before the address. If the master
/// changes in between, the new address is reported with the old epoch, which does no harm; the old
/// address is never reported with the new epoch. While a sentinel carries out a failover, its
/// `MASTER` has the old address with the new epoch, so the address in that answer is not used.
pub(crate) fn questions(master: &str) -> [Command; 4] {
    let sentinel = || Command::new().word("SENTINEL");
    [
        sentinel().word("MYID").expecting(ReplyShape::Text),
        sentinel().word("MASTER").word(master).expecting(ReplyShape::List),
        sentinel().word("GET-MASTER-ADDR-BY-NAME").word(master).expecting(ReplyShape::List),
        sentinel().word("SENTINELS").word(master).expecting(ReplyShape::List),
    ]
}

impl Report {
    /// Reads the answers of the sentinel at `source`.
    pub(crate) fn read(
        replies: Vec<Reply>,
        source: &Address,
        translation: &Translation,
    ) -> Result<Report, NodeError> {
        let mut replies = replies.into_iter();
        let mut next = || replies.next().unwrap_or(Reply::Nil);
        let (id, state, address, peers) = (next(), next(), next(), next());
        let address = match &address {
            Reply::Nil => None,
            Reply::List(parts) => match parts.as_slice() {
                [host, port] => Some(read_address(text(host), text(port), source, translation)),
                _ => return Err(garbled(source)),
            },
            Reply::Error(error) => {
                return Err(NodeError {
                    permanent: matches!(error.code.as_str(), "NOPERM" | "NOAUTH"),
                    source: Some(Arc::new(error.clone())),
                    ..NodeError::unsent(format!("{source} does not tell where the master is"))
                });
            }
            _ => return Err(garbled(source)),
        };
        let address = address.map(|read| read.ok_or_else(|| garbled(source))).transpose()?;
        let number = |name| field(&state, name).and_then(|digits| digits.parse::<u64>().ok());
        let others = number("num-other-sentinels").and_then(|others| others.try_into().ok());
        let peers = peers_in(&peers, source, translation);
        let master = address.map(|address| {
            let process = process(&state, &address, source, translation);
            Named { address, process }
        });
        Ok(Report {
            sentinel: text(&id).map_or_else(|| source.to_string().into(), Into::into),
            epoch: number("config-epoch").unwrap_or(0),
            master,
            others,
            peers,
        })
    }

    pub(crate) fn address(&self) -> Option<&Address> {
        self.master.as_ref().map(|named| &named.address)
    }

    /// Returns true if both name the same master of the same failover.
    pub(crate) fn agrees(&self, other: &Report) -> bool {
        self.epoch == other.epoch && self.address() == other.address()
    }
}

/// The process in the answer to `MASTER`, if that is about the master at this address.
fn process(
    state: &Reply,
    address: &Address,
    source: &Address,
    translation: &Translation,
) -> Option<Box<str>> {
    let of = read_address(field(state, "ip"), field(state, "port"), source, translation)?;
    if of != *address {
        return None;
    }
    field(state, "runid").and_then(name_of)
}

fn peers_in(reply: &Reply, source: &Address, translation: &Translation) -> Vec<Peer> {
    let Reply::List(items) = reply else {
        return Vec::new();
    };
    let peers = items.iter().filter_map(|item| {
        let sentinel = field(item, "runid").filter(|id| !id.is_empty())?.into();
        let address = read_address(field(item, "ip"), field(item, "port"), source, translation)?;
        Some(Peer { sentinel, address })
    });
    peers.collect()
}

fn read_address(
    host: Option<&str>,
    port: Option<&str>,
    source: &Address,
    translation: &Translation,
) -> Option<Address> {
    let port = port?.parse().ok().filter(|port| *port != 0)?;
    Some(translation.address(host?, port, source))
}

/// The value of a field in a list of names and values.
fn field<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    let Reply::List(items) = reply else {
        return None;
    };
    let mut pairs = items.chunks_exact(2);
    pairs.find(|pair| text(&pair[0]) == Some(name)).and_then(|pair| text(&pair[1]))
}

fn text(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

fn garbled(source: &Address) -> NodeError {
    NodeError::unsent(format!("{source} names a master that is none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fake::{address, server_error, text};

    const RUN_ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn list(words: &[&str]) -> Reply {
        Reply::List(words.iter().map(|word| text(word)).collect())
    }

    fn read(replies: Vec<Reply>) -> Result<Report, NodeError> {
        Report::read(replies, &address("s"), &Translation::default())
    }

    fn state(host: &str, epoch: &str) -> Reply {
        let all = ["name", "m", "ip", host, "port", "1", "runid", RUN_ID, "config-epoch", epoch];
        let others = ["num-other-sentinels", "2"];
        list(&[&all[..], &others].concat())
    }

    #[test]
    fn a_report() {
        let peers = Reply::List(vec![
            list(&["runid", "other", "ip", "t", "port", "1"]),
            list(&["runid", "", "ip", "u", "port", "1"]),
        ]);
        let report = read(vec![text("id"), state("a", "7"), list(&["a", "1"]), peers]).unwrap();
        assert_eq!((&*report.sentinel, report.epoch, report.others), ("id", 7, Some(2)));
        let process = Some(RUN_ID[..12].into());
        assert_eq!(report.master, Some(Named { address: address("a"), process }));
        assert_eq!(report.peers, [Peer { sentinel: "other".into(), address: address("t") }]);
    }

    #[test]
    fn while_a_failover_is_carried_out_the_address_counts_and_not_the_state() {
        let report =
            read(vec![text("id"), state("a", "8"), list(&["b", "1"]), Reply::Nil]).unwrap();
        assert_eq!(report.master, Some(Named { address: address("b"), process: None }));
        assert_eq!(report.epoch, 8);
    }

    #[test]
    fn what_a_sentinel_may_not_tell_is_unknown() {
        let refused = || Reply::Error(server_error("NOPERM no"));
        let report = read(vec![refused(), refused(), list(&["a", "1"]), refused()]).unwrap();
        assert_eq!((&*report.sentinel, report.epoch, report.others), ("s:1", 0, None));
        assert_eq!(report.address(), Some(&address("a")));
        let failure = read(vec![text("id"), refused(), refused(), refused()]).unwrap_err();
        assert!(failure.permanent);
        let unknown = Reply::Error(server_error("ERR unknown command 'SENTINEL'"));
        assert!(!read(vec![unknown.clone(), unknown.clone(), unknown]).unwrap_err().permanent);
    }

    #[test]
    fn a_name_that_is_not_known_and_nonsense() {
        let unknown = || Reply::Error(server_error("ERR No such master with that name"));
        let report = read(vec![text("id"), unknown(), Reply::Nil, unknown()]).unwrap();
        assert_eq!(report.master, None);
        for odd in [list(&["a"]), list(&["a", "x"]), list(&["a", "0"]), Reply::Int(1)] {
            assert!(read(vec![text("id"), state("a", "1"), odd, Reply::Nil]).is_err());
        }
        assert!(read(Vec::new()).unwrap().master.is_none());
    }
}
