//! Calls under way, their answers, and the messages of the server.

use crate::checker::time::{NOW, Older, SERVER_NOW};
use crate::client::acquisition::Sending;
use crate::client::acquisition::shift::Visitor;
use crate::clock::Moment;
use crate::node::Reply;
use crate::protocol::{
    Acquire, Acquired, BadReply, Ended, Envelope, Forced, Goal, Grant, Holds, LockKey, Release,
    Renewed, Revoked, Scripts, Shrink, force_release, pump, pumped, revoke,
};
use crate::protocol::{AcquisitionId, Mode};
use crate::router;

const RELEASE: Release = Release { only_wait: false };

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    /// The index of the client's acquisition that the call is for.
    pub(super) acquisition: u8,
    pub(super) sent: Moment,
    /// Its client waits for the answer until then.
    pub(super) until: Moment,
    /// The server may run it until then, in ms; 0: at any time.
    pub(super) not_after: u64,
    pub(super) stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Sent(Request),
    /// The client no longer waits, but the call may still run.
    Abandoned(Request),
    Answered(Envelope, Answer),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Acquire(Acquire),
    Work(Sending),
    /// The holder's own release.
    GiveBack,
    Pump,
    /// By somebody else, for leases with tokens up to this one.
    Revoke(u64),
    Force(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Acquired(Acquired),
    Renewed(Renewed),
    Asked(Option<u64>),
    Downgraded(Renewed),
    Released {
        only_wait: bool,
        ended: Ended,
    },
    GivenBack(Ended),
    Shrunk {
        keep: u32,
        lease: Option<Grant>,
    },
    Pumped,
    /// For somebody else.
    Outside,
}

/// A message on its way to a client. A recall has no token, and only a grant has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) client: u8,
    pub(super) acquisition: u8,
    pub(super) token: u64,
    pub(super) deadline: u64,
    /// The server's time when it was sent.
    pub(super) now: u64,
    pub(super) more: bool,
    pub(super) about: About,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum About {
    Grant,
    /// Another client wants the cached lock.
    RecallToRead,
    RecallToWrite,
    /// A forced release has ended its lease.
    End,
}

impl Request {
    /// As it is given to the router.
    pub(super) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
    ) -> router::Call {
        match self {
            Request::Acquire(acquire) => acquire.call(scripts, id, lock, NOW),
            Request::Work(Sending::Renew { renew, .. }) => renew.call(scripts, id, lock),
            Request::Work(Sending::Ask { .. }) => Holds { id: id.as_str() }.call(scripts, lock),
            Request::Work(Sending::Downgrade(downgrade)) => downgrade.call(scripts, id, lock),
            Request::Work(Sending::Shrink(shrink)) => shrink.call(scripts, id, lock),
            Request::Work(Sending::Release(release)) => release.call(scripts, id, lock),
            Request::GiveBack => RELEASE.call(scripts, id, lock),
            Request::Pump => pump(scripts, lock),
            Request::Revoke(token) => revoke(scripts, lock, *token),
            Request::Force(token) => force_release(scripts, lock, *token),
        }
    }

    pub(super) fn read(&self, reply: Reply) -> Result<(Envelope, Answer), BadReply> {
        Ok(match self {
            Request::Acquire(_) => {
                let (envelope, acquired) = Acquire::read(reply)?;
                (envelope, Answer::Acquired(acquired))
            }
            Request::Work(Sending::Renew { .. }) => {
                let (envelope, renewed) = Renewed::read(reply)?;
                (envelope, Answer::Renewed(renewed))
            }
            Request::Work(Sending::Ask { .. }) => {
                let (envelope, token) = Holds::read(reply)?;
                (envelope, Answer::Asked(token))
            }
            Request::Work(Sending::Downgrade(_)) => {
                let (envelope, renewed) = Renewed::read(reply)?;
                (envelope, Answer::Downgraded(renewed))
            }
            Request::Work(Sending::Shrink(Shrink { keep })) => {
                let (envelope, lease) = Shrink::read(reply)?;
                (envelope, Answer::Shrunk { keep: *keep, lease })
            }
            Request::Work(Sending::Release(Release { only_wait })) => {
                let (envelope, ended) = Release::read(reply)?;
                (envelope, Answer::Released { only_wait: *only_wait, ended })
            }
            Request::GiveBack => {
                let (envelope, ended) = Release::read(reply)?;
                (envelope, Answer::GivenBack(ended))
            }
            Request::Pump => (pumped(reply)?, Answer::Pumped),
            Request::Revoke(_) => (Revoked::read(reply)?.0, Answer::Outside),
            Request::Force(_) => (Forced::read(reply)?.0, Answer::Outside),
        })
    }

    /// The name in the trace.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Request::Acquire(Acquire { goal: Goal::Take(Mode::Read, _), .. }) => "acquire_read",
            Request::Acquire(Acquire { goal: Goal::Take(Mode::Write, _), .. }) => "acquire_write",
            Request::Acquire(Acquire { goal: Goal::Permits(_), .. }) => "acquire permits",
            Request::Acquire(_) => "upgrade",
            Request::Work(Sending::Renew { .. }) => "renew",
            Request::Work(Sending::Ask { .. }) => "holds",
            Request::Work(Sending::Downgrade(_)) => "downgrade",
            Request::Work(Sending::Shrink(_)) => "shrink",
            Request::Work(Sending::Release(Release { only_wait: true })) => "release wait",
            Request::Work(Sending::Release(_)) => "release",
            Request::GiveBack => "release by the holder",
            Request::Pump => "pump",
            Request::Revoke(_) => "revoke",
            Request::Force(_) => "force_release",
        }
    }

    fn each_token(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        match self {
            Request::Acquire(Acquire { goal: Goal::Upgrade { token }, .. }) => visit(token),
            Request::Work(Sending::Downgrade(downgrade)) => visit(&mut downgrade.token),
            Request::Work(Sending::Renew { renew, .. }) => visit(&mut renew.token),
            Request::Revoke(token) | Request::Force(token) => visit(token),
            _ => {}
        }
    }
}

impl Answer {
    fn grant(&mut self) -> Option<&mut Grant> {
        match self {
            Answer::Acquired(Acquired::Granted(grant))
            | Answer::Renewed(
                Renewed::Held(grant) | Renewed::Revoked(grant) | Renewed::Other(grant),
            )
            | Answer::Downgraded(Renewed::Held(grant) | Renewed::Revoked(grant))
            | Answer::Shrunk { lease: Some(grant), .. }
            | Answer::Released { ended: Ended::Writing(grant), .. } => Some(grant),
            _ => None,
        }
    }
}

impl Call {
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.stage, Stage::Abandoned(_))
    }

    /// What the server has not run so far.
    pub(super) fn request(&self) -> Option<&Request> {
        match &self.stage {
            Stage::Sent(request) | Stage::Abandoned(request) => Some(request),
            Stage::Answered(..) => None,
        }
    }

    /// The client stops waiting. Nothing is left of a call that has run.
    pub(super) fn let_go(self) -> Option<Call> {
        match self.stage {
            Stage::Sent(request) | Stage::Abandoned(request) => {
                let stage = Stage::Abandoned(request);
                Some(Call { stage, sent: NOW, until: NOW, ..self })
            }
            Stage::Answered(..) => None,
        }
    }

    pub(super) fn grow_older(&mut self, by: &mut Older) {
        if self.is_abandoned() {
            (self.sent, self.until) = (NOW, NOW);
        } else {
            by.learned(&mut self.sent);
            by.due(&mut self.until);
        }
        if self.not_after > 0 {
            self.not_after = (self.not_after - by.by_ms).max(SERVER_NOW - 1);
        }
        match &mut self.stage {
            Stage::Sent(Request::Work(Sending::Renew { ends, .. } | Sending::Ask { ends }))
            | Stage::Abandoned(Request::Work(
                Sending::Renew { ends, .. } | Sending::Ask { ends },
            )) => {
                by.told(ends);
            }
            Stage::Answered(envelope, answer) => {
                // 0: the script did not read the clock.
                envelope.now = envelope.now.saturating_sub(by.by_ms);
                if let Some(grant) = answer.grant() {
                    grant.deadline -= by.by_ms;
                }
            }
            _ => {}
        }
    }

    /// All tokens in it.
    pub(super) fn tokens(&self) -> Vec<u64> {
        let mut all = Vec::new();
        self.clone().each_token(&mut |token| all.push(*token));
        all
    }

    pub(super) fn each_token(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        match &mut self.stage {
            Stage::Sent(request) | Stage::Abandoned(request) => request.each_token(visit),
            Stage::Answered(_, Answer::Asked(token)) => token.iter_mut().for_each(visit),
            Stage::Answered(_, answer) => {
                if let Some(grant) = answer.grant() {
                    visit(&mut grant.token);
                    visit(&mut grant.fence);
                }
            }
        }
    }
}

impl Message {
    pub(super) fn grow_older(&mut self, by_ms: u64) {
        self.deadline = (self.deadline - by_ms).max(SERVER_NOW);
        self.now = match self.deadline {
            SERVER_NOW => SERVER_NOW,
            _ => self.now - by_ms,
        };
    }
}
