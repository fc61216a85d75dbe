//! What the parsers of this layer make of replies, for the tests that give them arbitrary bytes.

use std::cell::Cell;

use rwlease_core::resp::{Address, RespValue, ServerError};
use rwlease_core::slot::Slot;

use crate::router::address_translation::AddressTranslator;
use crate::router::cluster::cluster_slots;
use crate::router::connections::error_reply::{Redirect, unwrap_script_error};
use crate::router::connections::server_info::{
    ServerIdentity, check_kind, parse_server_name, parse_time, supports_delifeq,
};
use crate::router::sentinel::ReportForTests;

/// A reply to `CLUSTER SLOTS`, as the client uses it.
#[derive(Debug, PartialEq)]
pub struct ParsedSlots {
    /// The ranges of slots that have the same master.
    pub masters: Vec<(Slot, Slot, Address)>,
    /// All nodes that can be dialled.
    pub nodes: Vec<Address>,
    /// The ids of all nodes.
    pub ids: Vec<String>,
    /// The number of entries and nodes that were skipped.
    pub bad_entries: usize,
}

/// The replies of a sentinel, as the client uses them.
#[derive(Debug, PartialEq)]
pub struct ParsedReport {
    pub id: Option<String>,
    pub epoch: u64,
    /// The master and its process.
    pub master: Option<(Address, Option<String>)>,
    /// The ids of other sentinels, if the sentinel reports them.
    pub known: Option<Vec<String>>,
    /// The other sentinels that can be dialled.
    pub peers: Vec<(String, Address)>,
    /// The number of sentinels that cannot be dialled.
    pub bad_entries: usize,
}

/// Reads the reply to `CLUSTER SLOTS` of the server at `asked`.
pub fn parse_cluster_slots(reply: &RespValue, asked: &Address) -> Result<ParsedSlots, String> {
    let slots = cluster_slots::read(reply, asked, &AddressTranslator::default())?;
    let mut masters: Vec<(Slot, Slot, Address)> = Vec::new();
    for slot in Slot::all() {
        let Some(master) = slots.map.master_of(slot) else { continue };
        match masters.last_mut() {
            Some((_, last, other)) if last.get() + 1 == slot.get() && other == master => {
                *last = slot;
            }
            _ => masters.push((slot, slot, master.clone())),
        }
    }
    Ok(ParsedSlots {
        masters,
        nodes: slots.map.nodes().to_vec(),
        ids: slots.map.ids().map(str::to_owned).collect(),
        bad_entries: slots.bad_entries.len(),
    })
}

/// Reads the replies of the sentinel at `asked` to the four queries. `None` if it cannot be used.
pub fn parse_sentinel_report(replies: Vec<RespValue>, asked: &Address) -> Option<ParsedReport> {
    let skipped = Cell::new(0);
    let skip = |_| skipped.set(skipped.get() + 1);
    let report = ReportForTests::read(replies, asked, &AddressTranslator::default(), skip).ok()?;
    let text = String::from;
    let id_of = |id: Option<Box<str>>| id.map(text);
    Some(ParsedReport {
        id: id_of(report.id),
        epoch: report.epoch,
        master: report.master.map(|master| (master.address, id_of(master.run_id))),
        known: report.known.map(|known| known.into_iter().map(text).collect()),
        peers: report.peers.into_iter().map(|peer| (text(peer.sentinel), peer.address)).collect(),
        bad_entries: skipped.get(),
    })
}

/// Reads the first answers of a server, each of which may be missing. Returns its time, if it has
/// one.
pub fn parse_server_info(replies: &[RespValue]) -> Option<u64> {
    let reply = |at: usize| replies.get(at).cloned();
    let _ = check_kind(replies);
    let _ = ServerIdentity::from_reply(reply(2));
    let _ = parse_server_name(reply(1));
    let _ = reply(1).is_some_and(|info| supports_delifeq(&info));
    parse_time(reply(0)).ok()
}

/// Reads the slot and the address in an error that redirects, after what an old server wraps is
/// unwrapped.
pub fn parse_redirect(error: &ServerError) -> Option<(Slot, Option<(String, u16)>)> {
    let error = unwrap_script_error(error.clone());
    let redirect = Redirect::read(&error)?;
    Some((redirect.slot, redirect.place.map(|(host, port)| (host.to_owned(), port))))
}
