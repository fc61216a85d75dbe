//! A connection that carries subscriptions.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;

use crate::node::dialer::Channels;
use crate::node::native::Connection;
use crate::node::native::expected::Expected;
use crate::node::{Command, MessageHandler, NodeError, NodeFuture, Reply, Subscription};

pub(super) struct NativeSubscription {
    connection: Connection,
    channels: Channels,
    handler: Arc<OnceLock<MessageHandler>>,
}

impl NativeSubscription {
    pub(super) fn new(
        connection: Connection,
        channels: Channels,
        handler: Arc<OnceLock<MessageHandler>>,
    ) -> Self {
        NativeSubscription { connection, channels, handler }
    }
}

impl fmt::Debug for NativeSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NativeSubscription")
    }
}

impl Subscription for NativeSubscription {
    fn set_handler(&self, handler: MessageHandler) {
        let _ = self.handler.set(handler); // the first one stays
    }

    fn failure(&self) -> Option<NodeError> {
        self.connection.wire.failure()
    }

    fn query<'a>(&'a self, command: &'a Command) -> NodeFuture<'a, Reply> {
        async move {
            let mut replies = self.connection.exchange(std::slice::from_ref(command)).await?;
            Ok(replies.pop().unwrap_or(Reply::Nil))
        }
        .boxed()
    }

    fn join<'a>(&'a self, channel: &'a [u8], asking: bool) -> NodeFuture<'a, ()> {
        let prefix = asking.then(|| (Command::asking(), Expected::Anything));
        let join = self.channels.join(channel);
        let joined = Expected::Join(Bytes::copy_from_slice(channel));
        let (commands, expected): (Vec<_>, Vec<_>) =
            prefix.into_iter().chain([(join, joined)]).unzip();
        async move { self.connection.wire.put(&commands, expected) }.boxed()
    }

    fn leave<'a>(&'a self, channel: &'a [u8]) -> NodeFuture<'a, ()> {
        let leave = self.channels.leave(channel);
        let left = Expected::Leave(Bytes::copy_from_slice(channel));
        async move { self.connection.wire.put(&[leave], [left]) }.boxed()
    }
}
