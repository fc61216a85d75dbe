//! A release that the worker must make.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::client::acquisition::event::{Context, Effects, TelemetryEvent, WorkerCall};
use crate::client::in_doubt::InDoubtUntil;
use crate::client::script_result::{ScriptReply, ScriptResult};
use crate::clock::LocalInstant;
use crate::error::{Error, ErrorKind};
use crate::protocol::{ReleaseReply, ReleaseRequest};

/// How long after a lease or a place in the queue has certainly ended a release is still tried.
pub(super) const RELEASE_GRACE: Duration = Duration::from_secs(5);

/// How soon a call without an answer is sent again.
pub(super) const RESEND_DELAY: Duration = Duration::from_millis(500);

/// The pauses of a release that keeps failing. They are not random, so that calls that failed
/// together are sent again in one batch.
const RELEASE_BACKOFF: Backoff = Backoff::new(RESEND_DELAY, Duration::from_secs(16));

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingRelease {
    pub(super) doubt: InDoubtAttempts,
    /// When everything that is left at the server will have ended by itself.
    pub(super) expires_at: LocalInstant,
    /// When to send it (again). `None` while it is under way.
    pub(super) send_at: Option<LocalInstant>,
    /// How often it has failed.
    failure_count: u32,
}

/// The attempts without an answer that a release must outlast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InDoubtAttempts {
    pub(super) in_doubt: Option<InDoubtUntil>,
    /// The server's time in ms after which none of them can be carried out. A release that is
    /// answered later is the last one. Known from the first answer on.
    pub(super) resolved_at_server_ms: Option<u64>,
}

impl InDoubtAttempts {
    pub(super) fn new(in_doubt: Option<InDoubtUntil>) -> InDoubtAttempts {
        InDoubtAttempts { in_doubt, resolved_at_server_ms: None }
    }

    /// When to send the release once more, because an attempt without an answer may still be
    /// carried out. `None` if none can. An answer without the server's time (0) ended something;
    /// the next answer finds nothing, and has the time.
    pub(super) fn resend_at(
        &mut self,
        server_now: u64,
        sent: LocalInstant,
        now: LocalInstant,
    ) -> Option<LocalInstant> {
        if server_now == 0 {
            return self.in_doubt.map(|_| now);
        }
        let until = match self.resolved_at_server_ms {
            Some(until) => until,
            None => self.in_doubt?.latest_server_time(server_now, sent),
        };
        self.resolved_at_server_ms = Some(until);
        (server_now <= until)
            .then(|| now.saturating_add(Duration::from_millis(until - server_now + 1)))
    }
}

impl PendingRelease {
    /// A release of what will have ended by itself at `over`.
    pub(super) fn new(
        in_doubt: Option<InDoubtUntil>,
        over: LocalInstant,
        now: LocalInstant,
    ) -> PendingRelease {
        PendingRelease {
            doubt: InDoubtAttempts::new(in_doubt),
            expires_at: over.saturating_add(RELEASE_GRACE),
            send_at: Some(now),
            failure_count: 0,
        }
    }

    #[cfg(all(test, feature = "embedded"))]
    pub(crate) fn is_sent(&self) -> bool {
        self.send_at.is_none()
    }

    pub(super) fn on_timer(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match self.send_at {
            _ if at.now >= self.expires_at => fx.deregister = true,
            Some(due) if due <= at.now => {
                self.send_at = None;
                fx.worker_calls[0] = Some(WorkerCall::Release(ReleaseRequest { wait_only: false }));
            }
            Some(due) => fx.wake_worker_by(due),
            None => {}
        }
    }

    /// Handles the answer.
    pub(super) fn on_reply(
        &mut self,
        outcome: ScriptResult<ReleaseReply>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        let due = match outcome {
            Ok(ScriptReply { envelope, sent_at: sent, body: what, server: node, .. }) => {
                let took = at.now.saturating_duration_since(sent);
                fx.telemetry = Some(TelemetryEvent::Released { node, ended: what, took });
                let Some(due) = self.doubt.resend_at(envelope.server_now, sent, at.now) else {
                    fx.deregister = true;
                    return;
                };
                self.expires_at = self.expires_at.max(due.saturating_add(at.settings.call_timeout));
                due
            }
            Err(failure) => {
                if !failure.is_transient() {
                    let error = Error::from(failure);
                    if matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Incompatible) {
                        fx.deregister = true; // there is no lock left to release
                        return;
                    }
                    fx.telemetry = Some(TelemetryEvent::ReleaseFailed(error));
                }
                let pause = RELEASE_BACKOFF.without_jitter(self.failure_count);
                self.failure_count += u32::from(pause < RELEASE_BACKOFF.max);
                at.now.saturating_add(pause)
            }
        };
        self.send_at = Some(due);
        fx.wake_worker_by(due);
    }
}
