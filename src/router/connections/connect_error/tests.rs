use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::backend::dialer::Dialer;
use crate::backend::native::NativeConnector;
use crate::router::connections::limits::ConnectionLimits;
use crate::router::connections::server_connection::ServerConnection;

const TIMEOUT: Duration = Duration::from_millis(500);
const LIMITS: ConnectionLimits =
    ConnectionLimits { connect_timeout: TIMEOUT, response_timeout: TIMEOUT, max_in_flight: 1 };

/// Some ports end the connection, some reset it.
#[tokio::test]
async fn a_port_that_expects_tls_is_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = Address { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        stream.readable().await.unwrap();
    });
    let connector = NativeConnector { dialer: Dialer::default() };
    let clock = Arc::new(crate::clock::SystemClock);
    let opened = ServerConnection::open(&connector, clock, &at, None, LIMITS).await;
    let failure = opened.map(drop).unwrap_err();
    assert!(failure.message.contains("; check whether the port expects TLS "), "{failure}");
    assert!(!failure.is_permanent && !failure.maybe_sent);
}

/// Some servers answer what they take for a command; some wait for its end.
#[cfg(feature = "tls")]
#[tokio::test]
async fn a_port_that_does_not_speak_tls_is_told() {
    use tokio::io::AsyncWriteExt;

    use crate::backend::dialer::TlsCertificates;

    let authority = rcgen::generate_simple_self_signed(["host".into()]).unwrap();
    let roots = Some(authority.cert.pem().into());
    let tls = Some(TlsCertificates { roots, client: None });
    let connector = NativeConnector { dialer: Dialer { tls, ..Dialer::default() } };
    let cases: [(&[u8], bool, &str, &str); 2] = [
        (
            b"-ERR unknown command\r\n",
            true,
            "TLS handshake failed",
            "check that the port speaks TLS",
        ),
        (b"", false, "no TLS handshake within 500ms", "check that the port speaks TLS"),
    ];
    for (answer, permanent, said, advice) in cases {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = Address { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer).await.unwrap();
            std::future::pending::<()>().await;
        });
        let clock = Arc::new(crate::clock::SystemClock);
        let opened = ServerConnection::open(&connector, clock, &at, None, LIMITS).await;
        let failure = opened.map(drop).unwrap_err();
        assert_eq!(failure.is_permanent, permanent, "{failure}");
        let message = &failure.message;
        assert!(message.contains(said) && message.contains(advice), "{message}");
        server.abort();
    }
}
