//! How a client's calls reach the servers: by this library's own router, or by a cluster connection
//! of the application.

use std::sync::Arc;

use rwlease_core::protocol::{Call, CallError, CallReply, Confirmation};
use rwlease_core::resp::{Address, Command, RespValue};
use rwlease_core::time::LocalInstant;

use crate::router::Router;
use crate::router::calls::send_gate::SendGate;
#[cfg(feature = "cluster-async")]
use crate::router::cluster_adapter::ClusterAdapter;
use crate::router::connections::send_permit::Priority;
use crate::router::runtime::RuntimeHandle;
#[cfg(feature = "embedded")]
use crate::scripts::Scripts;

#[derive(Clone)]
pub(crate) enum Transport {
    Router(Arc<Router>),
    #[cfg(feature = "cluster-async")]
    ClusterConnection(Arc<ClusterAdapter>),
}

/// Does the same with either of them.
macro_rules! either {
    ($transport:expr, $it:ident => $action:expr) => {
        match $transport {
            Transport::Router($it) => $action,
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection($it) => $action,
        }
    };
}

/// The methods of [`Router`], for both. `ClusterAdapter` says which of them it limits.
impl Transport {
    /// `None` for a connection of the application: it does not say which server has a slot, and has
    /// no subscriptions. Without subscriptions there are no events, and waiters poll.
    pub(crate) fn router(&self) -> Option<&Router> {
        match self {
            Transport::Router(router) => Some(router),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(_) => None,
        }
    }

    /// The scripts that it sends.
    #[cfg(feature = "embedded")]
    pub(crate) fn scripts(&self) -> &'static Scripts {
        self.router().map_or_else(Scripts::embedded, |router| router.scripts)
    }

    /// [`Self::call_with`] without a confirmation and a gate.
    pub(crate) async fn call(
        &self,
        call: &Call,
        deadline: LocalInstant,
    ) -> Result<CallReply, CallError> {
        self.call_with(call, Confirmation::default(), deadline, None).await
    }

    pub(crate) async fn call_with(
        &self,
        call: &Call,
        confirmation: Confirmation,
        deadline: LocalInstant,
        gate: Option<&SendGate>,
    ) -> Result<CallReply, CallError> {
        either!(self, it => it.call_with(call, confirmation, deadline, gate).await)
    }

    pub(crate) async fn call_each(
        &self,
        calls: &[Call],
        deadline: LocalInstant,
        priority: Priority,
        on_reply: impl Fn(usize, Result<CallReply, CallError>) + Send + Sync,
    ) {
        either!(self, it => it.call_each(calls, deadline, priority, on_reply).await);
    }

    pub(crate) async fn query(
        &self,
        address: &Address,
        command: &Command,
        deadline: LocalInstant,
    ) -> Result<RespValue, CallError> {
        either!(self, it => it.query(address, command, deadline).await)
    }

    pub(crate) fn masters(&self) -> Vec<Address> {
        either!(self, it => it.masters())
    }

    pub(crate) fn runtime(&self) -> &RuntimeHandle {
        either!(self, it => &it.runtime)
    }

    pub(crate) fn close(&self) {
        either!(self, it => it.close());
    }
}
