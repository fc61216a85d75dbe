//! How a command ends: its exit status, and the message of a failure.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::process::ExitCode;

use nix::sys::signal::Signal;
use rwlease::{Error, ErrorKind};

use crate::messages::print_error;

/// The exit statuses that `--help` and the manual pages list. `docs/cli.md` has the same table.
const TABLE: [(u8, &str); 11] = [
    (0, "done"),
    (CHECK_FAILED, "`doctor` found something wrong"),
    (USAGE, "the command line is wrong"),
    (WRONG_TYPE, "the key holds no lock, or one of another version"),
    (UNAVAILABLE, "no server was reached, or the slot is not served"),
    (SYSTEM, "the system refused something, such as a file"),
    (TRY_LATER, "the lock was not granted in time, or its queue is full; try later"),
    (REFUSED, "the server refused: a missing right, a wrong password, a full memory"),
    (LOST, "the lease was lost; the command was stopped, if possible"),
    (CANNOT_RUN, "the command cannot be run, or is a set-uid program of another user"),
    (NOT_FOUND, "the command does not exist"),
];

/// The statuses of commands that list locks, and that query or change one.
pub const OF_LOCK: &[u8] = &[0, USAGE, WRONG_TYPE, UNAVAILABLE, SYSTEM, REFUSED];
pub const OF_DOCTOR: &[u8] = &[0, CHECK_FAILED, USAGE, UNAVAILABLE, SYSTEM, REFUSED];
/// The statuses of commands that call no server.
pub const OF_LOCAL: &[u8] = &[0, USAGE, SYSTEM];

/// The part of a help text that lists these statuses.
pub fn table(statuses: &[u8]) -> String {
    let rows = TABLE.iter().filter(|(status, _)| statuses.contains(status));
    let rows: String =
        rows.map(|(status, meaning)| format!("  {status:>7}  {meaning}\n")).collect();
    format!("Exit status:\n{rows}  128 + n  signal n ended it; 141 if its output is not read")
}

/// The statuses of all commands.
pub fn full_table() -> String {
    table(&TABLE.map(|(status, _)| status))
}

/// The statuses of `run`: any status of its command, and the statuses of `rwlease`.
pub fn run_table() -> String {
    let own = TABLE.map(|(status, _)| status);
    let own: Vec<u8> =
        own.into_iter().filter(|status| ![0, CHECK_FAILED].contains(status)).collect();
    let table = table(&own).replacen(
        "Exit status:\n",
        "Exit status:\n  the exit status of the command, or\n",
        1,
    );
    table.replace(
        "signal n ended it; 141 if its output is not read",
        "signal n ended the command or the wait",
    )
}

pub const CHECK_FAILED: u8 = 1;
pub const USAGE: u8 = 64;
pub const WRONG_TYPE: u8 = 65;
pub const UNAVAILABLE: u8 = 69;
pub const SYSTEM: u8 = 71;
pub const TRY_LATER: u8 = 75;
pub const REFUSED: u8 = 77;
/// The first status after the statuses of `sysexits.h`.
pub const LOST: u8 = 79;
pub const CANNOT_RUN: u8 = 126;
pub const NOT_FOUND: u8 = 127;
/// Plus the number of the signal.
const BY_SIGNAL: u8 = 128;

/// An end without a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Whether a server has replied that others hold the lock.
    is_held: bool,
}

impl CliError {
    pub fn new(status: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        CliError { status, message, is_held: false }
    }

    /// Others hold the lock.
    pub fn held(message: impl Into<String>) -> Self {
        CliError { is_held: true, ..CliError::new(TRY_LATER, message) }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        CliError::new(USAGE, message)
    }

    /// Returns true if the servers caused the failure and a retry may succeed.
    pub fn is_transient(&self) -> bool {
        self.status == UNAVAILABLE
    }

    /// Returns true if the lock was not granted in time.
    pub fn is_try_later(&self) -> bool {
        self.status == TRY_LATER
    }

    /// Returns true if a server has replied that others hold the lock. A time limit that ended
    /// before the lock was asked for says nothing about holders.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Adds a note in parentheses to the message.
    pub fn with_note(mut self, note: String) -> Self {
        self.message = format!("{} ({note})", self.message);
        self
    }

    /// Adds a part to the message.
    pub fn and(mut self, part: &str) -> Self {
        self.message = format!("{}; {part}", self.message);
        self
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

impl From<ExitStatus> for CliError {
    fn from(exit: ExitStatus) -> Self {
        CliError::new(exit.0, "")
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let (status, advice) = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::AttemptsExhausted => {
                (TRY_LATER, "try later, or use a longer --timeout")
            }
            ErrorKind::QueueFull => (TRY_LATER, "try later"),
            ErrorKind::LeaseLost => (LOST, "its fencing token is stale"),
            ErrorKind::LeaseRevoked => (LOST, "ask who revoked the lock before you try again"),
            ErrorKind::InvalidInput => (USAGE, "see `rwlease --help`"),
            ErrorKind::WrongType | ErrorKind::UnsupportedVersion => {
                (WRONG_TYPE, "use another name or --prefix")
            }
            ErrorKind::LimitMismatch => (USAGE, "use this limit: --permits N/LIMIT"),
            ErrorKind::Rejected => (REFUSED, "run `rwlease doctor` to see what is missing"),
            ErrorKind::Unavailable => {
                (UNAVAILABLE, "check that the servers run and that --redis names them")
            }
            _ => (UNAVAILABLE, "try again"),
        };
        let message = with_advice(&error, advice);
        CliError { is_held: status == TRY_LATER, ..CliError::new(status, message) }
    }
}

/// The error with its sources and advice: the hint for its words, or `otherwise` if the library
/// itself does not say what to do.
pub fn with_advice(error: &Error, otherwise: &str) -> String {
    let message = error_chain(error);
    let words = error_chain_without_lock(error);
    match hint_for(&words) {
        Some(advice) => format!("{message}; {advice}"),
        None if words.contains("; ") => message,
        None => format!("{message}; {otherwise}"),
    }
}

/// The advice for words of servers and of the library that say more than the kind of the error.
pub fn hint_for(message: &str) -> Option<&'static str> {
    const NO_DATABASE: &str = "leave the database out of the URL";
    const NO_SERVER: &str = "check that a Redis or Valkey server listens at this port";
    let advice = [
        ("NOAUTH", "see `rwlease --help` for how to give them"),
        ("lacks a right", "run `rwlease doctor` to see all that are missing"),
        ("DENIED", "give the server a password; keep its protected mode"),
        ("CLUSTERDOWN", "run `rwlease doctor` to see which servers are down"),
        ("requested replicas", "check that the replicas run, or use a lower --min-replicas"),
        ("NOREPLICAS", "check that the replicas run"),
        ("MISCONF", "free the disk of the server, or promote its replica"),
        ("READONLY", "wait until its failover has ended, or check that --redis names the primary"),
        ("LOADING", "wait until the server has loaded its data"),
        // What the library says, and what a server says to the doctor.
        ("a cluster has only database 0", NO_DATABASE),
        ("SELECT is not allowed in cluster mode", NO_DATABASE),
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

/// The error with its sources.
pub fn error_chain(error: &Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        message = format!("{message}: {reason}");
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
mod tests;
