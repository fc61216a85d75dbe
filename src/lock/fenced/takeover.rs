//! Whether a writer may still take over from another writer with the same token.

use std::sync::atomic::{AtomicBool, Ordering};

use rwlease_core::protocol::{CallErrorKind, FencedReply, ScriptResult, is_rejected_before_write};
use tokio::sync::{Mutex, MutexGuard};

/// A writer takes over before its own first write, and never after it. So each writer is the last
/// one for one period, and a call that comes late cannot take over a second time.
///
/// Until the writer has begun, its clones call one at a time. Otherwise one clone could begin while
/// the call of another clone is about to take over.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    has_begun: AtomicBool,
    turn: Mutex<()>,
}

/// A call under way. Dropped before its reply, it may still run.
#[derive(Debug)]
pub(super) struct CallInFlight<'a> {
    takeover: &'a Takeover,
    may_have_run: bool,
}

impl Takeover {
    pub(super) fn is_possible(&self) -> bool {
        !self.has_begun.load(Ordering::Acquire)
    }

    /// Waits until no other call is under way. `None` if the writer has begun: then calls need no
    /// turn.
    pub(super) async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        if !self.is_possible() {
            return None;
        }
        let turn = self.turn.lock().await;
        self.is_possible().then_some(turn)
    }

    pub(super) fn begin_call(&self) -> CallInFlight<'_> {
        CallInFlight { takeover: self, may_have_run: true }
    }
}

impl CallInFlight<'_> {
    pub(super) fn end(mut self, result: &ScriptResult<FencedReply>) {
        self.may_have_run = match result {
            Ok(reply) => {
                let has_run = matches!(
                    reply.body,
                    FencedReply::Written | FencedReply::Value(..) | FencedReply::NoValue(_)
                );
                has_run || !reply.in_doubt.is_none()
            }
            // An error of the script itself can come after its first write.
            Err(failure) => {
                let has_run = match &failure.kind {
                    CallErrorKind::Rejected(error) => !is_rejected_before_write(error),
                    _ => !failure.is_transient(),
                };
                has_run || !failure.in_doubt.is_none()
            }
        };
    }
}

impl Drop for CallInFlight<'_> {
    fn drop(&mut self) {
        if self.may_have_run {
            self.takeover.has_begun.store(true, Ordering::Release);
        }
    }
}
