//! What the outcome of an attempt means for the call: an answer, an error, or another attempt.

use std::time::Duration;

use crate::backoff::jittered;
use crate::node::{Address, NodeError, Reply};
use crate::router::ATTEMPTS;
use crate::router::answer::{Decision, decide};
use crate::router::call::{Answer, CallError, Reason};
use crate::router::connection::Exchange;
use crate::router::delete_if_equal::Undone;
use crate::router::in_flight::{Attempt, InFlightCall, Target, Text};
use crate::router::telemetry;
use crate::router::texts::Unknown;
use crate::router::topology::RefreshFrom;

/// After this many redirects in a row something is wrong, and the call pauses between attempts.
const SWIFT_REDIRECTS: u32 = 3;
/// After this many, servers name each other.
const MAX_REDIRECTS: u32 = 16;
const REDIRECT_PAUSE: Duration = Duration::from_millis(2);

/// With so many connections whose replies do not fit, a call gives up: the other side is no server
/// that this library understands.
pub(crate) const MAX_PROTOCOL_ERRORS: u32 = 3;

impl InFlightCall<'_> {
    /// Decides what an attempt means: the answer, an error, or `None` for another attempt.
    pub(crate) fn settle(
        &mut self,
        address: &Address,
        attempt: Attempt,
    ) -> Result<Option<Answer>, CallError> {
        if let Some(outcome) = attempt.outcome() {
            telemetry::attempted(self.call.slot, address, outcome);
        }
        match attempt {
            Attempt::Answered(exchange) => return self.take_in(address, exchange),
            Attempt::Confirmed(exchange, confirmed) => {
                self.confirmed = confirmed;
                return self.take_in(address, exchange);
            }
            Attempt::Undone(undone) => {
                self.by_script = true;
                // If nothing is in doubt, no attempt by the script can have deleted it without an
                // answer.
                self.is_gone = undone == Undone::Different && self.in_doubt.is_none();
            }
            Attempt::Unconnected(failure) if failure.permanent => {
                self.last_failure = Some(failure);
                return Err(self.failed(Reason::Permanent));
            }
            Attempt::Unconnected(failure) => {
                let named_by = self.next.named_by.as_ref();
                let failure = self.router.topology.explain(failure, address, named_by);
                self.last_failure = Some(failure);
                self.leave(address);
                self.lengthen_pause();
            }
            Attempt::Crowded => return Err(self.failed(Reason::Overloaded)),
            Attempt::Silent { sent } => {
                self.note_in_doubt(sent);
                self.leave(address);
                if sent.is_none() {
                    self.note_trouble();
                }
            }
            Attempt::Quiet { not_after } => {
                self.note_in_doubt(Some(not_after));
                self.last_failure = Some(self.router.limits.of_replies().no_reply(address));
                self.leave(address);
            }
            Attempt::Broken { failure, not_after } => {
                self.note_in_doubt(failure.maybe_sent.then_some(not_after));
                self.count_protocol_error(&failure)?;
                self.last_failure = Some(failure);
                self.leave(address);
                self.note_trouble();
            }
        }
        Ok(None)
    }

    /// Decides what an answer means.
    fn take_in(
        &mut self,
        address: &Address,
        exchange: Exchange<Reply>,
    ) -> Result<Option<Answer>, CallError> {
        let Exchange { value, sent, received } = exchange;
        let decision = decide(value, self.call.slot, address, self.router.topology.translation());
        telemetry::attempted(self.call.slot, address, decision.outcome());
        match decision {
            Decision::Done(reply) => {
                return Ok(Some(Answer {
                    reply,
                    sent,
                    received,
                    address: address.clone(),
                    confirmed: self.confirmed,
                    in_doubt: self.in_doubt,
                }));
            }
            Decision::Moved(to) => {
                self.count_redirect("moved", address, &to);
                if to == *address {
                    // By now the address leads to another server than this connection does, as
                    // where a name stays and the server behind it changes.
                    self.router.connections.retire_open_at(address, sent);
                    self.router.replicated.retire_open_at(address, sent);
                }
                if self.is_in_circle() {
                    // Each of them teaches the opposite.
                    drop(self.router.topology.refresh(RefreshFrom::Several));
                } else {
                    self.router.topology.moved(self.call.slot, &to);
                }
                let named_by = Some(address.clone());
                self.next = Target { address: Some(to), named_by, ..Target::default() };
            }
            Decision::Ask(to) => {
                self.count_redirect("ask", address, &to);
                self.router.subscriptions.asked(self.call.slot, address, &to);
                let named_by = Some(address.clone());
                self.next =
                    Target { address: Some(to), named_by, asking: true, text: Text::Digest };
            }
            Decision::NoScript if self.brings_text() => {
                return Err(self.failed(Reason::Garbled("NOSCRIPT in answer to EVAL".into())));
            }
            Decision::NoScript => {
                self.next = Target {
                    address: Some(address.clone()),
                    named_by: self.next.named_by.take(),
                    asking: self.next.asking,
                    text: Text::Wanted(Unknown {
                        sent,
                        again: matches!(self.next.text, Text::Believed),
                    }),
                };
            }
            Decision::Backoff { error, refresh } => {
                self.redirects = 0;
                if refresh {
                    drop(self.router.topology.refresh(RefreshFrom::Another(address.clone())));
                }
                self.last_error = Some(error);
                self.next = Target::default();
                self.lengthen_pause();
            }
            Decision::Refused(error) => return Err(self.failed(Reason::Refused(error))),
            Decision::Garbled(what) => {
                // It may have run all the same, but cannot arrive again.
                self.note_in_doubt(Some(0));
                return Err(self.failed(Reason::Garbled(what)));
            }
        }
        Ok(None)
    }

    /// Turns from a server that did not answer to the current master of the slot.
    fn leave(&mut self, address: &Address) {
        self.redirects = 0;
        drop(self.router.topology.refresh(RefreshFrom::Another(address.clone())));
        self.next = Target::default();
    }

    fn note_in_doubt(&mut self, sent: Option<u64>) {
        if self.is_gone {
            return;
        }
        self.in_doubt = match (self.in_doubt, sent) {
            (Some(0), _) | (_, Some(0)) => Some(0),
            (before, sent) => before.max(sent),
        };
    }

    /// Counts one more redirect. After many in a row, servers name each other. They will agree, and
    /// until then frequent attempts are useless.
    fn count_redirect(&mut self, kind: &'static str, from: &Address, to: &Address) {
        telemetry::redirected(self.call.slot, kind, from, to);
        self.redirects = self.redirects.saturating_add(1);
        if self.is_in_circle() {
            self.lengthen_pause();
        } else if self.is_redirected() {
            self.pause = jittered(REDIRECT_PAUSE * self.redirects);
        }
    }

    /// Returns true if so many redirects came in a row that servers must name each other.
    fn is_in_circle(&self) -> bool {
        self.redirects > MAX_REDIRECTS
    }

    /// Returns true if the last answers were redirects, more in a row than a slot that moves
    /// causes.
    pub(super) fn is_redirected(&self) -> bool {
        self.redirects > SWIFT_REDIRECTS
    }

    /// Counts an attempt whose connection brought replies that did not fit. The calls of others may
    /// have caused the first one. Fails if it goes on.
    fn count_protocol_error(&mut self, failure: &NodeError) -> Result<(), CallError> {
        self.protocol_errors += u32::from(failure.is_protocol_error);
        if self.protocol_errors < MAX_PROTOCOL_ERRORS {
            return Ok(());
        }
        self.last_failure = None;
        Err(self.failed(Reason::Garbled(failure.message.clone())))
    }

    /// The first failure causes no pause: a connection that broke can usually be made again at
    /// once.
    fn note_trouble(&mut self) {
        if self.troubles == 0 {
            self.troubles = 1;
        } else {
            self.lengthen_pause();
        }
    }

    /// Makes the wait before the next attempt longer.
    pub(super) fn lengthen_pause(&mut self) {
        self.pause = ATTEMPTS.pause(self.troubles);
        self.troubles = self.troubles.saturating_add(1);
    }

    pub(super) fn failed(&mut self, reason: Reason) -> CallError {
        CallError { reason, in_doubt: self.in_doubt, last: self.last_failure.take() }
    }
}
