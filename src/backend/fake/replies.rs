//! The names of fake servers, and their replies.

use bytes::Bytes;
use rwlease_core::resp::{Address, RespValue, ServerError};

use super::{FakeReply, FakeSentinel, refusal};

pub(crate) fn address(host: &str) -> Address {
    Address { host: host.into(), port: 1 }
}

pub(crate) fn text(text: &str) -> RespValue {
    RespValue::String(Bytes::copy_from_slice(text.as_bytes()))
}

/// The reply of a script that ran at that time of the server's clock.
pub(crate) fn script_reply(ms: u64) -> RespValue {
    text(&format!("released {ms} 0"))
}

pub(crate) fn server_error(text: &str) -> ServerError {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    ServerError { code: code.into(), message: detail.into() }
}

pub(crate) fn id_of(host: &str) -> String {
    format!("{host}-id")
}

pub(crate) fn cluster_info(state: &str, epoch: u64) -> RespValue {
    text(&format!("cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n"))
}

/// A reply to `CLUSTER SLOTS`.
pub(crate) fn slots(ranges: &[(u16, u16, &str)]) -> RespValue {
    let range = |&(first, last, host): &(u16, u16, &str)| {
        let node = RespValue::Array(vec![text(host), RespValue::Int(1), text(&id_of(host))]);
        RespValue::Array(vec![RespValue::Int(first.into()), RespValue::Int(last.into()), node])
    };
    RespValue::Array(ranges.iter().map(range).collect())
}

/// A reply to `CLUSTER SLOTS` that gives all slots to one node with this id.
pub(crate) fn all_slots_of(host: &str, id: &str) -> RespValue {
    let node = RespValue::Array(vec![text(host), RespValue::Int(1), text(id)]);
    let all = RespValue::Array(vec![RespValue::Int(0), RespValue::Int(16383), node]);
    RespValue::Array(vec![all])
}

/// The answer of a sentinel at that host to a subcommand of `SENTINEL`.
pub(super) fn sentinel_reply(
    host: &str,
    sentinel: Option<FakeSentinel>,
    subcommand: &str,
) -> FakeReply {
    let Some(FakeSentinel { id, epoch, takes, master, run_id, peers, bad_master }) = sentinel
    else {
        return refusal("ERR unknown command 'SENTINEL'");
    };
    let peers = peers.iter().map(|peer| peer.split_once('@').unwrap_or((peer, peer)));
    let peers: Vec<(&str, &str)> = peers.filter(|(_, peer_host)| *peer_host != host).collect();
    let list = |words: &[&str]| RespValue::Array(words.iter().map(|word| text(word)).collect());
    let unknown = || refusal("ERR No such master with that name");
    let Some(master) = master else {
        return match subcommand {
            "MYID" => FakeReply::Answer(text(&id_of(host))),
            "GET-MASTER-ADDR-BY-NAME" => FakeReply::Answer(RespValue::Nil),
            _ => unknown(),
        };
    };
    FakeReply::Delayed(
        takes,
        match subcommand {
            "MYID" => text(&id_of(id.unwrap_or(host))),
            "GET-MASTER-ADDR-BY-NAME" if bad_master => list(&[master, "0"]),
            "GET-MASTER-ADDR-BY-NAME" => list(&[master, "1"]),
            "MASTER" => {
                let (epoch, others) = (epoch.to_string(), peers.len().to_string());
                let own = format!("{master}-0123456789abcdef");
                let run_id = run_id.unwrap_or(&own);
                let place = ["ip", master, "port", "1", "runid", run_id];
                let rest = ["config-epoch", &epoch, "num-other-sentinels", &others];
                list(&[&place[..], &rest].concat())
            }
            _ => {
                let peer = |(id, host): &(&str, &str)| {
                    list(&["runid", &id_of(id), "ip", host, "port", "1"])
                };
                RespValue::Array(peers.iter().map(peer).collect())
            }
        },
    )
}
