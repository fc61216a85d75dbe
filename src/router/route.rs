//! The way that a client's calls go: by this library's own router, or by a cluster connection of the application's.

use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Moment;
use crate::node::{Address, Reply, Words};
use crate::router::{Answer, Call, CallError, ClockBound, Listener, Router};
use crate::slot::Slot;

#[derive(Clone, Debug)]
pub(crate) enum Route {
    Own(Arc<Router>),
    #[cfg(feature = "cluster-async")]
    Shared(Arc<crate::router::Shared>),
}

impl Route {
    /// As [`Router::call`].
    pub(crate) async fn call(&self, call: &Call, deadline: Moment) -> Result<Answer, CallError> {
        match self {
            Route::Own(router) => router.call(call, deadline).await,
            #[cfg(feature = "cluster-async")]
            Route::Shared(shared) => shared.call(call, deadline).await,
        }
    }

    /// As [`Router::call_confirmed`].
    pub(crate) async fn call_confirmed(
        &self,
        call: &Call,
        replicas: u32,
        deadline: Moment,
    ) -> Result<Answer, CallError> {
        match self {
            Route::Own(router) => router.call_confirmed(call, replicas, deadline).await,
            #[cfg(feature = "cluster-async")]
            Route::Shared(shared) => shared.call_confirmed(call, replicas, deadline).await,
        }
    }

    /// As [`Router::each`].
    pub(crate) async fn each(
        &self,
        calls: &[Call],
        deadline: Moment,
        tell: impl Fn(usize, Result<Answer, CallError>) + Send + Sync,
    ) {
        match self {
            Route::Own(router) => router.each(calls, deadline, tell).await,
            #[cfg(feature = "cluster-async")]
            Route::Shared(shared) => shared.each(calls, deadline, tell).await,
        }
    }

    /// As [`Router::owner`].
    pub(crate) fn owner(&self, slot: Slot) -> Option<Address> {
        match self {
            Route::Own(router) => router.owner(slot),
            #[cfg(feature = "cluster-async")]
            Route::Shared(_) => None,
        }
    }

    /// As [`Router::bound`].
    pub(crate) fn bound(&self, address: &Address) -> Option<ClockBound> {
        match self {
            Route::Own(router) => router.bound(address),
            #[cfg(feature = "cluster-async")]
            Route::Shared(_) => None,
        }
    }

    /// As [`Router::masters`].
    pub(crate) fn masters(&self) -> Vec<Address> {
        match self {
            Route::Own(router) => router.masters(),
            #[cfg(feature = "cluster-async")]
            Route::Shared(shared) => shared.masters(),
        }
    }

    /// As [`Router::ask`].
    pub(crate) async fn ask(&self, address: &Address, command: &Words, deadline: Moment) -> Result<Reply, CallError> {
        match self {
            Route::Own(router) => router.ask(address, command, deadline).await,
            #[cfg(feature = "cluster-async")]
            Route::Shared(shared) => shared.ask().await,
        }
    }

    // Without subscriptions nobody hears of anything, and those who wait look by themselves.

    pub(crate) fn want(&self, slot: Slot, channel: Bytes) {
        match self {
            Route::Own(router) => router.subscriptions().want(slot, channel),
            #[cfg(feature = "cluster-async")]
            Route::Shared(_) => {}
        }
    }

    pub(crate) fn unwant(&self, slot: Slot) {
        match self {
            Route::Own(router) => router.subscriptions().unwant(slot),
            #[cfg(feature = "cluster-async")]
            Route::Shared(_) => {}
        }
    }

    pub(crate) fn joined_at(&self, slot: Slot) -> Option<String> {
        match self {
            Route::Own(router) => router.subscriptions().joined_at(slot),
            #[cfg(feature = "cluster-async")]
            Route::Shared(_) => None,
        }
    }

    /// As [`Subscriptions::listen`](crate::router::Subscriptions::listen). There is nothing to hear on a connection that is shared.
    pub(crate) fn listen(&self, listener: Listener) {
        match self {
            Route::Own(router) => router.subscriptions().listen(listener),
            #[cfg(feature = "cluster-async")]
            Route::Shared(_) => drop(listener),
        }
    }

    /// As [`Router::close`].
    pub(crate) async fn close(&self) {
        match self {
            Route::Own(router) => router.close().await,
            #[cfg(feature = "cluster-async")]
            Route::Shared(shared) => shared.close(),
        }
    }
}
