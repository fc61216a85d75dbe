//! Opens a TCP connection to a server, with the handshake on it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::FutureExt;
use rwlease_core::resp::Address;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};

use crate::backend::ConnectionError;
use crate::backend::in_turn::first_success;

/// After this much silence, the kernel checks whether the other side is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Connects to the addresses of the host in order, and keeps the first connection on which
/// `handshake` succeeds. With `place`, the host was resolved to that address before. Returns the
/// address, too.
pub(super) async fn dial<S, F>(
    address: &Address,
    place: Option<IpAddr>,
    handshake: impl Fn(TcpStream) -> F + Sync,
    failed: impl Fn(io::Error) -> ConnectionError + Sync,
) -> Result<(S, IpAddr), ConnectionError>
where
    F: Future<Output = io::Result<S>> + Send,
{
    let (handshake, failed) = (&handshake, &failed);
    let dial = async move |resolved: SocketAddr| {
        let stream = connect(resolved).await.map_err(failed)?;
        Ok((handshake(stream).await.map_err(failed)?, resolved.ip()))
    };
    if let Some(place) = place {
        return dial(SocketAddr::new(place, address.port)).await;
    }
    let unresolved = |error: io::Error| ConnectionError {
        message: "the host name does not resolve".into(),
        ..error.into()
    };
    let resolved = lookup_host((&*address.host, address.port)).await.map_err(unresolved)?;
    let dials = resolved.map(|resolved| dial(resolved).boxed()).collect();
    let no_address = || Err(ConnectionError::not_sent("the host name has no address"));
    first_success(dials, ConnectionError::weight).await.unwrap_or_else(no_address)
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}
