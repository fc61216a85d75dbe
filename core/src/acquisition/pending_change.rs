//! Changes of a lease that the worker must make. There is one at a time.

use crate::acquisition::event::{Effects, TelemetryEvent, WorkerCall};
use crate::acquisition::in_doubt::InDoubtUntil;
use crate::acquisition::pending_release::{InDoubtAttempts, RESEND_DELAY};
use crate::protocol::{CallError, CallErrorKind};
use crate::protocol::{DowngradeRequest, ReleasePermitsRequest, ReleaseRequest};
use crate::time::LocalInstant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// Ends the wait of an abandoned upgrade. If the server granted the upgrade before, a downgrade
    /// follows.
    EndUpgradeWait,
    /// Downgrades the lease from write to read.
    Downgrade,
    ReleasePermits,
    /// Releases another lease of the same acquisition, which the server has after this lease was
    /// lost.
    ReleaseReplaced,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingChange {
    pub(super) transition: ChangeKind,
    /// When to send it (again). `None` while it is under way.
    pub(super) send_at: Option<LocalInstant>,
    /// Whether it may have been carried out.
    was_sent: bool,
    pub(super) doubt: Option<InDoubtAttempts>,
    /// For `ReleaseReplaced`, when the replaced lease has ended at the server. After that the
    /// change is pointless and is dropped. `None` for other changes, which are pointless when this
    /// lease has ended.
    pub(super) expires_at: Option<LocalInstant>,
    /// Why a server refused the last attempt, if it did.
    pub(super) refusal: Option<ChangeRefusal>,
}

/// A server refused a change. The worker tries it again all the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangeRefusal {
    pub reason: CallErrorKind,
    pub refused_at: LocalInstant,
}

impl PendingChange {
    pub(super) fn new(
        transition: ChangeKind,
        due: LocalInstant,
        doubt: Option<InDoubtAttempts>,
    ) -> PendingChange {
        PendingChange {
            transition,
            send_at: Some(due),
            was_sent: false,
            doubt,
            expires_at: None,
            refusal: None,
        }
    }

    pub(super) fn with_expiry(self, give_up: LocalInstant) -> PendingChange {
        PendingChange { expires_at: Some(give_up), ..self }
    }

    /// Attempts of an earlier upgrade or of this lease that may still be carried out.
    pub(super) fn in_doubt(&self) -> Option<InDoubtUntil> {
        self.doubt.map(|doubt| doubt.in_doubt)
    }

    /// Whether it is under way, or is a downgrade that may still arrive.
    pub(super) fn may_be_in_flight(&self) -> bool {
        self.send_at.is_none() || (self.transition == ChangeKind::Downgrade && self.was_sent)
    }

    pub(super) fn is_expired(&self, now: LocalInstant) -> bool {
        self.expires_at.is_some_and(|give_up| now >= give_up)
    }

    /// What to send now, if anything is due. It counts as sent from here on.
    pub(super) fn send(
        &mut self,
        now: LocalInstant,
        downgrade: DowngradeRequest,
        release_permits: ReleasePermitsRequest,
    ) -> Option<WorkerCall> {
        self.send_at.take_if(|due| *due <= now)?;
        self.was_sent = true;
        Some(match self.transition {
            ChangeKind::EndUpgradeWait => WorkerCall::Release(ReleaseRequest::WAIT),
            ChangeKind::ReleaseReplaced => WorkerCall::Release(ReleaseRequest::ALL),
            ChangeKind::Downgrade => WorkerCall::Downgrade(downgrade),
            ChangeKind::ReleasePermits => WorkerCall::ReleasePermits(release_permits),
        })
    }

    /// It was answered. True if it must be sent once more, because an attempt without an answer may
    /// still be carried out.
    pub(super) fn must_resend(
        &mut self,
        server_now: u64,
        sent: LocalInstant,
        now: LocalInstant,
    ) -> bool {
        let doubt = self.doubt.as_mut();
        self.send_at = doubt.and_then(|doubt| doubt.resend_at(server_now, sent, now));
        self.send_at.is_some()
    }

    /// It failed, and is tried again.
    pub(super) fn on_failure(
        &mut self,
        failure: CallError,
        now: LocalInstant,
        effects: &mut Effects,
    ) {
        self.refusal = None;
        if !failure.is_transient() {
            self.refusal = Some(ChangeRefusal { reason: failure.kind.clone(), refused_at: now });
            effects.telemetry = Some(TelemetryEvent::ChangeRefused(failure));
        }
        self.send_at = Some(now.saturating_add(RESEND_DELAY));
    }
}
