//! The floor of a hand-off: a push without a lock.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, cmd,
};
use tokio::sync::{Mutex, mpsc};

use load::Lock;
use testkit::Result;

/// No lock, but the floor of any lock that hands off by push: an `SPUBLISH` and its message, by the
/// client crate that this library uses. To "take" is to receive the message, and to "release" is to
/// publish it.
#[derive(Clone)]
pub struct PushOnly {
    commands: MultiplexedConnection,
    /// Keeps the subscription's connection open.
    _subscribed: MultiplexedConnection,
    messages: Arc<Mutex<mpsc::UnboundedReceiver<()>>>,
    channel: &'static str,
}

impl PushOnly {
    /// Connects to the server that serves the channel's slot.
    pub async fn connect(url: &str, channel: &'static str) -> Result<PushOnly> {
        let (tell, heard) = mpsc::unbounded_channel();
        let on_push = move |push: PushInfo| -> std::result::Result<(), ()> {
            if push.kind == PushKind::SMessage {
                let _ = tell.send(());
            }
            Ok(())
        };
        let mut subscribed =
            connect(url, AsyncConnectionConfig::new().set_push_sender(on_push)).await?;
        cmd("SSUBSCRIBE").arg(channel).query_async::<redis::Value>(&mut subscribed).await?;
        let push = PushOnly {
            commands: connect(url, AsyncConnectionConfig::new()).await?,
            _subscribed: subscribed,
            messages: Arc::new(Mutex::new(heard)),
            channel,
        };
        push.publish().await; // so that the first take does not wait
        Ok(push)
    }

    /// Makes one round trip.
    pub async fn ping(&mut self) {
        let _: String = cmd("PING").query_async(&mut self.commands).await.expect("no answer");
    }

    async fn publish(&self) {
        let mut commands = self.commands.clone();
        let publish = cmd("SPUBLISH").arg(self.channel).arg("x").to_owned();
        let heard_by: u64 = publish.query_async(&mut commands).await.expect("not published");
        assert_eq!(heard_by, 1);
    }
}

impl Lock for PushOnly {
    type Held = PushOnly;

    async fn take(&self) -> PushOnly {
        self.messages.lock().await.recv().await.expect("the connection is gone");
        self.clone()
    }

    async fn release(held: PushOnly) {
        held.publish().await;
    }
}

async fn connect(url: &str, config: AsyncConnectionConfig) -> Result<MultiplexedConnection> {
    let info = url.into_connection_info()?;
    let session = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_redis_settings(session).set_tcp_settings(tcp))?;
    let config = config.set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}
