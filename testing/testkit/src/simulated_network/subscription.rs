//! A connection that carries subscriptions through the network.

use std::sync::Arc;

use rwlease::testing::{ConnectionError, ConnectionFuture, OpenedPubSub, PubSubConnection};
use rwlease_core::resp::{Command, PubSubEvent, RespValue};
use tokio::sync::{mpsc, oneshot};

use super::MessageKind;
use super::line::{SimulatedStream, broken};

#[derive(Debug)]
pub(super) struct SimulatedPubSub {
    line: Arc<SimulatedStream>,
    requests: mpsc::UnboundedSender<PubSubRequest>,
}

type PubSubReply = Result<RespValue, ConnectionError>;

#[derive(Debug)]
enum PubSubRequest {
    Ask { command: Box<Command>, tell: oneshot::Sender<PubSubReply> },
    Join { channel: Vec<u8>, asking: bool },
    Leave { channel: Vec<u8> },
}

impl SimulatedPubSub {
    pub(super) fn open(
        line: Arc<SimulatedStream>,
        (subscription, notices): OpenedPubSub,
    ) -> OpenedPubSub {
        let (requests, requested) = mpsc::unbounded_channel();
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(run_requests(line.clone(), subscription, requested));
        tokio::spawn(forward_events(line.clone(), notices, tell));
        (Arc::new(SimulatedPubSub { line, requests }), told)
    }

    fn request(&self, request: PubSubRequest) -> Result<(), ConnectionError> {
        if self.line.is_broken() || self.requests.send(request).is_err() {
            return Err(broken(true));
        }
        Ok(())
    }
}

impl PubSubConnection for SimulatedPubSub {
    fn query<'a>(&'a self, command: &'a Command) -> ConnectionFuture<'a, RespValue> {
        Box::pin(async move {
            let (tell, told) = oneshot::channel();
            let command = Box::new(command.clone());
            self.request(PubSubRequest::Ask { command, tell })?;
            self.line.wait_reply(told).await
        })
    }

    fn subscribe<'a>(&'a self, channel: &'a [u8], asking: bool) -> ConnectionFuture<'a, ()> {
        Box::pin(
            async move { self.request(PubSubRequest::Join { channel: channel.to_vec(), asking }) },
        )
    }

    fn unsubscribe<'a>(&'a self, channel: &'a [u8]) -> ConnectionFuture<'a, ()> {
        Box::pin(async move { self.request(PubSubRequest::Leave { channel: channel.to_vec() }) })
    }
}

/// Carries commands to the server, until one end has closed the connection and the other end knows
/// that.
async fn run_requests(
    line: Arc<SimulatedStream>,
    subscription: Arc<dyn PubSubConnection>,
    mut requests: mpsc::UnboundedReceiver<PubSubRequest>,
) {
    loop {
        let request = tokio::select! {
            biased;
            () = line.ended() => return,
            request = requests.recv() => request,
        };
        let Some(request) = request else { return };
        let fate = line.delivery_of(MessageKind::Subscribe, &[]);
        if !line.deliver_request(&fate).await {
            continue;
        }
        let done = match request {
            PubSubRequest::Ask { command, tell } => {
                let answer = subscription.query(&command).await;
                let line = line.clone();
                tokio::spawn(async move { line.return_reply(&fate, answer, tell).await });
                continue;
            }
            PubSubRequest::Join { channel, asking } => {
                subscription.subscribe(&channel, asking).await
            }
            PubSubRequest::Leave { channel } => subscription.unsubscribe(&channel).await,
        };
        if done.is_err() && line.deliver_reply(&fate).await {
            line.mark_broken();
            return;
        }
    }
}

/// Carries notices to the client, until the connection is broken at one end.
async fn forward_events(
    line: Arc<SimulatedStream>,
    mut notices: mpsc::UnboundedReceiver<PubSubEvent>,
    tell: mpsc::UnboundedSender<PubSubEvent>,
) {
    loop {
        let notice = tokio::select! {
            biased;
            () = line.broken() => return,
            notice = notices.recv() => notice,
        };
        let Some(notice) = notice else {
            if line.deliver_reply(&line.delivery_of(MessageKind::Push, &[])).await {
                line.mark_broken();
            } else {
                line.broken().await;
            }
            return;
        };
        let (line, tell) = (line.clone(), tell.clone());
        let fate = line.delivery_of(MessageKind::Push, &[]);
        tokio::spawn(async move {
            if line.deliver_reply(&fate).await {
                let _ = tell.send(notice);
            }
        });
    }
}
