use rwlease_core::resp::RespValue;

use crate::backend::fake::{address, all_slots_of, slots};
use crate::router::address_translation::AddressTranslator;
use crate::router::cluster::cluster_slots;
use crate::router::cluster::node_view::{ClusterView, NodeView, ReportedTopology};
use crate::router::cluster::slot_map::SlotMap;
use crate::router::connections::server_info::ServerProcess;

pub(crate) const BEFORE: [(u16, u16, &str); 3] =
    [(0, 5460, "a"), (5461, 10922, "b"), (10923, 16383, "c")];
pub(crate) const AFTER: [(u16, u16, &str); 3] =
    [(0, 5460, "d"), (5461, 10922, "b"), (10923, 16383, "c")];

pub(crate) fn map(ranges: &[(u16, u16, &str)]) -> SlotMap {
    map_in(&slots(ranges), "asked")
}

pub(crate) fn map_in(reply: &RespValue, asked: &str) -> SlotMap {
    cluster_slots::read(reply, &address(asked), &AddressTranslator::default()).unwrap().map
}

pub(crate) fn view(node: &str, ranges: &[(u16, u16, &str)], epoch: u64) -> NodeView {
    let (map, epoch, serves) = (map(ranges), Some(epoch), Some(true));
    let topology = ReportedTopology::Cluster(ClusterView { map, epoch, serves });
    NodeView { node: address(node), topology }
}

/// A view in which all slots are on a node with this id.
pub(crate) fn all_on(node: &str, host: &str, id: &str, epoch: u64) -> NodeView {
    let map = map_in(&all_slots_of(host, id), node);
    let topology =
        ReportedTopology::Cluster(ClusterView { map, epoch: Some(epoch), serves: Some(true) });
    NodeView { node: address(node), topology }
}

pub(crate) fn alone(node: &str, process: Option<&str>) -> NodeView {
    let process = process.map(|name| ServerProcess { name: name.into(), resolved_addr: None });
    let topology = ReportedTopology::Standalone(process);
    NodeView { node: address(node), topology }
}
