//! Turns the errors of servers, connections and acquisitions into errors of this library.

use rwlease_core::acquisition::AcquisitionError;
use rwlease_core::protocol::{
    CallError, CallErrorKind, ConfirmationError, NameError, ReplyError, confirmation_advice,
};
use rwlease_core::resp::ServerError;

use crate::backend::ConnectionError;
use crate::error::{Error, ErrorKind, internal_message};
use crate::health::ClientFailure;

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        let CallError { kind, source, .. } = error;
        let kind_of_error = match kind {
            CallErrorKind::Rejected(server_error)
            | CallErrorKind::Reply(ReplyError::Server(server_error)) => return server_error.into(),
            CallErrorKind::TimedOut(Some(server_error)) => {
                let message = "the server did not serve the slot in time";
                return Error::new(ErrorKind::Unavailable, message).with_source(server_error);
            }
            CallErrorKind::Reply(error @ ReplyError::Malformed(_)) => return error.into(),
            CallErrorKind::Unconnected { is_invalid: true, .. } => ErrorKind::InvalidInput,
            CallErrorKind::Unconnected { is_invalid: false, .. } => ErrorKind::Rejected,
            CallErrorKind::ClientFailed(_) => ErrorKind::ClientFailed,
            CallErrorKind::Closed => ErrorKind::Cancelled,
            CallErrorKind::TimedOut(None)
            | CallErrorKind::Overloaded
            | CallErrorKind::TooManyRedirects(_)
            | CallErrorKind::SlotUnassigned(_)
            | CallErrorKind::MalformedReply(_) => ErrorKind::Unavailable,
        };
        let error = Error::new(kind_of_error, kind.to_string());
        source.into_iter().fold(error, Error::with_shared_source)
    }
}

impl From<AcquisitionError> for Error {
    fn from(error: AcquisitionError) -> Self {
        let kind = match error {
            AcquisitionError::Call(error) => return error.into(),
            AcquisitionError::LimitMismatch { limit, .. } => {
                return Error::limit_mismatch(error.to_string(), limit);
            }
            AcquisitionError::LeaseLost | AcquisitionError::UnknownTransfer => ErrorKind::LeaseLost,
            AcquisitionError::LeaseRevoked => ErrorKind::LeaseRevoked,
            AcquisitionError::UpgradeConflict => ErrorKind::UpgradeConflict,
            AcquisitionError::TimedOut { .. } => ErrorKind::TimedOut,
            AcquisitionError::QueueFull { .. } => ErrorKind::QueueFull,
            AcquisitionError::Unconfirmed(reason) => return reason.into(),
            AcquisitionError::UpgradeInFlight | AcquisitionError::GrantExpired => {
                ErrorKind::Unavailable
            }
            AcquisitionError::ShutDown => ErrorKind::Cancelled,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<ReplyError> for Error {
    fn from(error: ReplyError) -> Self {
        match error {
            ReplyError::Server(error) => error.into(),
            ReplyError::Malformed(reason) => Error::new(
                ErrorKind::UnsupportedVersion,
                format!("malformed reply to a script: {reason}"),
            ),
        }
    }
}

impl From<ConfirmationError> for Error {
    fn from(reason: ConfirmationError) -> Error {
        match reason {
            ConfirmationError::Refused(error) => match confirmation_advice(&error) {
                Some(advice) => Error::new(ErrorKind::Rejected, advice).with_source(error),
                None => error.into(),
            },
            reason => Error::new(ErrorKind::Unavailable, reason.to_string()),
        }
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        Error::invalid(error.to_string())
    }
}

const LACKS_RIGHT: &str = "the user lacks a right; grant it in the server's ACL";

const LACKS_SCRIPT_RIGHT: &str = "the user lacks a right that the scripts need; grant +time +exists +hmget +hget +hset +hdel \
     +pexpireat +spublish, and for `SetNxMutex` and `TwoKeyRwLock` +get +set +del +pttl";

impl From<ClientFailure> for Error {
    fn from(failure: ClientFailure) -> Self {
        Error::new(ErrorKind::ClientFailed, failure.to_string())
    }
}

impl From<ServerError> for Error {
    fn from(server_error: ServerError) -> Self {
        let (kind, message) = match server_error.code.as_str() {
            "WRONGTYPE" => {
                (ErrorKind::WrongType, "the key is not a lock: its value has another type")
            }
            "LOCKTYPE" if server_error.message.starts_with("shape ") => (
                ErrorKind::WrongType,
                match &*server_error.message {
                    "shape P" => "the key holds a semaphore; use another name for this lock",
                    "shape V" => "the key holds a fenced value; use another name for this lock",
                    _ => "the key holds a read/write lock; use another name for this one",
                },
            ),
            "LOCKTYPE" if !server_error.message.starts_with("malformed") => {
                (ErrorKind::WrongType, "the key is not a lock: it is another hash")
            }
            _ if server_error.code == "LOCKTYPE" || server_error.message.contains("LOCKTYPE") => {
                (ErrorKind::WrongType, "the state of the lock is malformed")
            }
            "LOCKVERSION" => (
                ErrorKind::UnsupportedVersion,
                "the lock is of another protocol version; use one version of this library",
            ),
            "LOCKARGS" => {
                let message = internal_message("a script rejected its arguments");
                return Error::new(ErrorKind::Rejected, message).with_source(server_error);
            }
            "OOM" => (
                ErrorKind::Rejected,
                "the server's memory is full; free memory there, or raise `maxmemory`",
            ),
            "MISCONF" => (
                ErrorKind::Rejected,
                "the server cannot write to its disk; free space there, or promote its replica",
            ),
            "NOPERM" => (ErrorKind::Rejected, LACKS_RIGHT),
            // Valkey's error for a command inside a script, with the command's name.
            _ if server_error.message.contains("ACL failure in script") => {
                (ErrorKind::Rejected, LACKS_RIGHT)
            }
            _ if server_error.message.contains("NOPERM")
                || server_error.message.contains("can't run this command") =>
            {
                // Some versions do not name the command.
                (ErrorKind::Rejected, LACKS_SCRIPT_RIGHT)
            }
            _ => (ErrorKind::Rejected, "the server rejected the call"),
        };
        Error::new(kind, message).with_source(server_error)
    }
}

impl From<ConnectionError> for Error {
    fn from(failure: ConnectionError) -> Self {
        let kind = match failure {
            ConnectionError { is_invalid: true, .. } => ErrorKind::InvalidInput,
            ConnectionError { is_permanent: true, .. } => ErrorKind::Rejected,
            _ => ErrorKind::Unavailable,
        };
        let error = Error::new(kind, failure.message);
        failure.source.into_iter().fold(error, Error::with_shared_source)
    }
}

#[cfg(test)]
mod tests;
