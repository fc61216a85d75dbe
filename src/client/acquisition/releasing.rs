//! A release that the worker owes.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::client::acquisition::event::{Context, Effects, Note, Sending};
use crate::client::in_doubt::InDoubt;
use crate::client::reply::{Outcome, Told};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Ended, Release};

/// What is due within this time goes out together.
pub(crate) const HORIZON: Duration = Duration::from_millis(20);

/// How long after a lease or a place in the queue has surely ended a release is still tried.
pub(super) const RELEASE_GRACE: Duration = Duration::from_secs(5);

/// How soon what had no answer is sent again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// A release that fails again and again. Nothing of it is random: what failed together goes out
/// again in one batch.
const PAUSES: Backoff = Backoff::new(AGAIN, Duration::from_secs(16));

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Releasing {
    pub(super) doubt: Doubt,
    /// When whatever is left there has ended by itself.
    pub(super) give_up: Moment,
    /// When to send it, again; `None` while it is on its way.
    pub(super) due: Option<Moment>,
    /// How often it has failed.
    failures: u32,
}

/// The attempts without an answer that a release must outlive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Doubt {
    pub(super) in_doubt: Option<InDoubt>,
    /// Server ms past which none of them can be carried out any more; a release answered later is
    /// the last. Known from the first answer on.
    pub(super) until: Option<u64>,
}

impl Doubt {
    pub(super) fn new(in_doubt: Option<InDoubt>) -> Doubt {
        Doubt { in_doubt, until: None }
    }

    /// An attempt that had no answer may still be under way: then what ends it must be sent once
    /// more, at this moment. `None` if nothing can come any more. An answer that does not tell the
    /// server's time (0) ended something; the next one finds nothing, and tells it.
    pub(super) fn ends(&mut self, server_now: u64, sent: Moment, now: Moment) -> Option<Moment> {
        if server_now == 0 {
            return self.in_doubt.map(|_| now);
        }
        let until = match self.until {
            Some(until) => until,
            None => self.in_doubt?.server_ms(server_now, sent),
        };
        self.until = Some(until);
        // What is due goes out earlier by up to the horizon, which would be too early for the last
        // one.
        (server_now <= until)
            .then(|| now.after(Duration::from_millis(until - server_now + 1)).after(HORIZON))
    }
}

impl Releasing {
    /// What is there is `over` by itself at that moment.
    pub(super) fn new(in_doubt: Option<InDoubt>, over: Moment, now: Moment) -> Releasing {
        Releasing {
            doubt: Doubt::new(in_doubt),
            give_up: over.after(RELEASE_GRACE),
            due: Some(now),
            failures: 0,
        }
    }

    #[cfg(all(test, feature = "embedded"))]
    pub(crate) fn is_sent(&self) -> bool {
        self.due.is_none()
    }

    pub(super) fn look(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match self.due {
            _ if at.now >= self.give_up => fx.over = true,
            Some(due) if due <= at.now.after(HORIZON) => {
                self.due = None;
                fx.sends[0] = Some(Sending::Release(Release { only_wait: false }));
            }
            Some(due) => fx.look_by(due),
            None => {}
        }
    }

    /// Takes in the answer.
    pub(super) fn released(&mut self, outcome: Outcome<Ended>, at: &Context<'_>, fx: &mut Effects) {
        let due = match outcome {
            Ok(Told { envelope, sent, what, node, .. }) => {
                let took = at.now.since(sent);
                fx.note = Some(Note::Released { node, ended: what, took });
                let Some(due) = self.doubt.ends(envelope.now, sent, at.now) else {
                    fx.over = true;
                    return;
                };
                self.give_up = self.give_up.max(due.after(at.settings.call_timeout));
                due
            }
            Err(failure) => {
                if !failure.is_passing() {
                    let error = Error::from(failure);
                    if matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Incompatible) {
                        fx.over = true; // no lock is left there that it could be released from
                        return;
                    }
                    fx.note = Some(Note::ReleaseFailed(error));
                }
                let pause = PAUSES.whole(self.failures);
                self.failures += u32::from(pause < PAUSES.most);
                at.now.after(pause)
            }
        };
        self.due = Some(due);
        fx.look_by(due);
    }
}
