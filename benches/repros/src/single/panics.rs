//! A TLS connection by the crate's own feature for it (`tokio-rustls-comp`), and nothing else.

use std::panic::{set_hook, take_hook};

use redis::Client;
use tokio::net::TcpListener;

use crate::seen::Seen;
use crate::support::Result;

const TRIES: usize = 3;

pub async fn run() -> Result<Seen> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("rediss://127.0.0.1:{}", listener.local_addr()?.port());
    let silenced = take_hook();
    set_hook(Box::new(|_| {}));
    let mut seen = Seen::default();
    for _ in 0..TRIES {
        let client = Client::open(url.as_str())?;
        let connecting =
            tokio::spawn(async move { client.get_multiplexed_async_connection().await.map(drop) });
        seen.note(connecting.await.is_err_and(|error| error.is_panic()));
    }
    set_hook(silenced);
    Ok(seen)
}
