use super::*;

#[test]
fn io_error_is_permanent_if_no_retry_can_fix_it() {
    let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    let passing = rustls::Error::AlertReceived(rustls::AlertDescription::InternalError);
    let of = |error| ConnectionError::from(io::Error::new(io::ErrorKind::InvalidData, error));
    assert!(of(untrusted).is_permanent);
    assert!(!of(passing).is_permanent);
    assert!(!ConnectionError::from(io::Error::from(io::ErrorKind::ConnectionReset)).is_permanent);
}
