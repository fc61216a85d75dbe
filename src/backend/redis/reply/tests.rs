use ::redis::parse_redis_value;

use super::*;

fn reply(text: &str) -> RespValue {
    from_value(parse_redis_value(text.as_bytes()).unwrap())
}

fn text(text: &'static str) -> RespValue {
    RespValue::String(Bytes::from_static(text.as_bytes()))
}

#[test]
fn replies() {
    assert_eq!(reply("+OK\r\n"), text("OK"));
    assert_eq!(reply("+PONG\r\n"), text("PONG"));
    assert_eq!(reply("$2\r\nab\r\n"), text("ab"));
    assert_eq!(reply("$-1\r\n"), RespValue::Nil);
    assert_eq!(reply("_\r\n"), RespValue::Nil);
    assert_eq!(reply("#t\r\n"), RespValue::Int(1));
    assert_eq!(reply("=6\r\ntxt:ab\r\n"), text("ab"));
    assert_eq!(reply(",1.5\r\n"), text("1.5"));
    assert_eq!(
        reply("*2\r\n:1\r\n*0\r\n"),
        RespValue::Array(vec![RespValue::Int(1), RespValue::Array(vec![])])
    );
    assert_eq!(reply("%1\r\n+k\r\n:1\r\n"), RespValue::Array(vec![text("k"), RespValue::Int(1)]));
}

#[test]
fn errors_keep_their_codes() {
    for (line, code, detail) in [
        ("MOVED 3999 127.0.0.1:6381", "MOVED", "3999 127.0.0.1:6381"),
        ("ASK 1 :1", "ASK", "1 :1"),
        ("NOSCRIPT No matching script.", "NOSCRIPT", "No matching script."),
        ("LOADING x", "LOADING", "x"),
        ("READONLY x", "READONLY", "x"),
        ("ERR x y", "ERR", "x y"),
        ("LOCKTYPE not a lock", "LOCKTYPE", "not a lock"),
        ("OOM x", "OOM", "x"),
        ("BUSY x", "BUSY", "x"),
    ] {
        let error = ServerError { code: code.into(), message: detail.into() };
        assert_eq!(reply(&format!("-{line}\r\n")), RespValue::Error(error.clone()));
        assert_eq!(
            reply(&format!("*1\r\n-{line}\r\n")),
            RespValue::Array(vec![RespValue::Error(error)])
        );
    }
}

#[test]
fn failures_that_no_retry_can_mend() {
    let failure = |line: &str| {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        connect_error(value.extract_error().unwrap_err())
    };
    assert_eq!(
        failure("WRONGPASS no such user").chain().to_string(),
        "authentication failed; check the user and the password: WRONGPASS no such user"
    );
    assert!(failure("WRONGPASS x").is_permanent);
    assert!(failure("NOAUTH x").is_permanent);
    assert!(!failure("LOADING x").is_permanent);
    assert!(!failure("ERR max number of clients reached").is_permanent);
    let io = |kind| connect_error(std::io::Error::from(kind).into());
    let (refused, ended) =
        (io(std::io::ErrorKind::ConnectionRefused), io(std::io::ErrorKind::ConnectionReset));
    assert!(refused.is_connection_refused && !refused.is_permanent && !refused.is_closed_by_peer);
    assert!(ended.is_closed_by_peer && !ended.is_permanent && !ended.is_connection_refused);
}

#[cfg(feature = "tls")]
#[test]
fn connect_failure_of_tls_is_permanent_if_no_retry_can_fix_it() {
    let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    let passing = rustls::Error::AlertReceived(rustls::AlertDescription::InternalError);
    let of = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    assert!(connect_error(of(untrusted).into()).is_permanent);
    assert!(!connect_error(of(passing).into()).is_permanent);
}
