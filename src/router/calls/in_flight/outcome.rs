//! What the outcome of an attempt means for the call: an answer, an error, or another attempt.

use std::time::Duration;

use futures::FutureExt;
use rwlease_core::protocol::{CallError, CallErrorKind, CallReply, ConfirmationResult, Doubt};
use rwlease_core::resp::{Address, RespValue};
use rwlease_core::time::LocalInstant;

use crate::backend::ConnectionError;
use crate::backoff::with_jitter;
use crate::router::calls::delifeq::DelIfEqMiss;
use crate::router::calls::in_flight::{
    AttemptOutcome, CallTarget, InFlightCall, Refusal, ScriptForm,
};
use crate::router::calls::reply_action::{ReplyAction, action_for_reply};
use crate::router::calls::script_upload::NoScriptReply;
use crate::router::calls::{ATTEMPT_BACKOFF, call_error, unconnected};
use crate::router::cluster::refresh::RefreshSource;
use crate::router::connections::exchange::TimedReply;
use crate::router::connections::limits::FREE_REDIRECTS;
use crate::router::telemetry;

/// After this number of redirects in a row, two servers redirect to each other.
const MAX_REDIRECTS: u32 = 16;
const REDIRECT_PAUSE: Duration = Duration::from_millis(2);

/// After this number of connections with malformed replies, a call fails: the other side is no
/// server that this library understands.
pub(crate) const MAX_PROTOCOL_ERRORS: u32 = 3;

/// How old a connection is before a server found by its name is left because it refuses calls.
const REFUSING_CONNECTION_AGE: Duration = Duration::from_secs(1);

impl InFlightCall<'_> {
    /// Decides what an attempt means: the answer, an error, or `None` for another attempt.
    pub(crate) fn apply_outcome(
        &mut self,
        address: &Address,
        attempt: AttemptOutcome,
    ) -> Result<Option<CallReply>, CallError> {
        if let Some(label) = attempt.label() {
            telemetry::record_attempt(self.call.slot, address, label);
        }
        let is_reached = !matches!(
            attempt,
            AttemptOutcome::NotConnected(_) | AttemptOutcome::NoReply { sent: None }
        );
        self.refusal.take_if(|refusal| is_reached && refusal.address == *address);
        match attempt {
            AttemptOutcome::Replied(exchange, confirmed) => {
                return self.apply_reply(address, exchange, confirmed);
            }
            AttemptOutcome::DelIfEqMiss(undone) => {
                self.script_only = true;
                // If nothing is in doubt, no attempt by the script can have deleted it without an
                // answer.
                self.key_is_absent = undone == DelIfEqMiss::ValueDiffers && self.in_doubt.is_none();
            }
            AttemptOutcome::NotConnected(failure) if failure.is_permanent => {
                self.on_refusal(address, failure)?;
            }
            AttemptOutcome::NotConnected(failure) => {
                let named_by = self.target.named_by.as_ref();
                let failure = self.router.topology.explain(failure, address, named_by);
                self.last_failure = Some(failure);
                self.retarget_to_master(address);
                self.increase_backoff();
            }
            AttemptOutcome::Overloaded => return Err(self.call_error(CallErrorKind::Overloaded)),
            AttemptOutcome::NoReply { sent } => {
                self.note_in_doubt(sent.map_or(Doubt::None, Doubt::of_attempt));
                self.retarget_to_master(address);
                if sent.is_none() {
                    self.record_failure();
                }
            }
            AttemptOutcome::Quiet { not_after } => {
                self.note_in_doubt(Doubt::of_attempt(not_after));
                self.last_failure = Some(self.router.limits.of_replies().no_reply(address));
                self.retarget_to_master(address);
            }
            AttemptOutcome::ConnectionLost { failure, not_after } => {
                if failure.maybe_sent {
                    self.note_in_doubt(Doubt::of_attempt(not_after));
                }
                self.count_protocol_error(&failure)?;
                self.last_failure = Some(failure.at(address));
                self.retarget_to_master(address);
                self.record_failure();
            }
        }
        Ok(None)
    }

    /// Turns to the current master of the slot while a refresh of the map runs, and fails if that
    /// has found no other one.
    fn on_refusal(&mut self, address: &Address, failure: ConnectionError) -> Result<(), CallError> {
        let earlier = self.refusal.take().filter(|earlier| earlier.address == *address);
        let refresh = match earlier.map(|earlier| earlier.refresh) {
            Some(refresh) if refresh.clone().now_or_never().is_some() => {
                return Err(self.unconnected(failure));
            }
            Some(refresh) => refresh,
            None => self.router.topology.refresh(RefreshSource::Avoid(address.clone())),
        };
        self.refusal = Some(Refusal { address: address.clone(), failure, refresh });
        self.target = CallTarget::default();
        self.increase_backoff();
        Ok(())
    }

    pub(super) fn unconnected(&self, failure: ConnectionError) -> CallError {
        CallError { in_doubt: self.in_doubt, ..unconnected(failure) }
    }

    /// Decides what an answer means.
    fn apply_reply(
        &mut self,
        address: &Address,
        exchange: TimedReply<RespValue>,
        confirmed: ConfirmationResult,
    ) -> Result<Option<CallReply>, CallError> {
        let TimedReply { value, sent_at: sent, received_at: received } = exchange;
        let decision =
            action_for_reply(value, self.call.slot, address, self.router.topology.translation());
        telemetry::record_attempt(self.call.slot, address, decision.label());
        match decision {
            ReplyAction::Done(reply) => {
                return Ok(Some(CallReply {
                    value: reply,
                    sent_at: sent,
                    received_at: received,
                    server: address.clone(),
                    confirmed,
                    in_doubt: self.in_doubt,
                }));
            }
            ReplyAction::Moved(to) => {
                self.count_redirect("moved", address, &to);
                if to == *address {
                    // By now the address leads to another server than this connection does, as
                    // where a name stays and the server behind it changes.
                    self.retire_open_at(address, sent);
                }
                if self.is_in_circle() {
                    // Each of them teaches the opposite.
                    drop(self.router.topology.refresh(RefreshSource::Several));
                } else {
                    self.router.topology.on_moved(self.call.slot, &to);
                }
                let named_by = Some(address.clone());
                self.target = CallTarget { address: Some(to), named_by, ..CallTarget::default() };
            }
            ReplyAction::Ask(to) => {
                self.count_redirect("ask", address, &to);
                self.router.subscriptions.on_ask(self.call.slot, address, &to);
                let named_by = Some(address.clone());
                self.target = CallTarget {
                    address: Some(to),
                    named_by,
                    asking: true,
                    text: ScriptForm::Digest,
                };
            }
            ReplyAction::NoScript if self.brings_text() => {
                return Err(self.call_error(CallErrorKind::MalformedReply(
                    "unexpected reply to EVAL: NOSCRIPT".into(),
                )));
            }
            ReplyAction::NoScript => {
                self.target = CallTarget {
                    address: Some(address.clone()),
                    named_by: self.target.named_by.take(),
                    asking: self.target.asking,
                    text: ScriptForm::Upload(NoScriptReply {
                        sent_at: sent,
                        was_believed_loaded: matches!(
                            self.target.text,
                            ScriptForm::UploadedByOther
                        ),
                    }),
                };
            }
            ReplyAction::RetryLater { error, refresh } => {
                self.redirect_count = 0;
                if refresh {
                    drop(self.router.topology.refresh(RefreshSource::Avoid(address.clone())));
                    // Nobody but the name tells where another server is. This dials at most once in
                    // that time.
                    if self.router.topology.is_found_by_name() {
                        self.retire_open_at(address, sent.saturating_sub(REFUSING_CONNECTION_AGE));
                    }
                }
                self.last_error = Some(error);
                self.target = CallTarget::default();
                self.increase_backoff();
            }
            ReplyAction::Rejected(error) => {
                return Err(self.call_error(CallErrorKind::Rejected(error)));
            }
            ReplyAction::Malformed(reason) => {
                // It may have run all the same, but cannot arrive again.
                self.note_in_doubt(Doubt::Unbounded);
                return Err(self.call_error(CallErrorKind::MalformedReply(reason)));
            }
        }
        Ok(None)
    }

    /// Retires the connections to `address` that a reply to a command sent at `sent` may have come
    /// from.
    fn retire_open_at(&self, address: &Address, sent: LocalInstant) {
        self.router.connections.retire_open_at(address, sent);
        self.router.replicated.retire_open_at(address, sent);
    }

    /// Turns from a server that did not answer to the current master of the slot.
    fn retarget_to_master(&mut self, address: &Address) {
        self.redirect_count = 0;
        drop(self.router.topology.refresh(RefreshSource::Avoid(address.clone())));
        self.target = CallTarget::default();
    }

    fn note_in_doubt(&mut self, attempt: Doubt) {
        if !self.key_is_absent {
            self.in_doubt = self.in_doubt.max(attempt);
        }
    }

    /// Counts one more redirect. After many in a row, two servers redirect to each other. They will
    /// agree, and until then frequent attempts are useless.
    fn count_redirect(&mut self, kind: &'static str, from: &Address, to: &Address) {
        telemetry::record_redirect(self.call.slot, kind, from, to);
        self.redirect_count = self.redirect_count.saturating_add(1);
        if self.is_in_circle() {
            self.increase_backoff();
        } else if self.is_redirected() {
            self.pause = with_jitter(REDIRECT_PAUSE * self.redirect_count);
        }
    }

    /// Returns true if the number of consecutive redirects shows that two servers redirect to each
    /// other.
    fn is_in_circle(&self) -> bool {
        self.redirect_count > MAX_REDIRECTS
    }

    /// Returns true if the last answers were redirects, more in a row than a slot that moves
    /// causes.
    pub(super) fn is_redirected(&self) -> bool {
        self.redirect_count > FREE_REDIRECTS
    }

    /// Counts an attempt whose connection brought replies that did not fit. The calls of others may
    /// have caused the first one. Fails if it goes on.
    fn count_protocol_error(&mut self, failure: &ConnectionError) -> Result<(), CallError> {
        self.protocol_errors += u32::from(failure.is_protocol_error);
        if self.protocol_errors < MAX_PROTOCOL_ERRORS {
            return Ok(());
        }
        self.last_failure = None;
        Err(self.call_error(CallErrorKind::MalformedReply(failure.chain().to_string())))
    }

    /// The first failure causes no pause: a connection that broke can usually be made again at
    /// once.
    fn record_failure(&mut self) {
        if self.failure_count == 0 {
            self.failure_count = 1;
        } else {
            self.increase_backoff();
        }
    }

    /// Makes the wait before the next attempt longer.
    pub(super) fn increase_backoff(&mut self) {
        self.pause = ATTEMPT_BACKOFF.delay(self.failure_count);
        self.failure_count = self.failure_count.saturating_add(1);
    }

    pub(super) fn call_error(&mut self, reason: CallErrorKind) -> CallError {
        call_error(reason, self.in_doubt, self.last_failure.take())
    }
}
