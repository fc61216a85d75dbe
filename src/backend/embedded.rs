//! Connections to the servers in the process.

use std::sync::Arc;

use rwlease_core::resp::{Address, Command, RespValue};
use rwlease_embedded::EmbeddedCluster;
use rwlease_embedded::link::{CommandLink, LinkError, PubSubLink};

use super::{
    CommandConnection, ConnectionError, ConnectionFuture, Connector, OpenedCommands, OpenedPubSub,
    PubSubConnection, ResponseFuture,
};
use crate::health::ClientHealth;

/// Opens connections to the servers of one engine.
pub(crate) struct EmbeddedConnector {
    engine: EmbeddedCluster,
    health: ClientHealth,
}

impl EmbeddedConnector {
    pub(crate) fn new(engine: &EmbeddedCluster) -> Self {
        EmbeddedConnector { engine: engine.clone(), health: ClientHealth::default() }
    }
}

impl Connector for EmbeddedConnector {
    fn connect<'a>(
        &'a self,
        address: &'a Address,
        _: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedCommands> {
        Box::pin(async move {
            let link = self.engine.connect(address)?;
            Ok(Arc::new(EmbeddedCommands(link)) as Arc<dyn CommandConnection>)
        })
    }

    fn health(&self) -> ClientHealth {
        self.health.clone()
    }

    fn subscribe<'a>(
        &'a self,
        address: &'a Address,
        _: Option<&'a str>,
    ) -> ConnectionFuture<'a, OpenedPubSub> {
        Box::pin(async move {
            let (link, events) = self.engine.subscribe(address)?;
            Ok((Arc::new(EmbeddedPubSub(link)) as Arc<dyn PubSubConnection>, events))
        })
    }
}

struct EmbeddedCommands(CommandLink);

impl CommandConnection for EmbeddedCommands {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let link = self.0.clone();
        ResponseFuture::Boxed(Box::pin(async move {
            let mut replies = link.send(&[command]).await?;
            replies
                .pop()
                .ok_or_else(|| ConnectionError::not_sent("unexpected replies: none to a command"))
        }))
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        let (link, commands) = (self.0.clone(), commands.to_vec());
        ResponseFuture::Boxed(Box::pin(async move { Ok(link.send(&commands).await?) }))
    }

    fn is_usable(&self) -> bool {
        self.0.is_open()
    }
}

struct EmbeddedPubSub(PubSubLink);

impl PubSubConnection for EmbeddedPubSub {
    fn query<'a>(&'a self, command: &'a Command) -> ConnectionFuture<'a, RespValue> {
        Box::pin(async move { Ok(self.0.query(command).await?) })
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8], asking: bool) -> ConnectionFuture<'a, ()> {
        Box::pin(async move { Ok(self.0.subscribe(channel, asking)?) })
    }

    fn unsubscribe<'a>(&'a self, channel: &'a [u8]) -> ConnectionFuture<'a, ()> {
        Box::pin(async move { Ok(self.0.unsubscribe(channel)?) })
    }
}

impl From<LinkError> for ConnectionError {
    fn from(error: LinkError) -> Self {
        ConnectionError { maybe_sent: error.maybe_sent, ..ConnectionError::not_sent(error.message) }
    }
}
