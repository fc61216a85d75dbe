//! Changes of a lease that the worker must make. There is one at a time.

use crate::client::acquisition::event::{Effects, TelemetryEvent, WorkerCall};
use crate::client::acquisition::pending_release::{InDoubtAttempts, RESEND_DELAY};
use crate::client::in_doubt::InDoubtUntil;
use crate::client::script_result::ScriptCallError;
use crate::clock::LocalInstant;
use crate::protocol::{DowngradeRequest, ReleasePermitsRequest, ReleaseRequest};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChangeKind {
    /// An upgrade was given up: end its wait. If it was granted meanwhile, a downgrade follows.
    EndUpgradeWait,
    /// From write to read.
    Downgrade,
    /// Give back some of the permits.
    ReleasePermits,
    /// The lease was lost, and the server has another one of its acquisition: release that.
    ReleaseReplaced,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingChange {
    pub(super) transition: ChangeKind,
    /// When to send it (again). `None` while it is under way.
    pub(super) send_at: Option<LocalInstant>,
    /// Whether it may have been carried out.
    was_sent: bool,
    pub(super) doubt: InDoubtAttempts,
    /// When what it would end has ended by itself, so that it need not be tried again. `None` if
    /// that is the end of the lease.
    pub(super) expires_at: Option<LocalInstant>,
}

impl PendingChange {
    pub(super) fn new(
        transition: ChangeKind,
        due: LocalInstant,
        in_doubt: Option<InDoubtUntil>,
    ) -> PendingChange {
        let doubt = InDoubtAttempts::new(in_doubt);
        PendingChange { transition, send_at: Some(due), was_sent: false, doubt, expires_at: None }
    }

    /// Sets when to give it up.
    pub(super) fn with_expiry(self, give_up: LocalInstant) -> PendingChange {
        PendingChange { expires_at: Some(give_up), ..self }
    }

    pub(super) fn send_at(&self) -> Option<LocalInstant> {
        self.send_at
    }

    pub(super) fn in_doubt(&self) -> Option<InDoubtUntil> {
        self.doubt.in_doubt
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
        shrink: ReleasePermitsRequest,
    ) -> Option<WorkerCall> {
        self.send_at.take_if(|due| *due <= now)?;
        self.was_sent = true;
        Some(match self.transition {
            ChangeKind::EndUpgradeWait => WorkerCall::Release(ReleaseRequest { wait_only: true }),
            ChangeKind::ReleaseReplaced => WorkerCall::Release(ReleaseRequest { wait_only: false }),
            ChangeKind::Downgrade => WorkerCall::Downgrade(downgrade),
            ChangeKind::ReleasePermits => WorkerCall::ReleasePermits(shrink),
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
        self.send_at = self.doubt.resend_at(server_now, sent, now);
        self.send_at.is_some()
    }

    /// It failed, and is tried again.
    pub(super) fn on_failure(
        &mut self,
        failure: ScriptCallError,
        now: LocalInstant,
        fx: &mut Effects,
    ) {
        if !failure.is_transient() {
            fx.telemetry = Some(TelemetryEvent::ChangeRefused(failure.into()));
        }
        self.send_at = Some(now.saturating_add(RESEND_DELAY));
    }
}
