use std::error::Error as _;

use rwlease_core::protocol::{Confirmation, Fsync};
use rwlease_core::resp::RespValue;

use super::*;

#[test]
fn server_error_becomes_kind_and_text_without_the_words_of_the_server() {
    for (line, kind, text) in [
        ("WRONGTYPE x", ErrorKind::WrongType, "its value has another type"),
        ("LOCKTYPE field s is missing", ErrorKind::WrongType, "it is another hash"),
        ("LOCKTYPE shape P", ErrorKind::WrongType, "holds a semaphore; use another name"),
        ("LOCKTYPE shape V", ErrorKind::WrongType, "holds a fenced value; use another name"),
        ("LOCKTYPE shape W", ErrorKind::WrongType, "holds a read/write lock; use another name"),
        ("LOCKTYPE malformed queue", ErrorKind::WrongType, "state of the lock is malformed"),
        ("ERR Error running script: LOCKTYPE x", ErrorKind::WrongType, "malformed"),
        ("LOCKVERSION 3", ErrorKind::UnsupportedVersion, "another protocol version"),
        ("LOCKARGS invalid id", ErrorKind::Rejected, "internal error: a script rejected"),
        ("OOM x", ErrorKind::Rejected, "memory is full"),
        ("MISCONF x", ErrorKind::Rejected, "cannot write to its disk"),
        ("NOPERM x", ErrorKind::Rejected, "lacks a right; grant it"),
        ("ERR ACL failure in script: x", ErrorKind::Rejected, "lacks a right; grant it"),
        ("ERR x NOPERM x", ErrorKind::Rejected, "lacks a right that the scripts need"),
        ("ERR x", ErrorKind::Rejected, "the server rejected the call"),
    ] {
        let error = Error::from(ServerError::parse(line));
        assert_eq!(error.kind(), kind, "{line}");
        assert!(error.to_string().contains(text), "{line}: {error}");
        let source = error.source().map(ToString::to_string).unwrap_or_default();
        assert_eq!(source, line);
        assert!(!error.to_string().contains(&source), "{error}");
    }
}

#[test]
fn refused_confirmation_is_rejected_with_what_to_do() {
    for (line, advice) in [
        ("ERR unknown command 'WAITAOF', with args beginning with: '1' ", "Redis 7.2"),
        (
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            "appendonly yes",
        ),
        ("NOPERM this user has no permissions to run the 'waitaof' command", "lacks a right"),
    ] {
        let wanted = Confirmation { replicas: 0, fsync: Fsync::Master };
        let refused =
            Error::from(wanted.read(&[RespValue::Error(ServerError::parse(line))]).unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::Rejected);
        assert!(refused.to_string().contains(advice), "{refused}");
    }
}
