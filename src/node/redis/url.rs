//! The URL of a server.

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::node::{Address, Credentials};

/// What the URL of a server says: `redis://[[user]:password@]host[:port][/database]`, or
/// `rediss://` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) address: Address,
    pub(crate) tls: bool,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: i64,
}

/// Not the URL of a server. (The URL itself is left out: it may have a password in it.)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the URL of a server: {0}")]
pub(crate) struct UrlError(String);

impl std::str::FromStr for Server {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Server, UrlError> {
        let info: ConnectionInfo =
            url.into_connection_info().map_err(|error| UrlError(error.to_string()))?;
        let (host, port, tls) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (host, *port, false),
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(UrlError("a certificate that is not checked protects nothing".into()));
            }
            ConnectionAddr::TcpTls { host, port, .. } => (host, *port, true),
            _ => return Err(UrlError("only TCP is supported".into())),
        };
        let session = info.redis_settings();
        let credentials = match (session.username(), session.password()) {
            (_, None) => None,
            (None, Some(password)) => Some(Credentials::password(password)),
            (Some(username), Some(password)) => Some(Credentials::new(username, password)),
        };
        Ok(Server {
            address: Address { host: host.as_str().into(), port },
            tls,
            credentials,
            database: session.db(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Result<Server, UrlError> {
        url.parse()
    }

    #[test]
    fn urls() {
        let plain = Server {
            address: Address { host: "127.0.0.1".into(), port: 7000 },
            tls: false,
            credentials: None,
            database: 0,
        };
        assert_eq!(server("redis://127.0.0.1:7000"), Ok(plain.clone()));
        assert_eq!(
            server("redis://:p%40ss@127.0.0.1:7000/3"),
            Ok(Server {
                credentials: Some(Credentials::password("p@ss")),
                database: 3,
                ..plain.clone()
            })
        );
        assert_eq!(
            server("redis://user:pass@127.0.0.1:7000"),
            Ok(Server { credentials: Some(Credentials::new("user", "pass")), ..plain })
        );
        let address = |url| server(url).map(|server| server.address.to_string());
        assert_eq!(address("redis://localhost").as_deref(), Ok("localhost:6379"));
        assert_eq!(address("redis://[::1]:1").as_deref(), Ok("[::1]:1"));
    }

    #[test]
    fn what_is_no_url_of_a_server() {
        for url in [
            "",
            "localhost:7000",
            "http://localhost",
            "redis://",
            "unix:///tmp/socket",
            "redis://h/x",
            "redis://0.0.0.0",
        ] {
            let error = server(url).unwrap_err();
            assert!(error.to_string().starts_with("not the URL of a server: "), "{url}: {error}");
        }
        assert!(
            !server("redis://user:secret@host:port").unwrap_err().to_string().contains("secret")
        );
        assert!(server("rediss://host/#insecure").is_err());
    }

    #[test]
    fn tls_needs_its_feature() {
        assert_eq!(
            server("rediss://host").map(|server| server.tls).ok(),
            cfg!(feature = "redis-tls").then_some(true)
        );
    }
}
