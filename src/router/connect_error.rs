//! Why a connection could not be opened, with what the user can do about it.

use std::fmt;
#[cfg(feature = "tls")]
use std::io;

use crate::backend::{Address, ConnectionError, ServerError};
use crate::router::belief::UnexpectedServer;
use crate::router::time_limit::TimeLimit;

/// Who announced an address that no setting names.
#[derive(Clone, Debug)]
pub(crate) enum Announcer {
    Server(Address),
    Sentinels,
}

impl Announcer {
    /// The setting of a server that announces another address.
    fn setting(&self) -> &'static str {
        match self {
            Announcer::Server(_) => "`cluster-announce-ip` or `cluster-announce-hostname`",
            Announcer::Sentinels => "`replica-announce-ip`",
        }
    }
}

impl fmt::Display for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Announcer::Server(address) => address.fmt(f),
            Announcer::Sentinels => f.write_str("the sentinels"),
        }
    }
}

/// The failure of a connection that could not be opened. A port that expects TLS ends a connection
/// that begins with anything else, and so does the port of a cluster bus.
pub(crate) fn connect_error(
    failure: ConnectionError,
    address: &Address,
    uses_tls: bool,
) -> ConnectionError {
    let advice = match certificate_advice(&failure) {
        Some(advice) => advice,
        None if !uses_tls && failure.is_closed_by_peer => {
            "; does the port expect TLS, or is it that of the cluster bus?"
        }
        None => "",
    };
    let message = format!("{address}: {}{advice}", failure.message);
    ConnectionError { message, maybe_sent: false, ..failure }
}

/// The failure for a server that has not ended the TLS handshake in time. Many a server waits for
/// more of one that it does not understand.
pub(crate) fn no_handshake(address: &Address, limit: TimeLimit) -> ConnectionError {
    let message = format!("{address}: no TLS handshake within {limit}; does the port speak TLS?");
    ConnectionError::not_sent(message)
}

/// The failure to reach an address that the user has not given.
pub(crate) fn announced(
    failure: ConnectionError,
    by: &Announcer,
    is_translated: bool,
) -> ConnectionError {
    let source = failure.source.as_ref();
    let is_reached =
        source.is_some_and(|source| source.is::<ServerError>() || source.is::<UnexpectedServer>());
    if is_reached || failure.is_permanent {
        return failure;
    }
    let advice = match is_translated {
        true => "check what `address_translator` makes of it".to_owned(),
        false => format!(
            "if clients need another address, set `address_translator`, or {} on the server",
            by.setting()
        ),
    };
    let message = format!("{} (announced by {by}; {advice})", failure.message);
    ConnectionError { message, ..failure }
}

#[cfg(feature = "tls")]
fn certificate_advice(failure: &ConnectionError) -> Option<&'static str> {
    use rustls::{AlertDescription, CertificateError};

    let source = failure.source.as_ref()?.downcast_ref::<io::Error>()?;
    match source.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            Some("; give the certificate of its authority by `tls_roots`")
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            Some("; give a certificate of the client by `tls_client`")
        }
        _ => None,
    }
}

#[cfg(not(feature = "tls"))]
fn certificate_advice(_: &ConnectionError) -> Option<&'static str> {
    None
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::backend::dialer::Dialer;
    use crate::backend::native::NativeConnector;
    use crate::router::connection::{ConnectionLimits, ServerConnection};

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
        let failure = opened.unwrap_err();
        assert!(failure.message.contains("; does the port expect TLS, "), "{failure}");
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
                "the TLS handshake failed",
                "the port may not speak TLS",
            ),
            (b"", false, "no TLS handshake within 500ms", "does the port speak TLS?"),
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
            let opened = ServerConnection::open(&connector, clock, &at, None, LIMITS).await;
            let failure = opened.unwrap_err();
            assert_eq!(failure.is_permanent, permanent, "{failure}");
            let message = &failure.message;
            assert!(message.contains(said) && message.contains(advice), "{message}");
            server.abort();
        }
    }
}
