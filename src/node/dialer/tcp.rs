//! Opens a TCP connection to a server, with the handshake on it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_ok;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};

use crate::node::Address;

/// After this much silence, the kernel checks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Connects to all addresses of the host at once, and takes the first one on which `handshake`
/// succeeds. With `place`, the host was resolved to that address before. Returns the address, too.
pub(super) async fn dial<S, F>(
    address: &Address,
    place: Option<IpAddr>,
    handshake: impl Fn(TcpStream) -> F + Sync,
) -> io::Result<(S, IpAddr)>
where
    F: Future<Output = io::Result<S>> + Send,
{
    if let Some(place) = place {
        let stream = connect(SocketAddr::new(place, address.port)).await?;
        return Ok((handshake(stream).await?, place));
    }
    let handshake = &handshake;
    let dials: Vec<_> = lookup_host((&*address.host, address.port))
        .await?
        .map(|resolved| {
            async move { Ok((handshake(connect(resolved).await?).await?, resolved.ip())) }.boxed()
        })
        .collect();
    if dials.is_empty() {
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address"));
    }
    select_ok(dials).await.map(|(dialled, _)| dialled)
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}
