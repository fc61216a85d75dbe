//! The TLS configuration of a client: made once, so that the system's certificates are read once
//! and sessions resume.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::io;
use std::sync::{Arc, Mutex};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rwlease_core::resp::Address;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::backend::ConnectionError;
use crate::backend::dialer::{RawStream, TlsCertificates};
use crate::backend::handshake_error::is_final_tls_error;
use crate::locks::lock;

/// How many sessions with one server are kept. A resumed session brings new ones.
const SESSIONS_PER_SERVER: usize = 8;

/// For how many servers sessions are kept. If servers come and go under new addresses, all are
/// forgotten from time to time.
const MAX_SERVERS: usize = 1024;

/// The configurations for all connections of one client. A clone starts without them, because the
/// settings may be changed before it is used.
#[derive(Default)]
pub(crate) struct TlsConfigCache(Mutex<TlsConfigs>);

#[derive(Default)]
struct TlsConfigs {
    shared: Option<ClientConfig>,
    /// One for each server, with its own sessions: `rustls` keeps sessions by host name, and
    /// several servers may share a name.
    by_server: HashMap<Address, Arc<ClientConfig>>,
}

/// The configuration for one server, and the name that its certificate must have.
pub(super) struct TlsSession {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Clone for TlsConfigCache {
    fn clone(&self) -> TlsConfigCache {
        TlsConfigCache::default()
    }
}

impl TlsConfigCache {
    /// What the handshakes with that server need. The certificate is checked against the host, even
    /// if that was resolved before.
    pub(super) fn session(
        &self,
        address: &Address,
        files: &TlsCertificates,
    ) -> Result<TlsSession, ConnectionError> {
        let connector = TlsConnector::from(self.configuration(address, files)?);
        let name = ServerName::try_from(address.host.to_string()).map_err(
            |error: InvalidDnsNameError| {
                permanent_error("the host cannot be checked by TLS", error)
            },
        )?;
        Ok(TlsSession { connector, name })
    }

    /// The configuration for that server.
    fn configuration(
        &self,
        address: &Address,
        files: &TlsCertificates,
    ) -> Result<Arc<ClientConfig>, ConnectionError> {
        let mut made = lock(&self.0);
        if let Some(known) = made.by_server.get(address) {
            return Ok(known.clone());
        }
        let shared = match made.shared.take() {
            Some(shared) => shared,
            None => configuration(files)?,
        };
        let mut own = shared.clone();
        own.resumption = Resumption::in_memory_sessions(SESSIONS_PER_SERVER);
        let own = Arc::new(own);
        made.shared = Some(shared);
        if made.by_server.len() >= MAX_SERVERS {
            made.by_server.clear();
        }
        made.by_server.insert(address.clone(), own.clone());
        Ok(own)
    }
}

impl TlsSession {
    pub(super) async fn connect(&self, stream: TcpStream) -> Result<RawStream, ConnectionError> {
        let handshake = self.connector.connect(self.name.clone(), stream);
        Ok(RawStream::Tls(Box::new(handshake.await.map_err(dial_error)?)))
    }
}

/// Reads the certificates from the files, or from the system.
fn configuration(files: &TlsCertificates) -> Result<ClientConfig, ConnectionError> {
    // The application's provider of cryptography, if it has installed one.
    let provider =
        CryptoProvider::get_default().cloned().unwrap_or_else(|| ring::default_provider().into());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| permanent_error("TLS cannot be configured", error))?
        .with_root_certificates(roots(files)?);
    let Some((certificate, key)) = &files.client else {
        return Ok(builder.with_no_client_auth());
    };
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| permanent_error("cannot read the key of `tls_client_identity`", error))?;
    builder.with_client_auth_cert(certificates(certificate, "`tls_client_identity`")?, key).map_err(
        |error| permanent_error("cannot use the certificate of `tls_client_identity`", error),
    )
}

fn roots(files: &TlsCertificates) -> Result<RootCertStore, ConnectionError> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = &files.roots {
        for certificate in certificates(pem, "`tls_root_certificates`")? {
            roots.add(certificate).map_err(|error| {
                permanent_error("cannot use a certificate of `tls_root_certificates`", error)
            })?;
        }
        return Ok(roots);
    }
    // An unreadable certificate, among hundreds, matters only to a server that needs it.
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    match found.errors.into_iter().next() {
        Some(error) if roots.is_empty() => Err(permanent_error(
            "cannot read the system's certificates; set `tls_root_certificates`",
            error,
        )),
        _ => Ok(roots),
    }
}

fn certificates(
    pem: &[u8],
    setting: &str,
) -> Result<Vec<CertificateDer<'static>>, ConnectionError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| permanent_error(format!("cannot read a certificate of {setting}"), error))
}

/// The failure of a dial.
fn dial_error(error: io::Error) -> ConnectionError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let advice = match inner {
        Some(rustls::Error::InvalidMessage(_)) => "; check that the port speaks TLS",
        Some(_) => "",
        None => return error.into(),
    };
    let message = format!("TLS handshake failed{advice}");
    ConnectionError { message, ..error.into() }
}

/// Returns true for what no retry with the same settings can fix.
pub(super) fn is_final(error: &rustls::Error) -> bool {
    is_final_tls_error(&format!("{error:?}"))
}

/// A failure that no retry can fix.
fn permanent_error(
    message: impl Into<String>,
    error: impl StdError + Send + Sync + 'static,
) -> ConnectionError {
    ConnectionError { is_permanent: true, ..ConnectionError::not_sent(message).with_source(error) }
}

#[cfg(test)]
mod tests;
