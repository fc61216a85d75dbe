//! What it means that a server refuses the first commands on a connection.

use rwlease_core::resp::ServerError;

use crate::backend::{AUTHENTICATION_FAILED, ConnectionError, is_auth_error};

/// Below this length, the place of a hidden password would give it away.
const MIN_HIDDEN: usize = 4;

/// The failure to say `HELLO`, which authenticates as well.
pub(crate) fn hello_refused(error: &ServerError, renews_credentials: bool) -> ConnectionError {
    let (message, permanent) = match &*error.code {
        code if is_auth_error(code) => (AUTHENTICATION_FAILED, !renews_credentials),
        // A server before 6.0, or a proxy.
        "NOPROTO" => (NO_RESP3, true),
        _ if error.message.starts_with("unknown command") => (NO_RESP3, true),
        code => ("HELLO failed", matches!(code, "NOPERM" | "DENIED")),
    };
    refused(error, message.to_owned(), permanent)
}

pub(crate) fn select_refused(error: &ServerError, database: i64) -> ConnectionError {
    let message = match error.message.contains("cluster mode") {
        true => format!("cannot select database {database}: a cluster has only database 0"),
        false => format!("cannot select database {database}"),
    };
    let is_invalid = error.code == "ERR";
    let permanent = is_invalid || error.code == "NOPERM";
    ConnectionError { is_invalid, ..refused(error, message, permanent) }
}

const NO_RESP3: &str =
    "the server or a proxy does not speak RESP3; use Redis 6.2 or later, or Valkey";

fn refused(error: &ServerError, message: String, permanent: bool) -> ConnectionError {
    let failure = ConnectionError::not_sent(message).with_source(error.clone());
    ConnectionError { is_permanent: permanent, ..failure }.redact_arguments()
}

/// Returns true for an error of `rustls` that no retry with the same settings can fix:
/// certificates, versions of the protocol, a port that does not speak it. Anything else may pass: a
/// server that restarts, or a proxy that cannot reach it, ends a handshake as well.
///
/// `text` has the names of the variants, since `fred` keeps only the text of an error.
#[cfg(any(feature = "tls", feature = "fred"))]
pub(super) fn is_final_tls_error(text: &str) -> bool {
    const ERRORS: [&str; 7] = [
        "InvalidCertificate(",
        "InvalidCertRevocationList(",
        "NoCertificatesPresented",
        "InconsistentKeys(",
        "UnsupportedNameType",
        "PeerIncompatible(",
        "InvalidMessage(",
    ];
    // The server objects to the client's certificate, or to the versions and ciphers that the
    // client offers.
    const ALERTS: [&str; 13] = [
        "NoCertificate)",
        "BadCertificate)",
        "UnsupportedCertificate)",
        "CertificateRevoked)",
        "CertificateExpired)",
        "CertificateUnknown)",
        "CertificateRequired)",
        "UnknownCA)",
        "AccessDenied)",
        "HandshakeFailure)",
        "ProtocolVersion)",
        "InsufficientSecurity)",
        "InappropriateFallback)",
    ];
    match text.strip_prefix("AlertReceived(") {
        Some(alert) => ALERTS.iter().any(|name| alert.starts_with(name)),
        None => ERRORS.iter().any(|name| text.starts_with(name)),
    }
}

impl ConnectionError {
    /// Hides the password, in case a server or a proxy repeats it.
    pub(crate) fn without_password(self, password: &str) -> ConnectionError {
        self.map_texts(|text| match !password.is_empty() && text.contains(password) {
            false => without_cut_password(text, password),
            true if password.len() < MIN_HIDDEN => Some("the server repeated the password".into()),
            true => {
                let text = text.replace(password, "***");
                Some(without_cut_password(&text, password).unwrap_or(text))
            }
        })
    }
}

/// Hides the beginning of the password where a long text was cut within it.
fn without_cut_password(text: &str, password: &str) -> Option<String> {
    let kept = text.strip_suffix('…')?;
    let lengths = (MIN_HIDDEN..password.len()).rev();
    let mut heads = lengths.filter_map(|length| password.get(..length));
    let shown = heads.find_map(|head| kept.strip_suffix(head))?;
    Some(format!("{shown}***"))
}

#[cfg(test)]
mod tests;
