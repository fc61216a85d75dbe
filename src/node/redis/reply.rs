//! What the `redis` crate gives, in the words of the seam.

#[cfg(feature = "redis-tls")]
use std::{error::Error as _, io};

use ::redis::{ErrorKind, RedisError, Value};
use bytes::Bytes;

use crate::node::{NodeError, Reply, ServerError};

/// A value as a reply. The types that only RESP3 has become those that RESP2 would have sent.
pub(super) fn reply_of(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::Boolean(truth) => Reply::Int(truth.into()),
        Value::Array(items) | Value::Set(items) => Reply::List(items.into_iter().map(reply_of).collect()),
        Value::Map(pairs) => Reply::List(
            pairs
                .into_iter()
                .flat_map(|(key, value)| [key, value])
                .map(reply_of)
                .collect(),
        ),
        Value::Attribute { data, .. } => reply_of(*data),
        Value::ServerError(error) => Reply::Error(ServerError {
            code: error.code().to_owned(),
            detail: error.details().unwrap_or_default().to_owned(),
        }),
        Value::Double(number) => Reply::Text(number.to_string().into()),
        other => {
            let fallback = format!("{other:?}");
            Reply::Text(text_of(other).unwrap_or_else(|| fallback.into()))
        }
    }
}

/// The text in a value, if it is one.
pub(super) fn text_of(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.into()),
        Value::Okay => Some(Bytes::from_static(b"OK")),
        _ => None,
    }
}

/// A failure to connect: nothing was sent yet.
pub(super) fn connect_failure(error: RedisError) -> NodeError {
    NodeError {
        message: error.to_string(),
        maybe_sent: false,
        permanent: is_permanent(&error),
        source: Some(Box::new(error)),
    }
}

/// Whether the same settings will fail again.
fn is_permanent(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::RESP3NotSupported => true,
        _ => matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM")) || is_tls(error),
    }
}

/// Whether the two sides could not agree on TLS, or the certificate is not trusted.
#[cfg(feature = "redis-tls")]
fn is_tls(error: &RedisError) -> bool {
    let inner = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<rustls::Error>())
        || error.source().is_some_and(|source| source.is::<rustls::Error>())
}

#[cfg(not(feature = "redis-tls"))]
fn is_tls(_: &RedisError) -> bool {
    false
}
