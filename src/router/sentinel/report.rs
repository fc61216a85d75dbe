//! What one sentinel reports about the master.

use rwlease_core::resp::{Address, Command, ReplyShape, RespValue};

use crate::backend::ConnectionError;
use crate::router::address_translation::AddressTranslator;
use crate::router::bad_entries::BadEntry;
use crate::router::connections::server_info::{shorten_run_id, text};

#[derive(Clone, Debug)]
pub(crate) struct SentinelReport {
    /// The address at which the sentinel was queried.
    pub(crate) source: Address,
    /// The sentinel's id, if it reports one.
    pub(crate) id: Option<Box<str>>,
    /// The epoch of the failover that promoted the master; 0 if the sentinel reports none.
    pub(crate) epoch: u64,
    /// `None` if the sentinel knows no master of that name, or none that can be dialled.
    pub(crate) master: Option<ReportedMaster>,
    /// Why the master cannot be dialled, if it has one.
    pub(crate) malformed: Option<ConnectionError>,
    /// How many other sentinels watch the master, if it reports that.
    pub(crate) peer_count: Option<usize>,
    /// The ids of the other sentinels, if it reports them.
    pub(crate) known: Option<Vec<Box<str>>>,
    /// Those of them that can be dialled.
    pub(crate) peers: Vec<SentinelPeer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedMaster {
    pub(crate) address: Address,
    /// The name of its process, if the sentinel knows that by now.
    pub(crate) run_id: Option<Box<str>>,
}

/// Another sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentinelPeer {
    pub(crate) sentinel: Box<str>,
    pub(crate) address: Address,
}

/// The queries for a sentinel, in one pipeline. The epoch is read before the address. If the master
/// changes in between, the new address is reported with the old epoch, which does no harm; the old
/// address is never reported with the new epoch. While a sentinel carries out a failover, its
/// `MASTER` has the old address with the new epoch, so the address in that answer is not used.
pub(crate) fn report_commands(master: &str) -> [Command; 4] {
    let sentinel = || Command::new().arg("SENTINEL");
    [
        sentinel().arg("MYID").expecting(ReplyShape::Text),
        sentinel().arg("MASTER").arg(master).expecting(ReplyShape::List),
        sentinel().arg("GET-MASTER-ADDR-BY-NAME").arg(master).expecting(ReplyShape::List),
        sentinel().arg("SENTINELS").arg(master).expecting(ReplyShape::List),
    ]
}

impl SentinelReport {
    /// Reads the answers of the sentinel at `source`. Calls `skip` with each of the other sentinels
    /// that cannot be dialled.
    pub(crate) fn read(
        replies: Vec<RespValue>,
        source: &Address,
        translation: &AddressTranslator,
        skip: impl Fn(BadEntry),
    ) -> Result<SentinelReport, ConnectionError> {
        let mut replies = replies.into_iter();
        let mut next = || replies.next().unwrap_or(RespValue::Nil);
        let (id, state, address, peers) = (next(), next(), next(), next());
        let address = match &address {
            RespValue::Nil => Ok(None),
            RespValue::Error(error) if error.message.starts_with("unknown command") => {
                let message =
                    format!("{source} is not a sentinel; name the sentinels, or use `redis://`");
                return Err(ConnectionError::not_sent(message).with_source(error.clone()));
            }
            RespValue::Error(error) => {
                let message = format!("sentinel {source} does not name the master");
                return Err(ConnectionError {
                    is_permanent: matches!(error.code.as_str(), "NOPERM" | "NOAUTH"),
                    ..ConnectionError::not_sent(message).with_source(error.clone())
                });
            }
            other => master_address(other, source, translation).map(Some).ok_or_else(|| {
                ConnectionError::not_sent(format!(
                    "sentinel {source} returned a malformed master address: {other:?}"
                ))
            }),
        };
        let (address, malformed) = match address {
            Ok(address) => (address, None),
            Err(failure) => (None, Some(failure)),
        };
        let number = |name| field(&state, name).and_then(|digits| digits.parse::<u64>().ok());
        let others = number("num-other-sentinels").and_then(|others| others.try_into().ok());
        let (known, peers) = others_in(&peers, source, translation, &skip);
        let master = address.map(|address| {
            let process = process(&state, &address, source, translation);
            ReportedMaster { address, run_id: process }
        });
        Ok(SentinelReport {
            source: source.clone(),
            id: text(&id).filter(|id| !id.is_empty()).map(Into::into),
            epoch: number("config-epoch").unwrap_or(0),
            master,
            malformed,
            peer_count: others,
            known,
            peers,
        })
    }

    /// Returns true if both are of one sentinel, as far as is known.
    pub(crate) fn is_of_same_sentinel(&self, other: &SentinelReport) -> bool {
        match (&self.id, &other.id) {
            (Some(id), Some(others)) => id == others,
            _ => self.source == other.source,
        }
    }

    pub(crate) fn address(&self) -> Option<&Address> {
        self.master.as_ref().map(|named| &named.address)
    }

    /// Returns true if both name the same master of the same failover.
    pub(crate) fn agrees(&self, other: &SentinelReport) -> bool {
        self.epoch == other.epoch && self.address() == other.address()
    }
}

/// The process in the answer to `MASTER`, if that is about the master at this address.
fn process(
    state: &RespValue,
    address: &Address,
    source: &Address,
    translation: &AddressTranslator,
) -> Option<Box<str>> {
    let of = read_address(field(state, "ip"), field(state, "port"), source, translation)?;
    if of != *address {
        return None;
    }
    field(state, "runid").and_then(shorten_run_id)
}

/// The other sentinels that a sentinel knows: the ids of all, and those that can be dialled. It
/// knows no address of one whose address another sentinel has now.
fn others_in(
    reply: &RespValue,
    source: &Address,
    translation: &AddressTranslator,
    skip: &impl Fn(BadEntry),
) -> (Option<Vec<Box<str>>>, Vec<SentinelPeer>) {
    let RespValue::Array(items) = reply else {
        return (None, Vec::new());
    };
    let (mut known, mut peers) = (Vec::new(), Vec::new());
    for item in items {
        let Some(id) = field(item, "runid").filter(|id| !id.is_empty()) else {
            continue;
        };
        known.push(id.into());
        match read_address(field(item, "ip"), field(item, "port"), source, translation) {
            Some(address) => peers.push(SentinelPeer { sentinel: id.into(), address }),
            None => {
                let subject = format!("sentinel {id}");
                skip(BadEntry { subject, reason: "it has no address" });
            }
        }
    }
    (Some(known), peers)
}

fn master_address(
    reply: &RespValue,
    source: &Address,
    translation: &AddressTranslator,
) -> Option<Address> {
    match reply {
        RespValue::Array(parts) => match parts.as_slice() {
            [host, port] => read_address(text(host), text(port), source, translation),
            _ => None,
        },
        _ => None,
    }
}

fn read_address(
    host: Option<&str>,
    port: Option<&str>,
    source: &Address,
    translation: &AddressTranslator,
) -> Option<Address> {
    let port = port?.parse().ok().filter(|port| *port != 0)?;
    Some(translation.address(host?, port, source))
}

fn field<'a>(reply: &'a RespValue, name: &str) -> Option<&'a str> {
    let RespValue::Array(items) = reply else {
        return None;
    };
    let mut pairs = items.chunks_exact(2);
    pairs.find(|pair| text(&pair[0]) == Some(name)).and_then(|pair| text(&pair[1]))
}

#[cfg(test)]
mod tests;
