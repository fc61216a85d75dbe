use std::error::Error as StdError;
use std::sync::Arc;

use ::fred::error::{Error, ErrorKind};
use ::fred::types::{Resp3Frame, Value};
use bytes::Bytes;
use rwlease_core::excerpt::excerpt;
use rwlease_core::resp::{RespValue, ServerError};

use crate::backend::handshake_error::{hello_refused, is_final_tls_error, select_refused};
use crate::backend::{AUTHENTICATION_FAILED, CONNECTION_FAILED, ConnectionError, INVALID_RESP3};

/// Converts a frame to a reply. Types that only RESP3 has become what RESP2 would have sent.
pub(super) fn from_frame(frame: Resp3Frame) -> RespValue {
    let list =
        |frames: Vec<Resp3Frame>| RespValue::Array(frames.into_iter().map(from_frame).collect());
    match frame {
        Resp3Frame::Null => RespValue::Nil,
        Resp3Frame::Number { data, .. } => RespValue::Int(data),
        Resp3Frame::Boolean { data, .. } => RespValue::Int(data.into()),
        Resp3Frame::Double { data, .. } => RespValue::String(data.to_string().into()),
        Resp3Frame::BlobString { data, .. }
        | Resp3Frame::SimpleString { data, .. }
        | Resp3Frame::VerbatimString { data, .. }
        | Resp3Frame::BigNumber { data, .. }
        | Resp3Frame::ChunkedString(data) => RespValue::String(data),
        Resp3Frame::SimpleError { data, .. } => RespValue::Error(ServerError::parse(&data)),
        Resp3Frame::BlobError { data, .. } => {
            RespValue::Error(ServerError::parse(&String::from_utf8_lossy(&data)))
        }
        Resp3Frame::Array { data, .. } | Resp3Frame::Push { data, .. } => list(data),
        Resp3Frame::Set { data, .. } => list(data.into_iter().collect()),
        Resp3Frame::Map { data, .. } => {
            list(data.into_iter().flat_map(|(key, value)| [key, value]).collect())
        }
        Resp3Frame::Hello { .. } => RespValue::Nil,
    }
}

/// An element of a pipeline's answer.
pub(super) fn from_value(result: Result<Value, Error>) -> RespValue {
    let list = |values: Vec<Value>| {
        RespValue::Array(values.into_iter().map(|value| from_value(Ok(value))).collect())
    };
    match result {
        // The details are the server's whole line.
        Err(error) => RespValue::Error(ServerError::parse(error.details())),
        Ok(Value::Null) => RespValue::Nil,
        Ok(Value::Integer(number)) => RespValue::Int(number),
        Ok(Value::Boolean(truth)) => RespValue::Int(truth.into()),
        Ok(Value::Double(number)) => RespValue::String(number.to_string().into()),
        Ok(Value::String(text)) => RespValue::String(text.into_inner()),
        Ok(Value::Bytes(bytes)) => RespValue::String(bytes),
        Ok(Value::Queued) => RespValue::String(Bytes::from_static(b"QUEUED")),
        Ok(Value::Array(values)) => list(values),
        Ok(Value::Map(map)) => list(
            map.inner()
                .into_iter()
                .flat_map(|(key, value)| [Value::Bytes(key.into_bytes()), value])
                .collect(),
        ),
    }
}

/// A failure after the command was handed over. It is unknown how far the command got.
pub(super) fn command_error(error: &Error) -> ConnectionError {
    ConnectionError { maybe_sent: true, ..connect_error(error.clone()) }
}

/// A failure to connect: nothing was sent.
pub(super) fn connect_error(error: Error) -> ConnectionError {
    let is_io = |kinds: &[&str]| {
        *error.kind() == ErrorKind::IO && kinds.iter().any(|kind| error.details().contains(kind))
    };
    let is_protocol_error = matches!(error.kind(), ErrorKind::Parse | ErrorKind::Protocol);
    let message = match error.kind() {
        _ if is_protocol_error => INVALID_RESP3,
        ErrorKind::Auth => AUTHENTICATION_FAILED,
        _ => CONNECTION_FAILED,
    };
    ConnectionError {
        message: message.into(),
        maybe_sent: false,
        is_permanent: is_permanent(&error),
        is_connection_refused: is_io(&["ConnectionRefused"]),
        is_closed_by_peer: is_io(&["ConnectionReset", "BrokenPipe", "UnexpectedEof"]),
        is_invalid: false,
        is_protocol_error,
        source: Some(source(error)),
    }
    .redact_arguments()
}

/// The error, or an excerpt if it is long.
fn source(error: Error) -> Arc<dyn StdError + Send + Sync> {
    let text = error.to_string();
    match excerpt(&text) {
        short if short == text => Arc::new(error),
        short => Box::<dyn StdError + Send + Sync>::from(short).into(),
    }
}

/// The failure to open a connection: what the server refused, or that of the connection.
pub(super) fn handshake_failure(error: Error, database: Option<u8>) -> ConnectionError {
    // The details are the server's whole line, if it is one of a server.
    let server_error = ServerError::parse(error.details());
    let is_code = !server_error.code.is_empty()
        && server_error.code.bytes().all(|byte| byte.is_ascii_uppercase());
    match database {
        _ if !is_code || *error.kind() == ErrorKind::IO => connect_error(error),
        Some(database)
            if server_error.message.contains("SELECT")
                || server_error.message.contains("DB index") =>
        {
            select_refused(&server_error, database.into())
        }
        _ => hello_refused(&server_error, false),
    }
}

/// Returns true if the same settings will fail again.
fn is_permanent(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Auth | ErrorKind::Config => true,
        // `fred` has no kind for it. The details are the server's whole line.
        ErrorKind::Unknown if ServerError::parse(error.details()).code == "NOPERM" => true,
        // The errors of `rustls`, above all an untrusted certificate, come as the text of an I/O
        // error of this kind.
        ErrorKind::IO => {
            let of_tls = error.details().strip_prefix("Custom { kind: InvalidData, error: ");
            of_tls.is_some_and(is_final_tls_error)
        }
        // The variant exists only with one of the TLS features, which the application may have
        // turned on. With `native-tls` it also stands for a broken connection.
        kind => kind.to_str() == "TLS Error" && !error.details().contains("Io("),
    }
}

#[cfg(all(test, feature = "tls", any(feature = "native", feature = "redis")))]
mod tests;
