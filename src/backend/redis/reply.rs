use std::error::Error as StdError;
use std::sync::Arc;

use ::redis::{ErrorKind, RedisError, Value};
use bytes::Bytes;
use rwlease_core::resp::{RespValue, ServerError};

use crate::backend::dialer::{is_disconnect, is_final_of_tls};
use crate::backend::{
    AUTHENTICATION_FAILED, CONNECTION_FAILED, ConnectionError, INVALID_RESP3, is_auth_error,
};

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

pub(super) fn text_in(value: Value) -> Option<Bytes> {
    text(value).ok()
}

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
    let server_error =
        error.code().map(|code| ServerError::new(code, error.detail().unwrap_or_default()));
    ConnectionError {
        message: message(&error).into(),
        maybe_sent: false,
        is_permanent: is_permanent(&error),
        is_connection_refused: error.is_connection_refusal(),
        is_closed_by_peer: source_matches(&error, is_disconnect),
        is_invalid: false,
        is_protocol_error: error.kind() == ErrorKind::Parse,
        source: match server_error {
            Some(server_error) => Some(Arc::new(server_error)),
            // It has a line for each byte that was possible.
            None if error.kind() == ErrorKind::Parse => None,
            None => Some(root_cause(error)),
        },
    }
    .redact_arguments()
}

fn message(error: &RedisError) -> &'static str {
    match error.kind() {
        ErrorKind::Parse => INVALID_RESP3,
        _ if is_login_rejected(error) => AUTHENTICATION_FAILED,
        _ => CONNECTION_FAILED,
    }
}

/// Returns the I/O error in an error of the crate, or else the error. The two have the same text.
fn root_cause(error: RedisError) -> Source {
    match error.source().and_then(|source| source.downcast_ref::<Source>()) {
        Some(shared) => shared.clone(),
        None => Arc::new(error),
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

fn source_matches(error: &RedisError, is: impl Fn(&(dyn StdError + 'static)) -> bool) -> bool {
    // The crate keeps its source in an `Arc`, which is a separate error type.
    error.source().is_some_and(|source| {
        is(source.downcast_ref::<Source>().map_or(source, |shared| &**shared))
    })
}

#[cfg(test)]
mod tests;
