//! Decides which caller sends the text of a script to a server that does not know it. The other
//! callers wait. If there is no answer within `response_timeout`, the next one sends it again.
//!
//! After a failover, every call in flight is answered by NOSCRIPT. A text has about 25 KB, so
//! thousands of copies would be hundreds of megabytes. Scripts are not loaded in advance: most
//! clients use few of them, and the first call of each takes two round trips either way.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future;
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::node::Address;
use crate::router::answer;
use crate::router::call::Script;
use crate::router::in_flight::Attempt;
use crate::router::lock;
use crate::router::time_out::time_out;

/// What is known about the scripts at the servers.
#[derive(Debug)]
pub(crate) struct Texts {
    clock: Arc<dyn Clock>,
    /// How long a turn lasts.
    patience: Duration,
    by_place: Mutex<HashMap<(Address, &'static str), Arc<Text>>>,
}

/// One script at one server.
#[derive(Debug, Default)]
struct Text {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The end of the last turn, while the text is being sent. The caller that sends it may not be
    /// polled, or its server may be slow, so the others do not wait for it longer than that.
    being_sent_until: Option<Moment>,
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

/// The turn to send a text. When it is dropped, or has lasted too long, one of the waiting calls
/// gets the turn.
#[derive(Debug)]
pub(crate) struct Sender {
    text: Arc<Text>,
    /// The end of the turn, which no other turn has.
    until: Moment,
}

impl Texts {
    pub(crate) fn new(clock: Arc<dyn Clock>, patience: Duration) -> Self {
        Texts { clock, patience, by_place: Mutex::default() }
    }

    /// Waits for the turn to send the text to that server. `None` if the server knows it by now.
    pub(crate) async fn turn(
        &self,
        address: &Address,
        script: &Script,
        unknown: Unknown,
    ) -> Option<Sender> {
        let text = {
            let mut texts = lock(&self.by_place);
            texts.entry((address.clone(), script.name)).or_default().clone()
        };
        let until = loop {
            // Created before the check, so that no change is missed.
            let changed = pin!(text.changed.notified());
            let next = lock(&text.state).next(unknown, self.clock.now(), self.patience);
            match next {
                Next::Known => return None,
                Next::Turn(until) => break until,
                Next::Wait(until) => {
                    future::select(changed, pin!(time_out(&*self.clock, until))).await;
                }
            }
        };
        Some(Sender { text, until })
    }

    /// Forgets servers that `keep` does not keep.
    pub(crate) fn retain(&self, keep: impl Fn(&Address) -> bool) {
        lock(&self.by_place)
            .retain(|(address, _), text| keep(address) || Arc::strong_count(text) > 1);
    }
}

/// What a call does that needs the text at a server.
enum Next {
    Known,
    Turn(Moment),
    Wait(Moment),
}

impl State {
    fn next(&mut self, unknown: Unknown, now: Moment, patience: Duration) -> Next {
        if self.known_at.is_some_and(|known_at| unknown.is_older_than(known_at)) {
            return Next::Known;
        }
        if let Some(until) = self.being_sent_until.filter(|until| *until > now) {
            return Next::Wait(until);
        }
        let until = now.after(patience);
        self.being_sent_until = Some(until);
        Next::Turn(until)
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
            let known_at = &mut lock(&self.text.state).known_at;
            *known_at = (*known_at).max(Some(exchange.received));
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = lock(&self.text.state);
        if state.being_sent_until == Some(self.until) {
            state.being_sent_until = None;
        }
        drop(state);
        self.text.changed.notify_waiters();
    }
}
