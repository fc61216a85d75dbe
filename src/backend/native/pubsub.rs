//! A connection that carries subscriptions.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use rwlease_core::resp::{Command, RespValue};

use crate::backend::dialer::PubSubKind;
use crate::backend::native::NativeConnection;
use crate::backend::native::pending_replies::PendingReply;
use crate::backend::{ConnectionError, ConnectionFuture, MessageHandler, PubSubConnection};

pub(super) struct NativePubSub {
    connection: NativeConnection,
    channels: PubSubKind,
    handler: Arc<OnceLock<MessageHandler>>,
}

impl NativePubSub {
    pub(super) fn new(
        connection: NativeConnection,
        channels: PubSubKind,
        handler: Arc<OnceLock<MessageHandler>>,
    ) -> Self {
        NativePubSub { connection, channels, handler }
    }
}

impl PubSubConnection for NativePubSub {
    fn set_handler(&self, handler: MessageHandler) {
        let _ = self.handler.set(handler); // the first one stays
    }

    fn failure(&self) -> Option<ConnectionError> {
        self.connection.wire.failure()
    }

    fn query<'a>(&'a self, command: &'a Command) -> ConnectionFuture<'a, RespValue> {
        async move {
            let mut replies = self.connection.exchange(std::slice::from_ref(command)).await?;
            Ok(replies.pop().unwrap_or(RespValue::Nil))
        }
        .boxed()
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8], asking: bool) -> ConnectionFuture<'a, ()> {
        let prefix = asking.then(|| (Command::asking(), PendingReply::Discarded));
        let join = self.channels.subscribe_command(channel);
        let joined = PendingReply::Subscribe(Bytes::copy_from_slice(channel));
        let (commands, expected): (Vec<_>, Vec<_>) =
            prefix.into_iter().chain([(join, joined)]).unzip();
        async move { self.connection.wire.push_all(&commands, expected) }.boxed()
    }

    fn unsubscribe<'a>(&'a self, channel: &'a [u8]) -> ConnectionFuture<'a, ()> {
        let leave = self.channels.unsubscribe_command(channel);
        let left = PendingReply::Unsubscribe(Bytes::copy_from_slice(channel));
        async move { self.connection.wire.push_all(&[leave], [left]) }.boxed()
    }
}
