//! A connection that carries subscriptions through the network.

use std::sync::Arc;

use futures::future::{self, Either};
use tokio::sync::{mpsc, oneshot};

use super::line::{Line, broken};
use super::{Fate, Kind};
use crate::node::{Command, NodeError, NodeFuture, Notice, Reply, Subscribed, Subscription};

#[derive(Debug)]
pub(super) struct RemoteSubscription {
    line: Arc<Line>,
    requests: mpsc::UnboundedSender<Request>,
}

type Answer = Result<Reply, NodeError>;

#[derive(Debug)]
enum Request {
    Ask { command: Box<Command>, tell: oneshot::Sender<Answer> },
    Join { channel: Vec<u8>, asking: bool },
    Leave { channel: Vec<u8> },
}

impl RemoteSubscription {
    pub(super) fn open(line: Arc<Line>, (subscription, notices): Subscribed) -> Subscribed {
        let (requests, requested) = mpsc::unbounded_channel();
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(obey(line.clone(), subscription, requested));
        tokio::spawn(tell_all(line.clone(), notices, tell));
        (Arc::new(RemoteSubscription { line, requests }), told)
    }

    fn request(&self, request: Request) -> Result<(), NodeError> {
        if self.line.is_broken() || self.requests.send(request).is_err() {
            return Err(broken(true));
        }
        Ok(())
    }
}

impl Subscription for RemoteSubscription {
    fn query<'a>(&'a self, command: &'a Command) -> NodeFuture<'a, Reply> {
        Box::pin(async move {
            let (tell, told) = oneshot::channel();
            let command = Box::new(command.clone());
            self.request(Request::Ask { command, tell })?;
            match future::select(told, Box::pin(self.line.broken())).await {
                Either::Left((Ok(answer), _)) => answer,
                Either::Left((Err(_), broke)) => {
                    broke.await; // the answer will not come
                    Err(broken(true))
                }
                Either::Right(_) => Err(broken(true)),
            }
        })
    }

    fn join<'a>(&'a self, channel: &'a [u8], asking: bool) -> NodeFuture<'a, ()> {
        Box::pin(async move { self.request(Request::Join { channel: channel.to_vec(), asking }) })
    }

    fn leave<'a>(&'a self, channel: &'a [u8]) -> NodeFuture<'a, ()> {
        Box::pin(async move { self.request(Request::Leave { channel: channel.to_vec() }) })
    }
}

/// Carries commands to the server, until one end has closed the connection and the other has
/// learned of it.
async fn obey(
    line: Arc<Line>,
    subscription: Arc<dyn Subscription>,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    loop {
        let request = tokio::select! {
            biased;
            () = line.ended() => return,
            request = requests.recv() => request,
        };
        let Some(request) = request else { return };
        let fate = line.fate(Kind::Subscribe, &[]);
        if !line.travel_there(&fate).await {
            continue;
        }
        let done = match request {
            Request::Ask { command, tell } => {
                let answer = subscription.query(&command).await;
                tokio::spawn(bring_back(line.clone(), fate, answer, tell));
                continue;
            }
            Request::Join { channel, asking } => subscription.join(&channel, asking).await,
            Request::Leave { channel } => subscription.leave(&channel).await,
        };
        if done.is_err() && line.travel_back(&fate).await {
            line.break_up();
            return;
        }
    }
}

async fn bring_back(line: Arc<Line>, fate: Fate, answer: Answer, tell: oneshot::Sender<Answer>) {
    if line.travel_back(&fate).await {
        if answer.is_err() {
            line.break_up();
        }
        let _ = tell.send(answer); // the caller may have given up
    }
}

/// Carries notices to the client, until the connection is broken at one end.
async fn tell_all(
    line: Arc<Line>,
    mut notices: mpsc::UnboundedReceiver<Notice>,
    tell: mpsc::UnboundedSender<Notice>,
) {
    loop {
        let notice = tokio::select! {
            biased;
            () = line.broken() => return,
            notice = notices.recv() => notice,
        };
        let Some(notice) = notice else {
            if line.travel_back(&line.fate(Kind::Notice, &[])).await {
                line.break_up();
            } else {
                line.broken().await;
            }
            return;
        };
        let (line, tell) = (line.clone(), tell.clone());
        let fate = line.fate(Kind::Notice, &[]);
        tokio::spawn(async move {
            if line.travel_back(&fate).await {
                let _ = tell.send(notice);
            }
        });
    }
}
