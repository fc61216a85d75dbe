//! Why a connection could not be opened, with advice for a port that does or does not speak TLS.

use std::time::Duration;

use crate::node::{Address, NodeError};

/// The failure of a connection that could not be opened. A port that expects TLS ends a connection
/// that begins with anything else.
pub(crate) fn unopened(failure: NodeError, address: &Address, uses_tls: bool) -> NodeError {
    let advice = if !uses_tls && failure.ended { " (does the port expect TLS?)" } else { "" };
    let message = format!("{address}: {}{advice}", failure.message);
    NodeError { message, maybe_sent: false, ..failure }
}

/// The failure for a server that has not answered in time. Many a server waits for more of a TLS
/// handshake that it does not understand.
pub(crate) fn no_answer(
    address: &Address,
    timeout: Duration,
    connects_with_tls: bool,
) -> NodeError {
    let advice = match connects_with_tls {
        true => " to a connection with TLS (does the port speak it?)",
        false => "",
    };
    NodeError::unsent(format!("{address} did not answer in {timeout:?}{advice}"))
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::dialer::Dialer;
    use crate::node::native::NativeConnector;
    use crate::router::connection::{Connection, Limits};

    const TIMEOUT: Duration = Duration::from_millis(500);
    const LIMITS: Limits =
        Limits { connect_timeout: TIMEOUT, response_timeout: TIMEOUT, in_flight: 1 };

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
        let opened = Connection::open(&connector, clock, &at, None, LIMITS).await;
        let failure = opened.unwrap_err();
        assert!(failure.message.ends_with("(does the port expect TLS?)"), "{failure}");
        assert!(!failure.permanent && !failure.maybe_sent);
    }

    /// Some servers answer what they take for a command; some wait for its end.
    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn a_port_that_does_not_speak_tls_is_told() {
        use tokio::io::AsyncWriteExt;

        use crate::node::dialer::TlsFiles;

        let authority = rcgen::generate_simple_self_signed(["host".into()]).unwrap();
        let roots = Some(authority.cert.pem().into());
        let tls = Some(TlsFiles { roots, client: None });
        let connector = NativeConnector { dialer: Dialer { tls, ..Dialer::default() } };
        let cases: [(&[u8], bool, &str, &str); 2] = [
            (
                b"-ERR unknown command\r\n",
                true,
                "the TLS handshake failed",
                "the port may not speak TLS",
            ),
            (b"", false, "did not answer", "does the port speak it?"),
        ];
        for (answer, permanent, said, advice) in cases {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at =
                Address { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
            let server = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(answer).await.unwrap();
                std::future::pending::<()>().await;
            });
            let clock = Arc::new(crate::clock::SystemClock);
            let opened = Connection::open(&connector, clock, &at, None, LIMITS).await;
            let failure = opened.unwrap_err();
            assert_eq!(failure.permanent, permanent, "{failure}");
            let message = &failure.message;
            assert!(message.contains(said) && message.contains(advice), "{message}");
            server.abort();
        }
    }
}
