//! Queries a node for its view of the cluster.

use std::sync::Arc;

use crate::node::{Address, Command, NodeError, Reply, ReplyShape, ServerError};
use crate::router::bad_entries::BadEntry;
use crate::router::belief::{Identity, Told, View};
use crate::router::cluster_slots::{self, ClusterSlots};
use crate::router::connection::Connection;
use crate::router::time_limit::TimeLimit;
use crate::router::translation::Translation;

/// The view of the node at `node`: the slot map, the epoch, and whether it serves. Calls `skip`
/// with each entry of the map that cannot be used.
pub(crate) async fn view(
    connection: &Arc<Connection>,
    node: &Address,
    limit: TimeLimit,
    translation: &Translation,
    skip: impl Fn(BadEntry),
) -> Result<View, NodeError> {
    let cluster = || Command::new().word("CLUSTER");
    let commands = [
        cluster().word("SLOTS").expecting(ReplyShape::List),
        cluster().word("INFO").expecting(ReplyShape::Text),
    ];
    let mut replies = connection.query(node, &commands, limit).await?.into_iter();
    let told = match replies.next().unwrap_or(Reply::Nil) {
        Reply::Error(error) if is_alone(&error) => Told::Alone(connection.met()),
        Reply::Error(error) => {
            let message = format!("{node} refused CLUSTER SLOTS: {error}");
            return Err(NodeError {
                permanent: error.code == "NOPERM",
                source: Some(Arc::new(error)),
                ..NodeError::unsent(message)
            });
        }
        reply => {
            let slots = cluster_slots::read(&reply, node, translation).map_err(|why| {
                NodeError::unsent(format!("malformed reply to CLUSTER SLOTS from {node}: {why}"))
            })?;
            let ClusterSlots { map, bad_entries } = slots;
            bad_entries.into_iter().for_each(skip);
            if map.is_empty() {
                return Err(NodeError::unsent(format!("{node} knows no master of any slot")));
            }
            let (epoch, serves) = standing(replies.next());
            Told::Cluster { map, epoch, serves }
        }
    };
    let node = node.clone();
    Ok(View { node, told })
}

impl Identity {
    /// The identity in the answer to `CLUSTER MYID`. A server that is starting or busy does not
    /// show its identity, so it is queried again.
    pub(crate) fn told(reply: Option<Reply>) -> Result<Identity, NodeError> {
        Ok(match reply {
            Some(Reply::Text(id)) if !id.is_empty() => {
                Identity::Node(String::from_utf8_lossy(&id).into())
            }
            Some(Reply::Error(error)) if is_alone(&error) => Identity::Alone,
            Some(Reply::Error(error))
                if matches!(error.code.as_str(), "LOADING" | "BUSY" | "MASTERDOWN") =>
            {
                let message = error.to_string();
                return Err(NodeError {
                    source: Some(Arc::new(error)),
                    ..NodeError::unsent(message)
                });
            }
            _ => Identity::Unknown,
        })
    }
}

const DISABLED: &str = "cluster support disabled";

/// Returns true if the server is no cluster node: it serves all slots.
fn is_alone(error: &ServerError) -> bool {
    error.code == "ERR"
        && (error.detail.contains(DISABLED) || error.detail.starts_with("unknown command"))
}

/// Epoch and state in the answer to `CLUSTER INFO`, as far as the server reports them.
fn standing(reply: Option<Reply>) -> (Option<u64>, Option<bool>) {
    let Some(Reply::Text(info)) = reply else {
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

    fn text(text: &'static str) -> Reply {
        Reply::Text(text.into())
    }

    fn error(detail: &str) -> Reply {
        Reply::Error(ServerError { code: "ERR".into(), detail: detail.into() })
    }

    #[test]
    fn epoch_and_state_are_read() {
        let info = "cluster_state:ok\r\ncluster_slots_ok:16384\r\ncluster_current_epoch:12\r\ncluster_my_epoch:2\r\n";
        assert_eq!(standing(Some(text(info))), (Some(12), Some(true)));
        assert_eq!(standing(Some(text("cluster_state:fail\r\n"))), (None, Some(false)));
        assert_eq!(standing(Some(text("cluster_current_epoch:x"))), (None, None));
        assert_eq!(standing(Some(error("unknown subcommand"))), (None, None));
        assert_eq!(standing(None), (None, None));
    }

    #[test]
    fn identity_told_by_unusable_myid_reply_is_unknown() {
        assert_eq!(Identity::told(Some(text("abc"))).unwrap(), Identity::Node("abc".into()));
        let disabled = error("This instance has cluster support disabled");
        assert_eq!(Identity::told(Some(disabled)).unwrap(), Identity::Alone);
        let renamed = error("unknown command `CLUSTER`, with args beginning with: `MYID`");
        assert_eq!(Identity::told(Some(renamed)).unwrap(), Identity::Alone);
        for reply in [error("unknown subcommand 'MYID'"), text(""), Reply::Nil] {
            assert_eq!(
                Identity::told(Some(reply.clone())).unwrap(),
                Identity::Unknown,
                "{reply:?}"
            );
        }
        assert_eq!(Identity::told(None).unwrap(), Identity::Unknown);
        let loading = Reply::Error(ServerError {
            code: "LOADING".into(),
            detail: "Redis is loading the dataset in memory".into(),
        });
        assert!(Identity::told(Some(loading)).is_err(), "it is asked again");
    }
}
