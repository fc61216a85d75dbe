use rwlease_core::resp::Address;

use crate::backend::ConnectionError;

/// Why a server is not a member of the deployment. The client sends it no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnexpectedServer {
    #[error("it is a server without cluster mode; a node of the cluster is expected there")]
    Standalone,
    #[error("it is a node of another cluster")]
    OtherCluster,
    #[error("it is another server of the same name, and the original one may still run")]
    OtherServer,
    #[error("it is no longer the master: the sentinels name another server")]
    Replaced,
    #[error("it is a replica; the sentinels name it as the master")]
    Replica,
    #[error("its run id is not that of the master that the sentinels name")]
    OtherProcess,
    #[error("it is a node of a cluster; the sentinels name it as a single server")]
    ClusterNode,
    #[error("it is a sentinel of another deployment")]
    OtherSentinel,
}

impl UnexpectedServer {
    /// The failure for the server at this address.
    pub(crate) fn at(self, address: &Address) -> ConnectionError {
        let message = format!("{address} is not a member of this deployment");
        ConnectionError::not_sent(message).with_source(self)
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            UnexpectedServer::Standalone => "standalone",
            UnexpectedServer::OtherCluster => "other_cluster",
            UnexpectedServer::OtherServer => "other_server",
            UnexpectedServer::Replaced => "replaced",
            UnexpectedServer::Replica => "replica",
            UnexpectedServer::OtherProcess => "other_process",
            UnexpectedServer::ClusterNode => "cluster_node",
            UnexpectedServer::OtherSentinel => "other_sentinel",
        }
    }
}
