#[cfg(test)]
pub(crate) mod fixture;

use std::sync::Arc;

use rwlease_core::resp::{Address, Command, ReplyShape, RespValue};

use crate::backend::ConnectionError;
use crate::router::address_translation::AddressTranslator;
use crate::router::bad_entries::BadEntry;
use crate::router::cluster::cluster_slots::{self, ClusterSlots};
use crate::router::cluster::slot_map::SlotMap;
use crate::router::connections::limits::TimeLimit;
use crate::router::connections::server_connection::ServerConnection;
use crate::router::connections::server_info::{ServerProcess, field, is_standalone_error};

/// The view of the cluster that one node reports.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) node: Address,
    pub(crate) topology: ReportedTopology,
}

#[derive(Clone, Debug)]
pub(crate) enum ReportedTopology {
    /// The node has no cluster mode. Holds its process, if the node reports its run id.
    Standalone(Option<ServerProcess>),
    Cluster(ClusterView),
}

#[derive(Clone, Debug)]
pub(crate) struct ClusterView {
    pub(crate) map: SlotMap,
    /// `cluster_current_epoch`
    pub(crate) epoch: Option<u64>,
    /// Whether `cluster_state` is `ok`.
    pub(crate) serves: Option<bool>,
}

impl NodeView {
    /// `None` for a node without cluster mode.
    pub(crate) fn cluster(&self) -> Option<&ClusterView> {
        match &self.topology {
            ReportedTopology::Cluster(cluster) => Some(cluster),
            ReportedTopology::Standalone(_) => None,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.cluster().is_some()
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        self.cluster()?.epoch
    }

    /// A node that does not report its state is assumed to serve.
    pub(crate) fn is_serving(&self) -> bool {
        self.cluster().and_then(|cluster| cluster.serves).unwrap_or(true)
    }

    /// How many slots have a master in this view.
    pub(crate) fn served(&self) -> usize {
        self.cluster().map_or(0, |cluster| cluster.map.served())
    }

    pub(crate) fn has_same_masters(&self, other: &NodeView) -> bool {
        let both = self.cluster().zip(other.cluster());
        both.is_some_and(|(own, others)| own.map.has_same_masters(&others.map))
    }

    /// Returns true if the view's map has a node at that address.
    pub(crate) fn lists(&self, address: &Address) -> bool {
        self.cluster().is_some_and(|cluster| cluster.map.contains(address))
    }
}

/// The view of the node at `node`: the slot map, the epoch, and whether it serves. Calls `skip`
/// with each entry of the map that cannot be used.
pub(crate) async fn query_node_view(
    connection: &Arc<ServerConnection>,
    node: &Address,
    limit: TimeLimit,
    translation: &AddressTranslator,
    skip: impl Fn(BadEntry),
) -> Result<NodeView, ConnectionError> {
    let cluster = || Command::new().arg("CLUSTER");
    let commands = [
        cluster().arg("SLOTS").expecting(ReplyShape::List),
        cluster().arg("INFO").expecting(ReplyShape::Text),
    ];
    let mut replies = connection.query(node, &commands, limit).await?.into_iter();
    let topology = match replies.next().unwrap_or(RespValue::Nil) {
        RespValue::Error(error) if is_standalone_error(&error) => {
            ReportedTopology::Standalone(connection.observed_process())
        }
        RespValue::Error(error) => {
            let message = format!("{node} rejected CLUSTER SLOTS");
            return Err(ConnectionError {
                is_permanent: error.code == "NOPERM",
                ..ConnectionError::not_sent(message).with_source(error)
            });
        }
        reply => {
            let slots = cluster_slots::read(&reply, node, translation).map_err(|why| {
                ConnectionError::not_sent(format!(
                    "malformed reply to CLUSTER SLOTS from {node}: {why}"
                ))
            })?;
            let ClusterSlots { map, bad_entries } = slots;
            bad_entries.into_iter().for_each(skip);
            if map.is_empty() {
                return Err(ConnectionError::not_sent(format!(
                    "{node} reports no master of any slot; assign the slots"
                )));
            }
            let (epoch, serves) = parse_cluster_info(replies.next());
            ReportedTopology::Cluster(ClusterView { map, epoch, serves })
        }
    };
    let node = node.clone();
    Ok(NodeView { node, topology })
}

/// Epoch and state in the answer to `CLUSTER INFO`, as far as the server reports them.
fn parse_cluster_info(reply: Option<RespValue>) -> (Option<u64>, Option<bool>) {
    let Some(RespValue::String(info)) = reply else {
        return (None, None);
    };
    let epoch = field(&info, "cluster_current_epoch:").and_then(|epoch| epoch.parse().ok());
    (epoch, field(&info, "cluster_state:").map(|state| state == "ok"))
}

#[cfg(test)]
mod tests;
