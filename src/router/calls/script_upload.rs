//! Decides which caller sends the text of a script to a server that does not know it. The other
//! callers wait. If there is no answer within `response_timeout`, the next one sends it again.
//!
//! After a failover, every call in flight is answered by NOSCRIPT. A text has about 25 KB, so
//! thousands of copies would be hundreds of megabytes. Scripts are not loaded in advance. Most
//! clients use few scripts, and the first call of a script takes two round trips in any case.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future;
use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::locks::lock;
use crate::router::calls::in_flight::AttemptOutcome;
use crate::router::calls::reply_action;
use crate::router::connections::reply_timeout::reply_timeout;
use crate::scripts::Script;

/// The known state of the scripts at the servers.
pub(crate) struct ScriptUploads {
    clock: Arc<dyn Clock>,
    /// How long a turn lasts.
    turn_timeout: Duration,
    by_server: Mutex<HashMap<(Address, &'static str), Arc<ScriptUpload>>>,
}

/// One script at one server.
#[derive(Debug, Default)]
struct ScriptUpload {
    state: Mutex<UploadState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct UploadState {
    /// The end of the last turn, while the text is being sent. The sending call may not be polled,
    /// or its server may be slow, so other calls do not wait longer for it.
    upload_deadline: Option<LocalInstant>,
    /// When the server last answered to the text. Calls that were sent earlier may have arrived
    /// before it.
    loaded_at: Option<LocalInstant>,
}

/// A server did not know a script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoScriptReply {
    /// When the call that was answered so was sent.
    pub(crate) sent_at: LocalInstant,
    /// It was sent because the server was believed to know the script.
    pub(crate) was_believed_loaded: bool,
}

/// The turn to send a text. When it is dropped, or has lasted too long, one of the waiting calls
/// gets the turn.
#[derive(Debug)]
pub(crate) struct UploadTurn {
    text: Arc<ScriptUpload>,
    /// The end of the turn, which no other turn has.
    deadline: LocalInstant,
}

impl ScriptUploads {
    pub(crate) fn new(clock: Arc<dyn Clock>, patience: Duration) -> Self {
        ScriptUploads { clock, turn_timeout: patience, by_server: Mutex::default() }
    }

    /// Waits for the turn to send the text to that server. `None` if the server knows it by now.
    pub(crate) async fn acquire_turn(
        &self,
        address: &Address,
        script: &Script,
        unknown: NoScriptReply,
    ) -> Option<UploadTurn> {
        let text = {
            let mut texts = lock(&self.by_server);
            texts.entry((address.clone(), script.name())).or_default().clone()
        };
        let until = loop {
            // Created before the check, so that no change is missed.
            let changed = pin!(text.changed.notified());
            let next = lock(&text.state).next(unknown, self.clock.now(), self.turn_timeout);
            match next {
                UploadStep::Loaded => return None,
                UploadStep::Upload(until) => break until,
                UploadStep::Wait(until) => {
                    future::select(changed, pin!(reply_timeout(&*self.clock, until))).await;
                }
            }
        };
        Some(UploadTurn { text, deadline: until })
    }

    /// Forgets servers that `keep` does not keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        lock(&self.by_server)
            .retain(|(address, _), text| keep(address) || Arc::strong_count(text) > 1);
    }
}

/// What a call does that needs the text at a server.
enum UploadStep {
    Loaded,
    Upload(LocalInstant),
    Wait(LocalInstant),
}

impl UploadState {
    fn next(
        &mut self,
        unknown: NoScriptReply,
        now: LocalInstant,
        patience: Duration,
    ) -> UploadStep {
        if self.loaded_at.is_some_and(|known_at| unknown.is_older_than(known_at)) {
            return UploadStep::Loaded;
        }
        if let Some(until) = self.upload_deadline.filter(|until| *until > now) {
            return UploadStep::Wait(until);
        }
        let until = now.saturating_add(patience);
        self.upload_deadline = Some(until);
        UploadStep::Upload(until)
    }
}

impl NoScriptReply {
    /// With equal times the order is unknown, and to believe that the server knows the script costs
    /// little.
    fn is_older_than(&self, known_at: LocalInstant) -> bool {
        self.sent_at < known_at || (self.sent_at == known_at && !self.was_believed_loaded)
    }
}

impl UploadTurn {
    /// Notes the outcome of the call that had the text.
    pub(crate) fn finish(self, attempt: &AttemptOutcome) {
        if let AttemptOutcome::Replied(exchange, _) = attempt
            && reply_action::is_script_loaded(&exchange.value)
        {
            let known_at = &mut lock(&self.text.state).loaded_at;
            *known_at = (*known_at).max(Some(exchange.received_at));
        }
    }
}

impl Drop for UploadTurn {
    fn drop(&mut self) {
        let mut state = lock(&self.text.state);
        if state.upload_deadline == Some(self.deadline) {
            state.upload_deadline = None;
        }
        drop(state);
        self.text.changed.notify_waiters();
    }
}
