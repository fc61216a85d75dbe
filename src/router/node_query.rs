//! Queries a node for its view of the cluster.

use std::sync::Arc;

use crate::backend::{Address, Command, ConnectionError, ReplyShape, RespValue, ServerError};
use crate::router::address_translation::AddressTranslator;
use crate::router::bad_entries::BadEntry;
use crate::router::belief::{NodeView, ReportedTopology, ServerIdentity};
use crate::router::cluster_slots::{self, ClusterSlots};
use crate::router::connection::ServerConnection;
use crate::router::time_limit::TimeLimit;

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
    let told = match replies.next().unwrap_or(RespValue::Nil) {
        RespValue::Error(error) if is_standalone_error(&error) => {
            ReportedTopology::Standalone(connection.observed_process())
        }
        RespValue::Error(error) => {
            let message = format!("{node} refused CLUSTER SLOTS: {error}");
            return Err(ConnectionError {
                is_permanent: error.code == "NOPERM",
                source: Some(Arc::new(error)),
                ..ConnectionError::not_sent(message)
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
                    "{node} knows no master of any slot"
                )));
            }
            let (epoch, serves) = parse_cluster_info(replies.next());
            ReportedTopology::Cluster { map, epoch, serves }
        }
    };
    let node = node.clone();
    Ok(NodeView { node, topology: told })
}

impl ServerIdentity {
    /// The identity in the answer to `CLUSTER MYID`. A server that is starting or busy does not
    /// show its identity, so it is queried again.
    pub(crate) fn from_reply(reply: Option<RespValue>) -> Result<ServerIdentity, ConnectionError> {
        Ok(match reply {
            Some(RespValue::String(id)) if !id.is_empty() => {
                ServerIdentity::ClusterNode(String::from_utf8_lossy(&id).into())
            }
            Some(RespValue::Error(error)) if is_standalone_error(&error) => {
                ServerIdentity::Standalone
            }
            Some(RespValue::Error(error))
                if matches!(error.code.as_str(), "LOADING" | "BUSY" | "MASTERDOWN") =>
            {
                let message = error.to_string();
                return Err(ConnectionError {
                    source: Some(Arc::new(error)),
                    ..ConnectionError::not_sent(message)
                });
            }
            _ => ServerIdentity::Unknown,
        })
    }
}

const DISABLED: &str = "cluster support disabled";

/// Returns true if the server is no cluster node: it serves all slots.
fn is_standalone_error(error: &ServerError) -> bool {
    error.code == "ERR"
        && (error.message.contains(DISABLED) || error.message.starts_with("unknown command"))
}

/// Epoch and state in the answer to `CLUSTER INFO`, as far as the server reports them.
fn parse_cluster_info(reply: Option<RespValue>) -> (Option<u64>, Option<bool>) {
    let Some(RespValue::String(info)) = reply else {
        return (None, None);
    };
    let info = String::from_utf8_lossy(&info);
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim)
    };
    let epoch = field("cluster_current_epoch").and_then(|epoch| epoch.parse().ok());
    (epoch, field("cluster_state").map(|state| state == "ok"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> RespValue {
        RespValue::String(text.into())
    }

    fn error(detail: &str) -> RespValue {
        RespValue::Error(ServerError { code: "ERR".into(), message: detail.into() })
    }

    #[test]
    fn epoch_and_state_are_read() {
        let info = "cluster_state:ok\r\ncluster_slots_ok:16384\r\ncluster_current_epoch:12\r\ncluster_my_epoch:2\r\n";
        assert_eq!(parse_cluster_info(Some(text(info))), (Some(12), Some(true)));
        assert_eq!(parse_cluster_info(Some(text("cluster_state:fail\r\n"))), (None, Some(false)));
        assert_eq!(parse_cluster_info(Some(text("cluster_current_epoch:x"))), (None, None));
        assert_eq!(parse_cluster_info(Some(error("unknown subcommand"))), (None, None));
        assert_eq!(parse_cluster_info(None), (None, None));
    }

    #[test]
    fn identity_told_by_unusable_myid_reply_is_unknown() {
        assert_eq!(
            ServerIdentity::from_reply(Some(text("abc"))).unwrap(),
            ServerIdentity::ClusterNode("abc".into())
        );
        let disabled = error("This instance has cluster support disabled");
        assert_eq!(ServerIdentity::from_reply(Some(disabled)).unwrap(), ServerIdentity::Standalone);
        let renamed = error("unknown command `CLUSTER`, with args beginning with: `MYID`");
        assert_eq!(ServerIdentity::from_reply(Some(renamed)).unwrap(), ServerIdentity::Standalone);
        for reply in [error("unknown subcommand 'MYID'"), text(""), RespValue::Nil] {
            assert_eq!(
                ServerIdentity::from_reply(Some(reply.clone())).unwrap(),
                ServerIdentity::Unknown,
                "{reply:?}"
            );
        }
        assert_eq!(ServerIdentity::from_reply(None).unwrap(), ServerIdentity::Unknown);
        let loading = RespValue::Error(ServerError {
            code: "LOADING".into(),
            message: "Redis is loading the dataset in memory".into(),
        });
        assert!(ServerIdentity::from_reply(Some(loading)).is_err(), "it is asked again");
    }
}
