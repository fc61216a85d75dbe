//! Turns the errors of servers and connections into errors of this library.

use crate::backend::{ConnectionError, ServerError};
use crate::error::{Error, ErrorKind};
use crate::health::ClientFailure;
use crate::router::{CallError, CallErrorKind};

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        let CallError { kind: reason, last_error: last, .. } = error;
        match reason {
            CallErrorKind::Rejected(said) => said.into(),
            CallErrorKind::PermanentConnectionError => match last {
                Some(failure) => unconnected(failure),
                None => Error::new(ErrorKind::Refused, reason.to_string()),
            },
            // The message says what the failure says.
            CallErrorKind::Unreachable(..) | CallErrorKind::NoSentinel(..) => {
                let unavailable = Error::new(ErrorKind::Unavailable, reason.to_string());
                last.and_then(|failure| failure.source)
                    .into_iter()
                    .fold(unavailable, Error::with_shared_source)
            }
            CallErrorKind::InvalidDeployment(why) => Error::invalid(why),
            CallErrorKind::ClientFailed(failure) => failure.into(),
            CallErrorKind::Closed => Error::new(ErrorKind::Cancelled, "the client is shut down"),
            CallErrorKind::TimedOut(Some(said)) => {
                Error::new(ErrorKind::Unavailable, "the slot could not be served in time")
                    .with_source(said)
            }
            reason => {
                let unavailable = Error::new(ErrorKind::Unavailable, reason.to_string());
                last.into_iter().fold(unavailable, Error::with_source)
            }
        }
    }
}

impl From<ClientFailure> for Error {
    fn from(failure: ClientFailure) -> Self {
        Error::new(ErrorKind::ClientFailed, failure.to_string())
    }
}

impl From<ServerError> for Error {
    fn from(said: ServerError) -> Self {
        let (kind, message) = match said.code.as_str() {
            "WRONGTYPE" => (ErrorKind::Foreign, "the key holds a value of another type"),
            "LOCKFOREIGN" => (ErrorKind::Foreign, "the key holds a hash that is no lock"),
            _ if said.message.contains("LOCKFOREIGN") => {
                (ErrorKind::Foreign, "the lock's hash is malformed")
            }
            "LOCKVERSION" => {
                (ErrorKind::Incompatible, "the lock is of another version of the protocol")
            }
            "OOM" => (ErrorKind::Refused, "the server's memory is full"),
            "NOPERM" => (ErrorKind::Refused, "the user lacks a right"),
            // Valkey's error for a command inside a script, with the command's name.
            _ if said.message.contains("ACL failure in script") => {
                (ErrorKind::Refused, "the user lacks a right")
            }
            _ if said.message.contains("NOPERM")
                || said.message.contains("can't run this command") =>
            {
                // Some versions do not name the command.
                (
                    ErrorKind::Refused,
                    "the user lacks one of the rights that the scripts need: +time, +exists, +hmget, +hget, +hset, +hdel, +pexpireat, \
                     +spublish; +get, +set, +del, +pttl (mutex, two-key lock)",
                )
            }
            _ => (ErrorKind::Refused, "the server refused"),
        };
        Error::new(kind, message).with_source(said)
    }
}

/// Whether a server refused a script before it began: the user has no right to run scripts, or none
/// to the key. Servers name the script if it lacks a right itself.
pub(crate) fn is_rejected_before_run(said: &ServerError) -> bool {
    said.code == "NOPERM" && !said.message.contains("script")
}

impl From<ConnectionError> for Error {
    fn from(failure: ConnectionError) -> Self {
        unconnected(failure)
    }
}

/// The error for a connection that cannot be opened.
fn unconnected(failure: ConnectionError) -> Error {
    let kind = match failure {
        ConnectionError { is_invalid: true, .. } => ErrorKind::Invalid,
        ConnectionError { is_permanent: true, .. } => ErrorKind::Refused,
        _ => ErrorKind::Unavailable,
    };
    let error = Error::new(kind, format!("cannot connect: {}", failure.message));
    failure.source.into_iter().fold(error, Error::with_shared_source)
}
