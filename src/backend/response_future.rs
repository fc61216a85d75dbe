//! A pending answer.

use std::pin::Pin;
#[cfg(feature = "native")]
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(feature = "native")]
use tokio::sync::oneshot;

#[cfg(feature = "native")]
use crate::backend::native::NativeConnection;
use crate::backend::{ConnectionError, ConnectionFuture};

/// A pending answer. It borrows nothing, so another task can await it after the caller has given
/// up.
pub enum ResponseFuture<T> {
    /// A task of the connection completes it. This needs no box, and no future of the backend's
    /// own.
    #[cfg(feature = "native")]
    Channel {
        reply_rx: oneshot::Receiver<Result<T, ConnectionError>>,
        /// The connection, which stays alive until the reply has arrived.
        connection: Arc<NativeConnection>,
    },
    Boxed(ConnectionFuture<'static, T>),
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T, ConnectionError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            #[cfg(feature = "native")]
            ResponseFuture::Channel { reply_rx, connection } => {
                Pin::new(reply_rx).poll(context).map(|reply| {
                    let reply = reply.unwrap_or_else(|_| Err(ConnectionError::closed_in_flight()));
                    reply.and_then(|value| connection.out_of_step().map_or(Ok(value), Err))
                })
            }
            ResponseFuture::Boxed(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> From<ConnectionFuture<'static, T>> for ResponseFuture<T> {
    fn from(future: ConnectionFuture<'static, T>) -> Self {
        ResponseFuture::Boxed(future)
    }
}
