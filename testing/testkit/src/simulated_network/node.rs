//! A connection that carries commands through the network.

use std::sync::Arc;

use rwlease::testing::{CommandConnection, ConnectionError, ResponseFuture};
use rwlease_core::resp::{Command, RespValue};
use tokio::sync::oneshot;

use super::line::{SimulatedStream, broken};
use super::{Delivery, MessageKind};

#[derive(Clone)]
pub(super) struct SimulatedCommands {
    line: Arc<SimulatedStream>,
    node: Arc<dyn CommandConnection>,
}

type SimulatedReplies = Result<Vec<RespValue>, ConnectionError>;

impl SimulatedCommands {
    pub(super) fn new(line: Arc<SimulatedStream>, node: Arc<dyn CommandConnection>) -> Self {
        SimulatedCommands { line, node }
    }

    /// Sends commands and waits for the answers. If the future is dropped, what was sent stays
    /// sent.
    async fn exchange(&self, commands: Vec<Command>) -> SimulatedReplies {
        if self.line.is_broken() {
            return Err(broken(false));
        }
        let fate = self.line.delivery_of(MessageKind::Commands, &commands);
        let (tell, told) = oneshot::channel();
        tokio::spawn(forward(self.line.clone(), self.node.clone(), commands, fate, tell));
        self.line.wait_reply(told).await
    }
}

/// Carries commands to the server and the answers back.
async fn forward(
    line: Arc<SimulatedStream>,
    node: Arc<dyn CommandConnection>,
    commands: Vec<Command>,
    fate: Delivery,
    tell: oneshot::Sender<SimulatedReplies>,
) {
    if !line.deliver_request(&fate).await {
        return;
    }
    let answers = node.pipeline(&commands).await;
    if let Some(later) = fate.duplicate_after {
        let clock = line.host.engine().clock();
        tokio::spawn(async move {
            clock.sleep_until(clock.now().saturating_add(later)).await;
            let _ = node.pipeline(&commands).await;
        });
    }
    line.return_reply(&fate, answers, tell).await;
}

impl CommandConnection for SimulatedCommands {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let node = self.clone();
        ResponseFuture::Boxed(Box::pin(async move {
            let mut replies = node.exchange(vec![command]).await?;
            replies
                .pop()
                .ok_or_else(|| ConnectionError::not_sent("unexpected replies: none to a command"))
        }))
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        let (node, commands) = (self.clone(), commands.to_vec());
        ResponseFuture::Boxed(Box::pin(async move { node.exchange(commands).await }))
    }

    fn is_usable(&self) -> bool {
        !self.line.is_broken()
    }
}
