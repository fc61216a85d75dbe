//! How a command ends: its exit status, and the message of a failure.

use std::error::Error as _;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use nix::sys::signal::Signal;
use rwlease::{Error, ErrorKind};

use crate::format;

/// Printed by `--help`; `docs/cli.md` has the same table.
pub const TABLE: &str = "\
Exit status:
    0  done; `run` ends with the exit status of its command, 128 + n if signal n ended it
    1  `doctor` has found something wrong
   64  the command line is wrong
   65  the key holds something that is no lock of this version
   69  the servers cannot be reached, or cannot serve the slot
   71  the system refused something, such as a file
   75  the lock was not granted within the timeout, or its queue is full: try later
   77  the servers refused: a right, a password, a full memory
   79  the lease was lost, and the command stopped, if it could be
  126  the command cannot be run, or is a set-uid program of another user
  127  there is no such command";

pub const CHECK_FAILED: u8 = 1;
pub const USAGE: u8 = 64;
pub const WRONG_TYPE: u8 = 65;
pub const UNAVAILABLE: u8 = 69;
pub const SYSTEM: u8 = 71;
pub const TRY_LATER: u8 = 75;
pub const REFUSED: u8 = 77;
/// The first status after those of `sysexits.h`.
pub const LOST: u8 = 79;
pub const CANNOT_RUN: u8 = 126;
pub const NOT_FOUND: u8 = 127;
/// Plus the number of the signal.
const BY_SIGNAL: u8 = 128;

/// An end without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus(pub u8);

impl ExitStatus {
    pub const DONE: ExitStatus = ExitStatus(0);

    /// The status that shells report for a command that a signal ended.
    pub fn by_signal(signal: i32) -> ExitStatus {
        ExitStatus(BY_SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX)))
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> ExitCode {
        exit.0.into()
    }
}

/// An end with one line that says what to do.
#[derive(Debug)]
pub struct CliError {
    status: u8,
    message: String,
}

impl CliError {
    pub fn new(status: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        CliError { status, message }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        CliError::new(USAGE, message)
    }

    /// Returns true if the servers caused it and it may pass soon.
    pub fn is_transient(&self) -> bool {
        self.status == UNAVAILABLE
    }

    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        self.status == USAGE
    }

    /// Prints the message, and returns the exit status.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            print_error(&self.message);
        }
        self.status.into()
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints one line on standard error. A failure to write it is ignored.
pub fn print_error(message: &str) {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format::escape_controls(&line);
    let style = anstyle::Style::new().bold();
    let _ = writeln!(anstream::stderr(), "{style}rwlease:{style:#} {line}");
}

impl From<ExitStatus> for CliError {
    fn from(exit: ExitStatus) -> Self {
        CliError::new(exit.0, "")
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let (status, advice) = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::TriesUsedUp => {
                (TRY_LATER, "try later, or use a longer --timeout")
            }
            ErrorKind::TooManyWaiters => (TRY_LATER, "try later"),
            ErrorKind::Lost => (LOST, "its fencing token is stale"),
            ErrorKind::Revoked => (LOST, "ask who revoked it before you try again"),
            ErrorKind::Invalid => (USAGE, "see `rwlease --help`"),
            ErrorKind::Foreign | ErrorKind::Incompatible => {
                (WRONG_TYPE, "use another name or --prefix")
            }
            ErrorKind::LimitMismatch => (USAGE, "use its limit: --permits N/LIMIT"),
            ErrorKind::Refused => (REFUSED, "`rwlease doctor` says what is missing"),
            ErrorKind::Unavailable => {
                (UNAVAILABLE, "check that the servers run and that --redis names them")
            }
            _ => (UNAVAILABLE, "try again"),
        };
        let message = error_chain(&error);
        let advice = hint_for(&error_chain_without_lock(&error)).unwrap_or(advice);
        CliError::new(status, format!("{message}; {advice}"))
    }
}

/// The advice for words of servers and of the library that say more than the kind of the error.
pub fn hint_for(message: &str) -> Option<&'static str> {
    const LACKS_RESP3: &str =
        "the server, or a proxy before it, lacks RESP3: use Redis 6.2 or later, or Valkey";
    const NO_DATABASE: &str = "leave the database out of the URL: a cluster has one";
    const NO_SERVER: &str = "check that a Redis or Valkey server listens at this port";
    let advice = [
        ("WRONGPASS", "check the user and its password"),
        ("NOAUTH", "give a user or a password: see `rwlease --help`"),
        ("memory is full", "free memory there, or raise `maxmemory`"),
        ("requested replicas", "check that the replicas run, or use a lower --replicas"),
        ("NOREPLICAS", "check that the replicas run"),
        ("READONLY", "wait until its failover has ended, or check that --redis names the primary"),
        ("LOADING", "wait until the server has loaded its data"),
        // What the library says, and what a server says to the doctor.
        ("a cluster has only database 0", NO_DATABASE),
        ("SELECT is not allowed in cluster mode", NO_DATABASE),
        ("does not speak RESP3", LACKS_RESP3),
        ("unknown command 'HELLO'", LACKS_RESP3),
        ("this is a sentinel", "use redis+sentinel://HOST:PORT/MASTER"),
        ("speaks HTTP", NO_SERVER),
        ("invalid RESP3", NO_SERVER),
        (
            "DB index is out of range",
            "leave the database out of the URL, or use one of the server's",
        ),
        ("BUSY ", "wait until the script that keeps the server busy ends, or end it there"),
    ];
    advice.into_iter().find_map(|(word, advice)| message.contains(word).then_some(advice))
}

/// The error with its sources, without the name of its lock.
pub fn error_chain_without_lock(error: &Error) -> String {
    let message = error_chain(error);
    let lock = error.lock().zip(error.slot());
    let lock = lock.map(|(name, slot)| format!("lock `{name}` (slot {slot}): "));
    lock.and_then(|lock| message.strip_prefix(&lock).map(str::to_owned)).unwrap_or(message)
}

/// The error with its sources. Each is said once: libraries quote and punctuate the same words of a
/// server differently.
pub fn error_chain(error: &Error) -> String {
    let words = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        let said = reason.to_string();
        if !words(&message).contains(&words(&said)) {
            message = format!("{message}: {said}");
        }
        source = reason.source();
    }
    message
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The reader of the output is gone: end as other commands do then.
            io::ErrorKind::BrokenPipe => ExitStatus::by_signal(Signal::SIGPIPE as i32).into(),
            _ => CliError::new(SYSTEM, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_by_signal_is_128_plus_the_signal() {
        assert_eq!(ExitStatus::by_signal(15), ExitStatus(143));
    }

    #[test]
    fn advice_matches_the_error_of_the_server() {
        let advice = |message| hint_for(message).unwrap_or_default();
        assert!(advice("WRONGPASS invalid username-password pair").contains("password"));
        assert!(
            advice("1 of the 2 requested replicas confirmed it in time").contains("--replicas")
        );
        assert!(advice("the server's memory is full").contains("maxmemory"));
        assert!(advice("NOAUTH Authentication required.").contains("give a user"));
        assert!(advice("NOREPLICAS Not enough good replicas to write.").contains("replicas run"));
        let replica = "READONLY You can't write against a read only replica.";
        assert!(advice(replica).contains("primary"));
        assert!(advice("ERR DB index is out of range").contains("database"));
        assert!(advice("BUSY Redis is busy running a script.").contains("script"));
        assert!(advice("LOADING Redis is loading the dataset in memory").contains("loaded"));
        assert!(advice("ERR SELECT is not allowed in cluster mode").contains("out of the URL"));
        assert!(advice("ERR unknown command 'HELLO'").contains("RESP3"));
        assert!(advice("this is a sentinel, not a server").contains("sentinel"));
        assert_eq!(hint_for("no answer in time"), None);
    }

    #[test]
    fn exit_status_table_lists_every_status() {
        let all = [
            CHECK_FAILED,
            USAGE,
            WRONG_TYPE,
            UNAVAILABLE,
            SYSTEM,
            TRY_LATER,
            REFUSED,
            LOST,
            CANNOT_RUN,
            NOT_FOUND,
        ];
        for status in all {
            let stands =
                TABLE.lines().any(|line| line.trim_start().starts_with(&format!("{status}  ")));
            assert!(stands, "{status}");
        }
    }
}
