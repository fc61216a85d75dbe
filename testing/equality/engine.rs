//! An embedded server with a subscriber.

use std::sync::Arc;

use bytes::Bytes;
use rwlease::embedded::{EmbeddedCluster, EmbeddedClusterBuilder};
use rwlease::testing::{PubSubConnection, PubSubEvent, embedded_connector};
use rwlease_core::resp::{Command, RespValue};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::side::CommandServer;
use crate::{Words, at_once};

pub struct Engine {
    pub cluster: EmbeddedCluster,
    events: UnboundedReceiver<PubSubEvent>,
    _subscription: Arc<dyn PubSubConnection>,
}

impl Engine {
    pub fn start(
        builder: EmbeddedClusterBuilder,
        channels: impl Iterator<Item = String>,
    ) -> Engine {
        let cluster = builder.standalone().build();
        let (subscription, mut events) =
            at_once(embedded_connector(&cluster).subscribe(&cluster.addresses()[0], None)).unwrap();
        for channel in channels {
            at_once(subscription.subscribe(channel.as_bytes(), false)).unwrap();
            events.try_recv().unwrap();
        }
        Engine { cluster, events, _subscription: subscription }
    }

    pub fn query<W: AsRef<[u8]>>(&self, words: &[W]) -> RespValue {
        self.cluster.query(0, &Command::from_words(words))
    }
}

impl CommandServer for Engine {
    fn query(&mut self, commands: &[Words]) -> Vec<RespValue> {
        commands.iter().map(|command| Engine::query(self, command)).collect()
    }

    fn messages(&mut self) -> Vec<(Bytes, Bytes)> {
        let mut messages = Vec::new();
        while let Ok(PubSubEvent::Message { channel, payload }) = self.events.try_recv() {
            messages.push((channel, payload));
        }
        messages
    }

    fn fill_memory(&mut self, is_full: bool) {
        self.cluster.faults().set_out_of_memory(0, is_full);
    }
}
