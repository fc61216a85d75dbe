//! Why a connection could not be opened, with what the user can do about it.

use std::fmt;
#[cfg(feature = "tls")]
use std::io;

use rwlease_core::resp::{Address, ServerError};

use crate::backend::ConnectionError;
use crate::router::connections::limits::TimeLimit;
use crate::router::connections::unexpected_server::UnexpectedServer;

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
            "; check whether the port expects TLS or is that of the cluster bus"
        }
        None => "",
    };
    let message = format!("cannot connect to {address}: {}{advice}", failure.message);
    ConnectionError { message, maybe_sent: false, ..failure }
}

/// The failure for a server that has not ended the TLS handshake in time. Many a server waits for
/// more of one that it does not understand.
pub(crate) fn no_handshake(address: &Address, limit: TimeLimit) -> ConnectionError {
    let message = format!(
        "cannot connect to {address}: no TLS handshake within {limit}; check that the port speaks TLS"
    );
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
            Some("; set the certificate of its authority by `tls_root_certificates`")
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            Some("; set a certificate of the client by `tls_client_identity`")
        }
        _ => None,
    }
}

// No connection has TLS.
#[cfg(not(feature = "tls"))]
fn certificate_advice(_: &ConnectionError) -> Option<&'static str> {
    None
}

#[cfg(all(test, feature = "native"))]
mod tests;
