//! How a client's calls reach the servers: by this library's own router, or by a cluster connection
//! of the application.

use std::sync::Arc;

use bytes::Bytes;

use crate::backend::{Address, Command, RespValue};
use crate::clock::LocalInstant;
use crate::router::{
    Call, CallError, CallReply, ClockBounds, EventListener, Priority, Router, RuntimeHandle,
};
use crate::slot::Slot;

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Router(Arc<Router>),
    #[cfg(feature = "cluster-async")]
    ClusterConnection(Arc<crate::router::ClusterAdapter>),
}

impl Transport {
    /// As [`Router::call`].
    pub(crate) async fn call(
        &self,
        call: &Call,
        deadline: LocalInstant,
    ) -> Result<CallReply, CallError> {
        match self {
            Transport::Router(router) => router.call(call, deadline).await,
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(adapter) => adapter.call(call, deadline).await,
        }
    }

    /// As [`Router::call_replicated`].
    pub(crate) async fn call_replicated(
        &self,
        call: &Call,
        replicas: u32,
        deadline: LocalInstant,
    ) -> Result<CallReply, CallError> {
        match self {
            Transport::Router(router) => router.call_replicated(call, replicas, deadline).await,
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(adapter) => {
                adapter.call_replicated(call, replicas, deadline).await
            }
        }
    }

    /// As [`Router::call_each`].
    pub(crate) async fn each(
        &self,
        calls: &[Call],
        deadline: LocalInstant,
        priority: Priority,
        tell: impl Fn(usize, Result<CallReply, CallError>) + Send + Sync,
    ) {
        match self {
            Transport::Router(router) => router.call_each(calls, deadline, priority, tell).await,
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(adapter) => adapter.each(calls, deadline, tell).await,
        }
    }

    /// As [`Router::master_of`].
    pub(crate) fn master_of(&self, slot: Slot) -> Option<Address> {
        match self {
            Transport::Router(router) => router.master_of(slot),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(_) => None,
        }
    }

    /// As [`Router::clock_bounds`].
    pub(crate) fn bound(&self, address: &Address) -> Option<ClockBounds> {
        match self {
            Transport::Router(router) => router.clock_bounds(address),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(_) => None,
        }
    }

    /// As [`Router::masters`].
    pub(crate) fn masters(&self) -> Vec<Address> {
        match self {
            Transport::Router(router) => router.masters(),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(adapter) => adapter.masters(),
        }
    }

    /// As [`Router::query`].
    pub(crate) async fn query(
        &self,
        address: &Address,
        command: &Command,
        deadline: LocalInstant,
    ) -> Result<RespValue, CallError> {
        match self {
            Transport::Router(router) => router.query(address, command, deadline).await,
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(adapter) => adapter.query().await,
        }
    }

    // Without subscriptions there are no events, and waiters poll.

    pub(crate) fn want(&self, slot: Slot, channel: Bytes) {
        match self {
            Transport::Router(router) => router.subscriptions().subscribe(slot, channel),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(_) => {}
        }
    }

    pub(crate) fn unwant(&self, slot: Slot) {
        match self {
            Transport::Router(router) => router.subscriptions().unsubscribe(slot),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(_) => {}
        }
    }

    pub(crate) fn joined_at(&self, slot: Slot) -> Option<String> {
        match self {
            Transport::Router(router) => router.subscriptions().subscribed_server(slot),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(_) => None,
        }
    }

    /// As [`Subscriptions::set_listener`](crate::router::Subscriptions::set_listener). The
    /// application's connection brings no events.
    pub(crate) fn listen(&self, listener: EventListener) {
        match self {
            Transport::Router(router) => router.subscriptions().set_listener(listener),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(_) => drop(listener),
        }
    }

    /// As [`Router::runtime`].
    pub(crate) fn runtime(&self) -> &RuntimeHandle {
        match self {
            Transport::Router(router) => router.runtime(),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(adapter) => adapter.runtime(),
        }
    }

    /// As [`Router::close`].
    pub(crate) fn close(&self) {
        match self {
            Transport::Router(router) => router.close(),
            #[cfg(feature = "cluster-async")]
            Transport::ClusterConnection(adapter) => adapter.close(),
        }
    }
}
