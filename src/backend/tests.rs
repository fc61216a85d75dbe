//! Names with several addresses, at one of which no session begins.
#![allow(clippy::disallowed_methods)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::backend::dialer::Dialer;
use crate::backend::fred::FredConnector;
use crate::backend::native::NativeConnector;
use crate::backend::redis::RedisConnector;

/// A dial that waits for a server that never answers takes longer.
const LIMIT: Duration = Duration::from_secs(5);

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The name resolves to both addresses, in this order.
fn name(port: u16) -> (Address, Resolver) {
    let addresses = [FIRST, SECOND].map(|ip| SocketAddr::new(ip.into(), port));
    let resolver = Resolver::new(move |_| Ok(addresses.to_vec()));
    (Address { host: "both.invalid".into(), port }, resolver)
}

type NamedConnector = (&'static str, Arc<dyn Connector>);

fn backends(resolver: &Resolver, password: Option<&str>) -> [NamedConnector; 3] {
    let credentials = password.map(Credentials::password).map(|it| Arc::new(it) as _);
    let dialer = || Dialer {
        resolver: resolver.clone(),
        credentials: credentials.clone(),
        ..Dialer::default()
    };
    let config =
        ::fred::types::config::Config { password: password.map(Into::into), ..Default::default() };
    let mut fred = FredConnector::new(config);
    fred.resolver = resolver.clone();
    [
        ("native", Arc::new(NativeConnector { dialer: dialer() })),
        ("redis", Arc::new(RedisConnector { dialer: dialer() })),
        ("fred", Arc::new(fred)),
    ]
}

/// A listener at each address, on one port.
async fn listeners() -> (TcpListener, TcpListener, u16) {
    loop {
        let second = TcpListener::bind((SECOND, 0)).await.unwrap();
        let port = second.local_addr().unwrap().port();
        if let Ok(first) = TcpListener::bind((FIRST, port)).await {
            return (first, second, port);
        }
    }
}

/// Answers `hello` to HELLO, and OK to the rest.
async fn serve(listener: TcpListener, hello: &'static str) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(stream, hello));
    }
}

async fn answer(stream: TcpStream, hello: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut command = read_line(&mut stream).await?;
        // `fred` says HELLO in one line.
        if let Some(words) = command.strip_prefix('*') {
            let lines = 2 * words.parse::<usize>().unwrap();
            command.clear();
            for _ in 0..lines {
                command += &read_line(&mut stream).await?;
            }
        }
        let reply = if command.contains("HELLO") { hello } else { "+OK\r\n" };
        stream.write_all(reply.as_bytes()).await?;
    }
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line).await? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

const HELLO: &str =
    "%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n$5\r\nproto\r\n:3\r\n";

/// Both kinds of connections come from the second address, whatever the first one does.
async fn assert_second_serves(port: u16) {
    let (address, resolver) = name(port);
    for (name, backend) in backends(&resolver, None) {
        let opened = timeout(LIMIT, backend.connect(&address, None)).await;
        let node = opened.unwrap_or_else(|_| panic!("{name}: no connection")).unwrap();
        assert_eq!(node.resolved_addr().as_deref(), Some("127.0.0.2"), "{name}");
        // The connection that was given up does not end this one.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(node.is_usable(), "{name}");
        let opened = timeout(LIMIT, backend.subscribe(&address, None)).await;
        let (subscription, mut notices) =
            opened.unwrap_or_else(|_| panic!("{name}: no subscription")).unwrap();
        let ping = Command::new().arg("PING");
        let reply = subscription.query(&ping).await.unwrap();
        assert_eq!(reply, RespValue::String("OK".into()), "{name}");
        assert!(notices.try_recv().is_err(), "{name}");
    }
}

#[tokio::test]
async fn server_that_stands_still_does_not_hide_the_next_address() {
    let (_still, healthy, port) = listeners().await;
    tokio::spawn(serve(healthy, HELLO));
    assert_second_serves(port).await;
}

#[tokio::test]
async fn full_server_does_not_hide_the_next_address() {
    let (full, healthy, port) = listeners().await;
    tokio::spawn(serve(healthy, HELLO));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = full.accept().await.unwrap();
            let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
        }
    });
    assert_second_serves(port).await;
}

#[tokio::test]
async fn wrong_password_is_the_reported_failure_of_several_addresses() {
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let loading = "-LOADING the dataset\r\n";
    for hellos in [[wrong, loading], [loading, wrong]] {
        let (first, second, port) = listeners().await;
        tokio::spawn(serve(first, hellos[0]));
        tokio::spawn(serve(second, hellos[1]));
        let (address, resolver) = name(port);
        for (name, backend) in backends(&resolver, Some("secret")) {
            let opened = timeout(LIMIT, backend.connect(&address, None)).await;
            let failure =
                opened.unwrap_or_else(|_| panic!("{name}: no end")).map(drop).unwrap_err();
            assert!(failure.is_permanent && !failure.maybe_sent, "{name}: {failure:?}");
        }
    }
}
