//! A connection that carries commands through the network.

use std::sync::Arc;

use futures::future::{self, Either};
use tokio::sync::oneshot;

use super::line::{Line, broken};
use super::{Fate, Kind};
use crate::node::{Answering, Command, Node, NodeError, Reply};

#[derive(Clone, Debug)]
pub(super) struct RemoteNode {
    line: Arc<Line>,
    node: Arc<dyn Node>,
}

type Answers = Result<Vec<Reply>, NodeError>;

impl RemoteNode {
    pub(super) fn new(line: Arc<Line>, node: Arc<dyn Node>) -> Self {
        RemoteNode { line, node }
    }

    /// Sends commands and waits for the answers. If the future is dropped, what was sent stays
    /// sent.
    async fn exchange(&self, commands: Vec<Command>) -> Answers {
        if self.line.is_broken() {
            return Err(broken(false));
        }
        let fate = self.line.fate(Kind::Commands, &commands);
        let (tell, told) = oneshot::channel();
        tokio::spawn(carry(self.line.clone(), self.node.clone(), commands, fate, tell));
        match future::select(told, Box::pin(self.line.broken())).await {
            Either::Left((Ok(answers), _)) => answers,
            Either::Left((Err(_), broke)) => {
                broke.await; // the answer will not come
                Err(broken(true))
            }
            Either::Right(_) => Err(broken(true)),
        }
    }
}

/// Carries commands to the server and the answers back.
async fn carry(
    line: Arc<Line>,
    node: Arc<dyn Node>,
    commands: Vec<Command>,
    fate: Fate,
    tell: oneshot::Sender<Answers>,
) {
    if !line.travel_there(&fate).await {
        return;
    }
    let answers = node.pipeline(&commands).await;
    if let Some(later) = fate.again {
        let clock = line.host().engine().clock();
        tokio::spawn(async move {
            clock.sleep_until(clock.now().after(later)).await;
            let _ = node.pipeline(&commands).await;
        });
    }
    if line.travel_back(&fate).await {
        if answers.is_err() {
            line.break_up();
        }
        let _ = tell.send(answers); // the caller may have given up
    }
}

impl Node for RemoteNode {
    fn call(&self, command: Command) -> Answering<Reply> {
        let node = self.clone();
        Answering::Future(Box::pin(async move {
            let mut replies = node.exchange(vec![command]).await?;
            replies.pop().ok_or_else(|| NodeError::unsent("nothing was sent"))
        }))
    }

    fn pipeline(&self, commands: &[Command]) -> Answering<Vec<Reply>> {
        let (node, commands) = (self.clone(), commands.to_vec());
        Answering::Future(Box::pin(async move { node.exchange(commands).await }))
    }

    fn is_usable(&self) -> bool {
        !self.line.is_broken()
    }
}
