use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

use super::*;
use crate::backend::dialer::tls::is_final;

#[test]
fn handshake_failure_of_a_connection_is_no_refusal_of_the_server() {
    for (kind, details, message) in [
        (ErrorKind::IO, "the connection was reset", CONNECTION_FAILED),
        (ErrorKind::IO, "ERR as of a server", CONNECTION_FAILED),
        (ErrorKind::Unknown, "not a code", CONNECTION_FAILED),
        (ErrorKind::Unknown, "NOPERM no", "HELLO failed"),
    ] {
        let failure = handshake_failure(Error::new(kind, details), None);
        assert_eq!(failure.message, message, "{details}");
    }
}

#[test]
fn connect_failure_of_tls_is_permanent_as_over_the_other_backends() {
    let mut errors = vec![
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer),
        rustls::Error::NoCertificatesPresented,
        rustls::Error::UnsupportedNameType,
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
        rustls::Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
        rustls::Error::General("x".into()),
        rustls::Error::DecryptError,
    ];
    errors.extend((0..=u8::MAX).map(AlertDescription::from).map(rustls::Error::AlertReceived));
    for error in errors {
        let is_final = is_final(&error);
        let of_io = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        let failure = connect_error(Error::new(ErrorKind::IO, format!("{of_io:?}")));
        assert_eq!(failure.is_permanent, is_final, "{failure}");
    }
}
