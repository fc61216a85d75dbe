//! Decides which caller sends the text of a script to a server that does not know it. The other
//! callers wait.
//!
//! After a failover, every call in flight is answered by NOSCRIPT. A text has about 25 KB, so
//! thousands of copies would be hundreds of megabytes. Scripts are not loaded in advance: most
//! clients use few of them, and the first call of each takes two round trips either way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::clock::Moment;
use crate::node::Address;
use crate::router::answer;
use crate::router::call::Script;
use crate::router::in_flight::Attempt;
use crate::router::lock;

/// What is known about the scripts at the servers.
#[derive(Debug, Default)]
pub(crate) struct Texts(Mutex<HashMap<(Address, &'static str), Arc<Text>>>);

/// One script at one server.
#[derive(Debug, Default)]
struct Text {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_being_sent: bool,
    /// When the server last answered to the text. Calls that were sent earlier may have arrived
    /// before it.
    known_at: Option<Moment>,
}

/// A server did not know a script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unknown {
    /// When the call that was answered so was sent.
    pub(crate) sent: Moment,
    /// It was sent because the server was believed to know the script.
    pub(crate) again: bool,
}

/// The turn to send a text. When it is dropped, the next waiting call gets the turn.
#[derive(Debug)]
pub(crate) struct Sender(Arc<Text>);

impl Texts {
    /// Waits for the turn to send the text to that server. `None` if the server knows it by now.
    pub(crate) async fn turn(
        &self,
        address: &Address,
        script: &Script,
        unknown: Unknown,
    ) -> Option<Sender> {
        let text = {
            let mut texts = lock(&self.0);
            texts.entry((address.clone(), script.name)).or_default().clone()
        };
        loop {
            // Created before the check, so that no change is missed.
            let changed = text.changed.notified();
            {
                let mut state = lock(&text.state);
                if state.known_at.is_some_and(|known_at| unknown.is_older_than(known_at)) {
                    return None;
                }
                if !state.is_being_sent {
                    state.is_being_sent = true;
                    break;
                }
            }
            changed.await;
        }
        Some(Sender(text))
    }

    /// Forgets servers that `keep` does not keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        lock(&self.0).retain(|(address, _), text| keep(address) || Arc::strong_count(text) > 1);
    }
}

impl Unknown {
    /// With equal times the order is unknown, and to believe that the server knows the script costs
    /// little.
    fn is_older_than(&self, known_at: Moment) -> bool {
        self.sent < known_at || (self.sent == known_at && !self.again)
    }
}

impl Sender {
    /// Notes the outcome of the call that had the text.
    pub(crate) fn learn(self, attempt: &Attempt) {
        if let Attempt::Answered(exchange) | Attempt::Confirmed(exchange, _) = attempt
            && answer::has_run(&exchange.value)
        {
            lock(&self.0.state).known_at = Some(exchange.received);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let is_known = {
            let mut state = lock(&self.0.state);
            state.is_being_sent = false;
            state.known_at.is_some()
        };
        if is_known {
            self.0.changed.notify_waiters();
        } else {
            self.0.changed.notify_one();
        }
    }
}
