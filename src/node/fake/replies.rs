//! What fake servers are called, and what they say.

use bytes::Bytes;

use crate::node::{Address, Reply, ServerError};

pub(crate) fn address(host: &str) -> Address {
    Address { host: host.into(), port: 1 }
}

pub(crate) fn text(text: &str) -> Reply {
    Reply::Text(Bytes::copy_from_slice(text.as_bytes()))
}

/// What a script says that ran at that moment of the server's clock.
pub(crate) fn ran(ms: u64) -> Reply {
    text(&format!("ok {ms} 0"))
}

pub(crate) fn server_error(text: &str) -> ServerError {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    ServerError { code: code.into(), detail: detail.into() }
}

/// The id of a node at that host.
pub(crate) fn id_of(host: &str) -> String {
    format!("{host}-id")
}

/// A reply to `CLUSTER INFO`.
pub(crate) fn cluster_info(state: &str, epoch: u64) -> Reply {
    text(&format!("cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n"))
}

/// A reply to `CLUSTER SLOTS`.
pub(crate) fn slots(ranges: &[(u16, u16, &str)]) -> Reply {
    let range = |&(first, last, host): &(u16, u16, &str)| {
        let node = Reply::List(vec![text(host), Reply::Int(1), text(&id_of(host))]);
        Reply::List(vec![Reply::Int(first.into()), Reply::Int(last.into()), node])
    };
    Reply::List(ranges.iter().map(range).collect())
}
