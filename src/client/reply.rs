//! Parsing the outcomes of calls.

use std::fmt;

use crate::clock::Moment;
use crate::error::Error;
use crate::node::{Address, Reply};
use crate::protocol::{BadReply, Envelope};
use crate::router::{Answer, CallError, Reason};

/// The contents of an answer, and what is known about its call.
#[derive(Debug)]
pub(crate) struct Told<T> {
    pub(crate) what: T,
    pub(crate) envelope: Envelope,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
    pub(crate) node: Address,
    /// The number of replicas that confirmed.
    pub(crate) confirmed: u32,
    /// As in [`Answer::in_doubt`].
    pub(crate) in_doubt: Option<u64>,
}

/// A call without a usable answer.
#[derive(Debug)]
pub(crate) enum Failure {
    Call(CallError),
    /// An answer that is an error or cannot be parsed.
    Reply {
        bad: BadReply,
        in_doubt: Option<u64>,
    },
}

pub(crate) type Outcome<T> = Result<Told<T>, Failure>;

impl Failure {
    /// As in [`Answer::in_doubt`].
    pub(crate) fn in_doubt(&self) -> Option<u64> {
        match self {
            Failure::Call(error) => error.in_doubt,
            Failure::Reply { in_doubt, .. } => *in_doubt,
        }
    }

    /// Whether the same call may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Failure::Call(error) => {
                !matches!(error.reason, Reason::Refused(_) | Reason::Garbled(_))
            }
            Failure::Reply { .. } => false,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Call(error) => error.into(),
            Failure::Reply { bad, .. } => bad.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            passing if passing.is_passing() => f.write_str("no answer"),
            Failure::Call(error) => error.fmt(f),
            Failure::Reply { bad: BadReply::Error(said), .. } => said.fmt(f),
            Failure::Reply { bad: BadReply::Garbled(what), .. } => f.write_str(what),
        }
    }
}

pub(crate) fn read<T>(
    result: Result<Answer, CallError>,
    reader: impl FnOnce(Reply) -> Result<(Envelope, T), BadReply>,
) -> Outcome<T> {
    let answer = result.map_err(Failure::Call)?;
    let in_doubt = answer.in_doubt;
    let read = reader(answer.reply);
    let (envelope, what) = read.map_err(|bad| Failure::Reply { bad, in_doubt })?;
    Ok(Told {
        what,
        envelope,
        sent: answer.sent,
        received: answer.received,
        node: answer.address,
        confirmed: answer.confirmed,
        in_doubt,
    })
}
