use super::*;

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
    let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    for (error, is_final) in [(untrusted, true), (rustls::Error::DecryptError, false)] {
        let of_io = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        let failure = connect_error(Error::new(ErrorKind::IO, format!("{of_io:?}")));
        assert_eq!(failure.is_permanent, is_final, "{failure}");
    }
}
