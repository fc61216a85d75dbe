//! Opens a TCP connection to a server, with the session on it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::FutureExt;
use rwlease_core::resp::Address;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::backend::in_turn::first_success;
use crate::backend::{ConnectionError, Resolver};

/// After this much silence, the kernel checks whether the other side is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Connects to the addresses of the host in order, and keeps the first connection on which `begin`
/// succeeds. With `place`, the host was resolved to that address before. Returns the address, too.
///
/// `begin` hears from the server: the kernel accepts connections for a server that stands still.
pub(super) async fn dial<S, F>(
    resolver: &Resolver,
    address: &Address,
    place: Option<IpAddr>,
    begin: impl Fn(TcpStream) -> F + Sync,
) -> Result<(S, IpAddr), ConnectionError>
where
    F: Future<Output = Result<S, ConnectionError>> + Send,
    S: Send,
{
    let begin = &begin;
    let dial = async move |resolved: SocketAddr| {
        let stream = connect(resolved).await?;
        Ok((begin(stream).await?, resolved.ip()))
    };
    if let Some(place) = place {
        return dial(SocketAddr::new(place, address.port)).await;
    }
    let resolved = resolver.addresses(address).await?;
    let dials = resolved.into_iter().map(|resolved| dial(resolved).boxed()).collect();
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
