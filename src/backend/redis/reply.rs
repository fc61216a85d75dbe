//! Converts values of the `redis` crate to replies.

use std::error::Error as StdError;
use std::sync::Arc;

use ::redis::{ErrorKind, RedisError, Value};
use bytes::Bytes;

use crate::backend::dialer::{is_disconnect, is_final_of_tls};
use crate::backend::{ConnectionError, RespValue, ServerError, is_auth_error};
use crate::excerpt::excerpt;

/// Converts a value to a reply. Types that only RESP3 has become what RESP2 would have sent.
pub(crate) fn from_value(value: Value) -> RespValue {
    match value {
        Value::Nil => RespValue::Nil,
        Value::Int(number) => RespValue::Int(number),
        Value::Boolean(truth) => RespValue::Int(truth.into()),
        Value::Array(items) | Value::Set(items) => {
            RespValue::Array(items.into_iter().map(from_value).collect())
        }
        Value::Map(pairs) => RespValue::Array(
            pairs.into_iter().flat_map(|(key, value)| [key, value]).map(from_value).collect(),
        ),
        Value::Attribute { data, .. } => from_value(*data),
        Value::ServerError(error) => {
            RespValue::Error(ServerError::new(error.code(), error.details().unwrap_or_default()))
        }
        Value::Double(number) => RespValue::String(number.to_string().into()),
        other => RespValue::String(text(other).unwrap_or_else(|other| format!("{other:?}").into())),
    }
}

/// The text in a value, if it has one.
pub(super) fn text_in(value: Value) -> Option<Bytes> {
    text(value).ok()
}

/// The text in a value, or else the value.
fn text(value: Value) -> Result<Bytes, Value> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text.into()),
        Value::Okay => Ok(Bytes::from_static(b"OK")),
        other => Err(other),
    }
}

type Source = Arc<dyn StdError + Send + Sync>;

/// A failure to connect: nothing was sent.
pub(crate) fn connect_error(error: RedisError) -> ConnectionError {
    let said = error.code().map(|code| ServerError::new(code, error.detail().unwrap_or_default()));
    ConnectionError {
        message: said.as_ref().map_or_else(|| message(&error), ServerError::to_string),
        maybe_sent: false,
        is_permanent: is_permanent(&error),
        is_connection_refused: error.is_connection_refusal(),
        is_closed_by_peer: source_matches(&error, is_disconnect),
        is_invalid: false,
        is_protocol_error: error.kind() == ErrorKind::Parse,
        source: match said {
            Some(said) => Some(Arc::new(said)),
            None if error.kind() == ErrorKind::Parse => None,
            None => Some(Arc::new(error)),
        },
    }
    .redact_arguments()
}

fn message(error: &RedisError) -> String {
    match error.kind() {
        // It has a line for each byte that was possible.
        ErrorKind::Parse => "invalid RESP3: the port may not be that of a server".into(),
        _ => excerpt(&error.to_string()),
    }
}

/// Returns true if the same settings will fail again.
fn is_permanent(error: &RedisError) -> bool {
    is_login_rejected(error)
        || error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPERM")
        || source_matches(error, is_final_of_tls)
}

/// Returns true if the server does not accept the credentials.
pub(super) fn is_login_rejected(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || error.code().is_some_and(is_auth_error)
}

/// Whether it is true of the error's source.
fn source_matches(error: &RedisError, is: impl Fn(&(dyn StdError + 'static)) -> bool) -> bool {
    // The crate keeps its source in an `Arc`, which is a separate error type.
    error.source().is_some_and(|source| {
        is(source.downcast_ref::<Source>().map_or(source, |shared| &**shared))
    })
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            reply("%1\r\n+k\r\n:1\r\n"),
            RespValue::Array(vec![text("k"), RespValue::Int(1)])
        );
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
            ("LOCKFOREIGN not a lock", "LOCKFOREIGN", "not a lock"),
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
        assert_eq!(failure("WRONGPASS no such user").message, "WRONGPASS no such user");
        assert!(failure("WRONGPASS x").is_permanent);
        assert!(failure("NOAUTH x").is_permanent);
        assert!(!failure("LOADING x").is_permanent);
        assert!(!failure("ERR max number of clients reached").is_permanent);
        let io = |kind| connect_error(std::io::Error::from(kind).into());
        let (refused, ended) =
            (io(std::io::ErrorKind::ConnectionRefused), io(std::io::ErrorKind::ConnectionReset));
        assert!(
            refused.is_connection_refused && !refused.is_permanent && !refused.is_closed_by_peer
        );
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
}
