//! A release that the worker must make.

use std::time::Duration;

use crate::acquisition::event::{Context, Effects, TelemetryEvent, WorkerCall};
use crate::acquisition::in_doubt::InDoubtUntil;
use crate::protocol::{ReleaseReply, ReleaseRequest, ScriptReply, ScriptResult};
use crate::time::LocalInstant;

/// How long after a lease or a place in the queue has certainly ended a release is still tried.
pub(super) const RELEASE_GRACE: Duration = Duration::from_secs(5);

/// How soon a call without an answer is sent again.
pub(super) const RESEND_DELAY: Duration = Duration::from_millis(500);

/// The longest pause of a release that keeps failing. The lock of a caller that has gone may become
/// free that much later than its server works again.
const MAX_RESEND_DELAY: Duration = Duration::from_secs(4);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingRelease {
    pub(super) doubt: Option<InDoubtAttempts>,
    /// When the state of the acquisition at the server has expired.
    pub(super) expires_at: LocalInstant,
    /// When to send it (again). `None` while it is under way.
    pub(super) send_at: Option<LocalInstant>,
    /// How often it has failed.
    failure_count: u32,
    pub(super) request: ReleaseRequest,
}

/// The attempts without an answer that a release must outlast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InDoubtAttempts {
    pub(super) in_doubt: InDoubtUntil,
    /// When all that the attempts can take has expired by the local clock. A server whose clock was
    /// set back may carry them out later, but no release waits for that.
    pub(super) expire_at: LocalInstant,
    /// The server time in ms after which the server rejects all these attempts. A release with a
    /// reply after this time is the last one. `None` until the first reply.
    pub(super) resolved_at_server_ms: Option<u64>,
}

impl InDoubtAttempts {
    pub(super) fn new(in_doubt: InDoubtUntil, expire_at: LocalInstant) -> InDoubtAttempts {
        InDoubtAttempts { in_doubt, expire_at, resolved_at_server_ms: None }
    }

    /// When to send the release once more, because an attempt without an answer may still be
    /// carried out: at the latest when all that it can take has expired. `None` if no attempt can
    /// be carried out, or that time has passed. An answer without the server's time (0) ended
    /// something; the next answer finds nothing, and has the time.
    pub(super) fn resend_at(
        &mut self,
        server_now: u64,
        sent: LocalInstant,
        now: LocalInstant,
    ) -> Option<LocalInstant> {
        if now >= self.expire_at {
            return None;
        } else if server_now == 0 {
            return Some(now);
        }
        let InDoubtAttempts { in_doubt, expire_at, ref mut resolved_at_server_ms } = *self;
        let until = *resolved_at_server_ms
            .get_or_insert_with(|| in_doubt.latest_server_time(server_now, sent));
        let is_open = server_now <= until;
        is_open.then(|| {
            now.saturating_add(Duration::from_millis(until - server_now + 1)).min(expire_at)
        })
    }
}

impl PendingRelease {
    /// A release of a lease or wait that expires at the server at `over`.
    pub(super) fn new(
        request: ReleaseRequest,
        in_doubt: Option<InDoubtUntil>,
        over: LocalInstant,
        now: LocalInstant,
    ) -> PendingRelease {
        let expires_at = over.saturating_add(RELEASE_GRACE);
        PendingRelease {
            doubt: in_doubt.map(|in_doubt| InDoubtAttempts::new(in_doubt, expires_at)),
            expires_at,
            send_at: Some(now),
            failure_count: 0,
            request,
        }
    }

    pub fn is_sent(&self) -> bool {
        self.send_at.is_none()
    }

    pub(super) fn on_timer(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        match self.send_at {
            _ if ctx.now >= self.expires_at => effects.deregister = true,
            Some(due) if due <= ctx.now => {
                self.send_at = None;
                effects.worker_calls[0] = Some(WorkerCall::Release(self.request));
            }
            Some(due) => effects.wake_worker_by(due),
            None => {}
        }
    }

    /// Handles the outcome of the release.
    pub(super) fn on_reply(
        &mut self,
        outcome: ScriptResult<ReleaseReply>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        let due = match outcome {
            Ok(ScriptReply { envelope, sent_at: sent, body, server, .. }) => {
                let took = ctx.now.saturating_duration_since(sent);
                effects.telemetry = Some(TelemetryEvent::Released { server, outcome: body, took });
                let doubt = self.doubt.as_mut();
                let Some(due) =
                    doubt.and_then(|doubt| doubt.resend_at(envelope.server_now, sent, ctx.now))
                else {
                    effects.deregister = true;
                    return;
                };
                self.expires_at =
                    self.expires_at.max(due.saturating_add(ctx.settings.call_timeout));
                due
            }
            Err(failure) => {
                if !failure.is_transient() {
                    if failure.shows_no_lock() {
                        effects.deregister = true; // there is no lock left to release
                        return;
                    }
                    effects.telemetry = Some(TelemetryEvent::ReleaseFailed(failure));
                }
                // Not random, so that calls that failed together are sent again in one batch.
                let pause =
                    RESEND_DELAY.saturating_mul(1 << self.failure_count).min(MAX_RESEND_DELAY);
                self.failure_count += u32::from(pause < MAX_RESEND_DELAY);
                ctx.now.saturating_add(pause)
            }
        };
        self.send_at = Some(due);
        effects.wake_worker_by(due);
    }
}
