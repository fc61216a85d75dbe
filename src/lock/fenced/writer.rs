use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use rwlease_core::protocol::{
    AcquisitionId, FencedOperation, FencedReply, FencedRequest, ScriptReply, parse_reply,
};

use crate::error::{Error, ErrorKind, Result};
use crate::fencing_token::FencingToken;
use crate::lock::fenced::FencedValue;
use crate::lock::fenced::call_numbers::CallNumbers;
use crate::lock::fenced::takeover::Takeover;
use crate::lock::lease::Lease;

/// Reads and writes a [`FencedValue`] with one fencing token.
///
/// [`FencedValue::writer`] makes it from a guard. The server refuses each of its calls once the
/// value has seen a newer token, and once another writer with the same token has taken over. Then
/// the call fails with [`StaleToken`](ErrorKind::StaleToken): stop, a newer holder has begun.
///
/// # Order
///
/// The calls of one writer and its clones take effect in the order in which they were made. A call
/// that is repeated or comes late never undoes a later one. Until the first call has its reply, the
/// other calls wait.
///
/// Tasks that share a token share one writer, by clones: the last call wins. If each makes a writer
/// of its own, the first call of the later writer takes over, and the earlier writer is refused
/// from then on. A [transfer](crate::LeaseTransfer) keeps the token, so the client that accepts it
/// shuts out the client that made it. A writer of a lease that has ended does not take over.
///
/// # Errors
///
/// Its calls fail with
///
/// - [`StaleToken`](ErrorKind::StaleToken): see above. [`Error::stored_token`] returns the newest
///   token;
/// - [`OtherLock`](ErrorKind::OtherLock) if the value belongs to another lock;
/// - [`Unavailable`](ErrorKind::Unavailable) if the server did not answer, or too few
///   [replicas](FencedValue::min_replicas) confirmed. The call may have taken effect, or may do so
///   later, until this or a newer writer has called;
/// - [`Rejected`](ErrorKind::Rejected): a right is missing, the memory is full;
/// - [`WrongType`](ErrorKind::WrongType) if the key is not a fenced value;
/// - [`InvalidInput`](ErrorKind::InvalidInput) for a value or an option out of its range.
///
/// # Cancel safety
///
/// If the future of a call is dropped, the call may or may not take effect. It never undoes a later
/// call.
#[derive(Clone)]
pub struct FencedWriter {
    value: FencedValue,
    token: FencingToken,
    shared: Arc<WriterState>,
}

/// What the clones of a writer share.
#[derive(Debug)]
struct WriterState {
    id: AcquisitionId,
    /// The lease of the token. `None` if the token came from elsewhere.
    lease: Option<Lease>,
    numbers: CallNumbers,
    takeover: Takeover,
}

impl FencedWriter {
    pub(super) fn new(
        value: FencedValue,
        token: FencingToken,
        lease: Option<Lease>,
    ) -> FencedWriter {
        let shared = Arc::new(WriterState {
            id: value.client.next_id(),
            lease,
            numbers: CallNumbers::default(),
            takeover: Takeover::default(),
        });
        FencedWriter { value, token, shared }
    }

    /// Returns the value, and makes the server refuse older writers from now on. `None` if there is
    /// no value. One round trip.
    ///
    /// No older writer can change the value after this call. Call it before you write what depends
    /// on the value. If the key is lost, the call creates it without a value. Where a loss matters,
    /// call [`FencedValue::status`] before: it returns `None` for a lost key.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`FencedWriter`](Self#errors).
    pub async fn get(&self) -> Result<Option<Vec<u8>>> {
        match self.call(FencedOperation::Enter).await? {
            FencedReply::Value(value, _) => Ok(Some(value.to_vec())),
            _ => Ok(None),
        }
    }

    /// Writes the value: at most [`FencedValue::MAX_LEN`] bytes. One round trip. The first call of
    /// a writer needs one more if another writer has used the same token.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`FencedWriter`](Self#errors).
    pub async fn set(&self, value: impl AsRef<[u8]> + Send) -> Result<()> {
        self.write(value.as_ref(), false).await
    }

    /// Writes over the value, as [`set`](Self::set), but only if there is one.
    ///
    /// A stale writer cannot create a value whose key was lost, if all writers but the one that
    /// creates it use this.
    ///
    /// # Errors, Cancel safety
    ///
    /// [`NotFound`](ErrorKind::NotFound) if there is no value; otherwise as
    /// [`FencedWriter`](Self#errors).
    pub async fn replace(&self, value: impl AsRef<[u8]> + Send) -> Result<()> {
        self.write(value.as_ref(), true).await
    }

    /// Deletes the value. The server keeps the token, for the
    /// [retention](FencedValue::token_retention), and refuses older writers. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`FencedWriter`](Self#errors).
    pub async fn delete(&self) -> Result<()> {
        self.call(FencedOperation::Delete).await.map(drop)
    }

    /// Returns the token with which this writes.
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Returns the value that this writes.
    pub fn value(&self) -> &FencedValue {
        &self.value
    }

    async fn write(&self, value: &[u8], replace: bool) -> Result<()> {
        if value.len() > FencedValue::MAX_LEN {
            let (len, limit) = (value.len(), FencedValue::MAX_LEN);
            let message = format!("a fenced value must have at most {limit} bytes, not {len}");
            return Err(self.value.add_context(Error::invalid(message)));
        }
        let ttl_ms = self.value.ttl.map_or(0, whole_ms);
        self.call(FencedOperation::Set { value, ttl_ms, replace }).await.map(drop)
    }

    /// After a transfer of the lease another client holds the lock with the same token.
    fn can_take_over(&self) -> bool {
        let WriterState { lease, takeover, .. } = &*self.shared;
        takeover.is_possible() && lease.as_ref().is_none_or(Lease::is_held)
    }

    /// Makes one call, and takes over from an earlier writer with the same token if this writer has
    /// not begun.
    async fn call(&self, operation: FencedOperation<'_>) -> Result<FencedReply> {
        self.value.check()?;
        let FencedValue { client, key, retention, confirmation, .. } = &self.value;
        let WriterState { id, numbers, takeover, .. } = &*self.shared;
        let is_read = matches!(operation, FencedOperation::Enter);
        let write = (!is_read).then(|| numbers.begin_write());
        let mut request = FencedRequest {
            token: self.token.get(),
            writer: *id,
            sequence: write.as_ref().map_or_else(|| numbers.of_read(), |write| write.number),
            predecessor: None,
            retention_ms: whole_ms(*retention),
            operation,
        };
        let deadline = client.call_deadline(*confirmation);
        let turn = std::pin::pin!(takeover.turn());
        let _turn = match select(turn, client.clock.sleep_until(deadline)).await {
            Either::Left((turn, _)) => turn,
            Either::Right(_) => return Err(self.value.add_context(no_turn())),
        };
        loop {
            let call = request.call(key);
            let in_flight = takeover.begin_call();
            let answer = client.transport.call_with(&call, *confirmation, deadline, None).await;
            let result = parse_reply(answer, FencedReply::read);
            in_flight.end(&result);
            let reply = result.map_err(|failure| self.value.add_context(failure))?;
            match reply.body {
                FencedReply::TakenOver { by } if self.can_take_over() => {
                    request.predecessor = Some(by);
                }
                _ => return self.outcome(reply),
            }
        }
    }

    fn outcome(&self, reply: ScriptReply<FencedReply>) -> Result<FencedReply> {
        let FencedValue { name, .. } = &self.value;
        let error = match reply.body {
            FencedReply::Stale { stored } => {
                let message = format!(
                    "value `{name}` refused token {}: it has seen token {stored}; stop the work",
                    self.token
                );
                Error::stale_token(message, stored)
            }
            FencedReply::TakenOver { .. } => {
                let message = format!(
                    "value `{name}` refused token {}: another writer with this token has taken \
                     over; stop the work, or share one writer",
                    self.token
                );
                Error::stale_token(message, self.token.get())
            }
            FencedReply::OtherLock(lock) => return Err(self.value.other_lock(&lock)),
            FencedReply::NotFound => {
                let message = format!("there is no value `{name}` to replace");
                Error::new(ErrorKind::NotFound, message)
            }
            body => match reply.confirmed {
                Ok(()) => return Ok(body),
                Err(reason) => reason.into(),
            },
        };
        Err(self.value.add_context(error))
    }
}

fn no_turn() -> Error {
    let message = "the first call of this writer has had no reply; this call was not sent";
    Error::new(ErrorKind::Unavailable, message)
}

/// Rounds up, so that a duration is never 0.
fn whole_ms(duration: Duration) -> u64 {
    duration.as_nanos().div_ceil(1_000_000) as u64
}

debug_fields!(|writer| FencedWriter {
    value: writer.value.name(),
    fencing_token: writer.token,
    ..
});
