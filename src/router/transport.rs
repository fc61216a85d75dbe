//! How a client's calls reach the servers: by this library's own router, or by a cluster connection
//! of the application.

use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Moment;
use crate::node::{Address, Command, Reply};
use crate::router::{Answer, Call, CallError, ClockBound, Listener, Priority, Router, Runtime};
use crate::slot::Slot;

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Own(Arc<Router>),
    #[cfg(feature = "cluster-async")]
    Adapter(Arc<crate::router::ClusterAdapter>),
}

impl Transport {
    /// As [`Router::call`].
    pub(crate) async fn call(&self, call: &Call, deadline: Moment) -> Result<Answer, CallError> {
        match self {
            Transport::Own(router) => router.call(call, deadline).await,
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(adapter) => adapter.call(call, deadline).await,
        }
    }

    /// As [`Router::call_replicated`].
    pub(crate) async fn call_replicated(
        &self,
        call: &Call,
        replicas: u32,
        deadline: Moment,
    ) -> Result<Answer, CallError> {
        match self {
            Transport::Own(router) => router.call_replicated(call, replicas, deadline).await,
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(adapter) => adapter.call_replicated(call, replicas, deadline).await,
        }
    }

    /// As [`Router::each`].
    pub(crate) async fn each(
        &self,
        calls: &[Call],
        deadline: Moment,
        priority: Priority,
        tell: impl Fn(usize, Result<Answer, CallError>) + Send + Sync,
    ) {
        match self {
            Transport::Own(router) => router.each(calls, deadline, priority, tell).await,
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(adapter) => adapter.each(calls, deadline, tell).await,
        }
    }

    /// As [`Router::master_of`].
    pub(crate) fn master_of(&self, slot: Slot) -> Option<Address> {
        match self {
            Transport::Own(router) => router.master_of(slot),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(_) => None,
        }
    }

    /// As [`Router::bound`].
    pub(crate) fn bound(&self, address: &Address) -> Option<ClockBound> {
        match self {
            Transport::Own(router) => router.bound(address),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(_) => None,
        }
    }

    /// As [`Router::masters`].
    pub(crate) fn masters(&self) -> Vec<Address> {
        match self {
            Transport::Own(router) => router.masters(),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(adapter) => adapter.masters(),
        }
    }

    /// As [`Router::query`].
    pub(crate) async fn query(
        &self,
        address: &Address,
        command: &Command,
        deadline: Moment,
    ) -> Result<Reply, CallError> {
        match self {
            Transport::Own(router) => router.query(address, command, deadline).await,
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(adapter) => adapter.query().await,
        }
    }

    // Without subscriptions there are no events, and waiters poll.

    pub(crate) fn want(&self, slot: Slot, channel: Bytes) {
        match self {
            Transport::Own(router) => router.subscriptions().want(slot, channel),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(_) => {}
        }
    }

    pub(crate) fn unwant(&self, slot: Slot) {
        match self {
            Transport::Own(router) => router.subscriptions().unwant(slot),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(_) => {}
        }
    }

    pub(crate) fn joined_at(&self, slot: Slot) -> Option<String> {
        match self {
            Transport::Own(router) => router.subscriptions().joined_at(slot),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(_) => None,
        }
    }

    /// As [`Subscriptions::listen`](crate::router::Subscriptions::listen). The application's
    /// connection brings no events.
    pub(crate) fn listen(&self, listener: Listener) {
        match self {
            Transport::Own(router) => router.subscriptions().listen(listener),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(_) => drop(listener),
        }
    }

    /// As [`Router::runtime`].
    pub(crate) fn runtime(&self) -> &Runtime {
        match self {
            Transport::Own(router) => router.runtime(),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(adapter) => adapter.runtime(),
        }
    }

    /// As [`Router::close`].
    pub(crate) fn close(&self) {
        match self {
            Transport::Own(router) => router.close(),
            #[cfg(feature = "cluster-async")]
            Transport::Adapter(adapter) => adapter.close(),
        }
    }
}
