//! A pending answer.

#[cfg(feature = "native")]
use std::any::Any;
use std::fmt;
use std::pin::Pin;
#[cfg(feature = "native")]
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(feature = "native")]
use tokio::sync::oneshot;

use crate::node::{NodeError, NodeFuture};

/// A pending answer. It borrows nothing, so another task can await it after the caller has given
/// up.
pub(crate) enum Answering<T> {
    /// A task of the connection completes it. This needs no box, and no future of the backend's
    /// own.
    #[cfg(feature = "native")]
    Told {
        told: oneshot::Receiver<Result<T, NodeError>>,
        _kept: Kept,
    },
    Future(NodeFuture<'static, T>),
}

/// What the answer needs and keeps alive until it has come: the connection.
#[cfg(feature = "native")]
pub(crate) type Kept = Arc<dyn Any + Send + Sync>;

impl<T> Future for Answering<T> {
    type Output = Result<T, NodeError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            #[cfg(feature = "native")]
            Answering::Told { told, .. } => Pin::new(told)
                .poll(context)
                .map(|told| told.unwrap_or_else(|_| Err(NodeError::gone_unanswered()))),
            Answering::Future(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> From<NodeFuture<'static, T>> for Answering<T> {
    fn from(future: NodeFuture<'static, T>) -> Self {
        Answering::Future(future)
    }
}

impl<T> fmt::Debug for Answering<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}
