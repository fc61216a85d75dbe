//! A release that the worker must make.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::client::acquisition::event::{Context, Effects, Note, Sending};
use crate::client::in_doubt::InDoubt;
use crate::client::reply::{Outcome, Told};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Ended, Release};

/// How long after a lease or a place in the queue has certainly ended a release is still tried.
pub(super) const RELEASE_GRACE: Duration = Duration::from_secs(5);

/// How soon a call without an answer is sent again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// The pauses of a release that keeps failing. They are not random, so that calls that failed
/// together are sent again in one batch.
const PAUSES: Backoff = Backoff::new(AGAIN, Duration::from_secs(16));

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Releasing {
    pub(super) doubt: Doubt,
    /// When everything that is left at the server will have ended by itself.
    pub(super) give_up: Moment,
    /// When to send it (again). `None` while it is under way.
    pub(super) due: Option<Moment>,
    /// How often it has failed.
    failures: u32,
}

/// The attempts without an answer that a release must outlast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Doubt {
    pub(super) in_doubt: Option<InDoubt>,
    /// The server's time in ms after which none of them can be carried out. A release that is
    /// answered later is the last one. Known from the first answer on.
    pub(super) until: Option<u64>,
}

impl Doubt {
    pub(super) fn new(in_doubt: Option<InDoubt>) -> Doubt {
        Doubt { in_doubt, until: None }
    }

    /// When to send the release once more, because an attempt without an answer may still be
    /// carried out. `None` if none can. An answer without the server's time (0) ended something;
    /// the next answer finds nothing, and has the time.
    pub(super) fn ends(&mut self, server_now: u64, sent: Moment, now: Moment) -> Option<Moment> {
        if server_now == 0 {
            return self.in_doubt.map(|_| now);
        }
        let until = match self.until {
            Some(until) => until,
            None => self.in_doubt?.server_ms(server_now, sent),
        };
        self.until = Some(until);
        (server_now <= until).then(|| now.after(Duration::from_millis(until - server_now + 1)))
    }
}

impl Releasing {
    /// A release of what will have ended by itself at `over`.
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
            Some(due) if due <= at.now => {
                self.due = None;
                fx.sends[0] = Some(Sending::Release(Release { only_wait: false }));
            }
            Some(due) => fx.look_by(due),
            None => {}
        }
    }

    /// Handles the answer.
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
                        fx.over = true; // there is no lock left to release
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
