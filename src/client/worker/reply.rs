//! Answers to what the worker sends.

use crate::clock::Moment;
use crate::node::{Address, Reply};
use crate::protocol::{BadReply, Envelope};
use crate::router::{Answer, CallError, Reason};

/// A call that told nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("no answer")]
    Passing,
    #[error("{0}")]
    Final(crate::error::Error),
}

/// What an answer says, and when and with how many replicas.
pub(super) struct Told<T> {
    pub(super) what: T,
    pub(super) envelope: Envelope,
    pub(super) sent: Moment,
    pub(super) node: Address,
    pub(super) confirmed: u32,
}

pub(super) fn read<T>(
    result: Result<Answer, CallError>,
    reader: impl FnOnce(Reply) -> Result<(Envelope, T), BadReply>,
) -> Result<Told<T>, Failure> {
    match result {
        Ok(answer) => {
            let (envelope, what) =
                reader(answer.reply).map_err(|bad| Failure::Final(bad.into()))?;
            Ok(Told {
                what,
                envelope,
                sent: answer.sent,
                node: answer.address,
                confirmed: answer.confirmed,
            })
        }
        Err(error) if matches!(error.reason, Reason::Refused(_) | Reason::Garbled(_)) => {
            Err(Failure::Final(error.into()))
        }
        Err(_) => Err(Failure::Passing),
    }
}
