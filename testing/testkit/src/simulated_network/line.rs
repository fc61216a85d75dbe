//! One connection: the order in which messages arrive, and how it breaks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{self, Either};
use rwlease::testing::ConnectionError;
use rwlease_core::resp::Command;
use rwlease_core::time::LocalInstant;
use tokio::sync::{Notify, oneshot};

use super::{Delivery, MessageKind, NetworkMessage, SimulatedHost, lock};

#[derive(Debug)]
pub(super) struct SimulatedStream {
    pub(super) host: SimulatedHost,
    pub(super) server: usize,
    state: Mutex<StreamState>,
    broke: Notify,
}

#[derive(Debug, Default)]
struct StreamState {
    /// When the last message to the server arrives, and the last one to the client.
    last_request_arrival: LocalInstant,
    last_reply_arrival: LocalInstant,
    /// Nothing that is sent from now on arrives.
    is_cut: bool,
    /// Messages that were sent to the server earlier do not arrive either.
    loses_requests: bool,
    /// The client knows that the connection is broken.
    is_broken: bool,
    /// The server knows that the client is gone.
    is_ended: bool,
}

impl SimulatedStream {
    pub(super) fn new(host: SimulatedHost, server: usize) -> Arc<Self> {
        Arc::new(SimulatedStream { host, server, state: Mutex::default(), broke: Notify::new() })
    }

    pub(super) fn delivery_of(&self, kind: MessageKind, commands: &[Command]) -> Delivery {
        let message =
            NetworkMessage { host: self.host.number(), server: self.server, kind, commands };
        self.host.network().weather.deliver(&message)
    }

    /// Waits until a message that is sent now has arrived at the server. Returns false if it never
    /// does.
    pub(super) async fn deliver_request(self: &Arc<Self>, fate: &Delivery) -> bool {
        let arrival = {
            let mut state = lock(&self.state);
            if state.is_cut || self.host.is_gone() {
                return false;
            }
            state.last_request_arrival =
                state.last_request_arrival.max(self.now().saturating_add(fate.request_delay));
            state.last_request_arrival
        };
        self.sleep_until(arrival).await;
        if fate.loses_request {
            self.cut(false, fate.break_noticed_after);
            return false;
        }
        !lock(&self.state).loses_requests
    }

    /// Waits until a message that is sent to the client now has arrived there. Returns false if it
    /// never does.
    pub(super) async fn deliver_reply(self: &Arc<Self>, fate: &Delivery) -> bool {
        if fate.loses_reply {
            self.cut(true, fate.break_noticed_after);
            return false;
        }
        let arrival = {
            let mut state = lock(&self.state);
            state.last_reply_arrival =
                state.last_reply_arrival.max(self.now().saturating_add(fate.reply_delay));
            state.last_reply_arrival
        };
        self.sleep_until(arrival).await;
        self.host.wait_running().await;
        !lock(&self.state).is_cut
    }

    /// Carries a reply to the client, to `wait_reply`.
    pub(super) async fn return_reply<T>(
        self: &Arc<Self>,
        fate: &Delivery,
        reply: Result<T, ConnectionError>,
        tell: oneshot::Sender<Result<T, ConnectionError>>,
    ) {
        if self.deliver_reply(fate).await {
            if reply.is_err() {
                self.mark_broken();
            }
            let _ = tell.send(reply); // the caller may have given up
        }
    }

    /// Waits for a reply, until the client learns that the connection is broken.
    pub(super) async fn wait_reply<T>(
        &self,
        told: oneshot::Receiver<Result<T, ConnectionError>>,
    ) -> Result<T, ConnectionError> {
        match future::select(told, Box::pin(self.broken())).await {
            Either::Left((Ok(reply), _)) => reply,
            Either::Left((Err(_), broke)) => {
                broke.await; // the reply will not come
                Err(broken(true))
            }
            Either::Right(_) => Err(broken(true)),
        }
    }

    /// Cuts the connection. What is under way to the server arrives if `delivers` is set.
    pub(super) fn cut(self: &Arc<Self>, delivers: bool, heard_after: Option<Duration>) {
        {
            let mut state = lock(&self.state);
            state.is_cut = true;
            state.loses_requests |= !delivers;
        }
        if let Some(heard_after) = heard_after {
            let this = self.clone();
            tokio::spawn(async move {
                this.sleep_until(this.now().saturating_add(heard_after)).await;
                this.host.wait_running().await;
                this.mark_broken();
            });
        }
    }

    /// The client is gone. The server notices that if `noticed` is set.
    pub(super) fn end(self: &Arc<Self>, noticed: bool) {
        let mut state = lock(&self.state);
        state.is_cut = true;
        state.is_ended |= noticed;
        drop(state);
        self.broke.notify_waiters();
    }

    /// Tells the client that the connection is broken.
    pub(super) fn mark_broken(&self) {
        lock(&self.state).is_broken = true;
        self.broke.notify_waiters();
    }

    pub(super) fn is_broken(&self) -> bool {
        lock(&self.state).is_broken
    }

    /// Resolves when the client learns that the connection is broken.
    pub(super) async fn broken(&self) {
        self.until(|state| state.is_broken).await;
    }

    /// Resolves when the server has noticed that the client is gone.
    pub(super) async fn ended(&self) {
        self.until(|state| state.is_ended).await;
    }

    async fn until(&self, is_so: impl Fn(&StreamState) -> bool) {
        loop {
            let mut broke = std::pin::pin!(self.broke.notified());
            broke.as_mut().enable();
            if is_so(&lock(&self.state)) {
                return;
            }
            broke.await;
        }
    }

    fn now(&self) -> LocalInstant {
        self.host.engine().clock().now()
    }

    async fn sleep_until(&self, moment: LocalInstant) {
        self.host.engine().clock().sleep_until(moment).await;
    }
}

pub(super) fn broken(maybe_sent: bool) -> ConnectionError {
    ConnectionError { maybe_sent, ..ConnectionError::not_sent("the connection was closed") }
}
