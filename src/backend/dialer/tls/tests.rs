use super::*;

fn address(port: u16) -> Address {
    Address { host: "host".into(), port }
}

fn root(pem: &str) -> TlsCertificates {
    TlsCertificates { roots: Some(pem.into()), client: None }
}

#[test]
fn certificates_are_read_once_and_sessions_kept_by_server() {
    let authority = rcgen::generate_simple_self_signed(["host".into()]).unwrap();
    let (good, bad) = (root(&authority.cert.pem()), root("-----BEGIN CERTIFICATE-----"));
    let tls = TlsConfigCache::default();
    let first = tls.configuration(&address(1), &good).unwrap();
    // A file that is not read again cannot fail.
    assert!(Arc::ptr_eq(&first, &tls.configuration(&address(1), &bad).unwrap()));
    assert!(!Arc::ptr_eq(&first, &tls.configuration(&address(2), &bad).unwrap()));
    let error = tls.clone().configuration(&address(1), &bad).unwrap_err();
    assert!(error.is_permanent, "{error}");
}

#[test]
fn is_final_for_tls_certificate_version_or_protocol_error_is_true() {
    use rustls::{
        AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved,
    };
    for error in [
        Error::InvalidCertificate(CertificateError::Expired),
        Error::InvalidMessage(InvalidMessage::InvalidContentType),
        Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
        Error::NoCertificatesPresented,
        Error::AlertReceived(AlertDescription::CertificateRequired),
        Error::AlertReceived(AlertDescription::UnknownCA),
        Error::AlertReceived(AlertDescription::HandshakeFailure),
        Error::AlertReceived(AlertDescription::ProtocolVersion),
    ] {
        assert!(is_final(&error), "{error:?}");
    }
    for error in [
        Error::AlertReceived(AlertDescription::InternalError),
        Error::AlertReceived(AlertDescription::CloseNotify),
        Error::AlertReceived(AlertDescription::UserCanceled),
        Error::AlertReceived(AlertDescription::DecodeError),
        Error::AlertReceived(AlertDescription::UnrecognisedName),
        Error::PeerMisbehaved(PeerMisbehaved::UnsolicitedEchExtension),
        Error::General("x".into()),
        Error::DecryptError,
    ] {
        assert!(!is_final(&error), "{error:?}");
    }
}

#[test]
fn servers_that_come_and_go_do_not_add_up() {
    let authority = rcgen::generate_simple_self_signed(["host".into()]).unwrap();
    let (tls, files) = (TlsConfigCache::default(), root(&authority.cert.pem()));
    for port in 1..=2 * MAX_SERVERS as u16 {
        tls.configuration(&address(port), &files).unwrap();
    }
    assert!(tls.0.lock().unwrap().by_server.len() <= MAX_SERVERS);
}
