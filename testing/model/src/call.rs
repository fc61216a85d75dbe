//! Calls under way, their answers, and the messages of the server.

use rwlease_core::acquisition::{TimeVisitor, WorkerCall};
use rwlease_core::protocol::{
    AcquireKind, AcquireReply, AcquireRequest, AcquisitionId, Call, Envelope, ForceReleaseReply,
    Grant, HoldsRequest, LockKey, ReleasePermitsRequest, ReleaseReply, ReleaseRequest, RenewReply,
    ReplyError, RevokeReply, force_release, grant_waiters_request, parse_grant_waiters_reply,
    revoke,
};
use rwlease_core::resp::RespValue;
use rwlease_core::time::LocalInstant;

use crate::time::{AgingVisitor, LOCAL_NOW, SERVER_NOW};

const RELEASE: ReleaseRequest = ReleaseRequest::ALL;

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelCall {
    /// The index of the client's acquisition that the call is for.
    pub acquisition: u8,
    pub sent: LocalInstant,
    /// Its client waits for the answer until then.
    pub until: LocalInstant,
    /// The server may run it until then, in ms; 0: at any time.
    pub not_after: u64,
    pub stage: CallStage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallStage {
    Sent(CallRequest),
    /// The client no longer waits, but the call may still run.
    Abandoned(CallRequest),
    Answered(Envelope, CallAnswer),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallRequest {
    Acquire(AcquireRequest),
    Work(WorkerCall),
    /// The holder's own release.
    OwnerRelease,
    GrantWaiters,
    /// By somebody else, for leases with tokens up to this one.
    Revoke(u64),
    Force(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallAnswer {
    Acquired(AcquireReply),
    Renewed(RenewReply),
    Asked(Option<u64>),
    Downgraded(RenewReply),
    Released {
        wait_only: bool,
        ended: ReleaseReply,
    },
    GivenBack(ReleaseReply),
    PermitsReleased {
        keep: u32,
        lease: Option<Grant>,
    },
    WaitersGranted,
    /// For somebody else.
    Outside,
}

/// A message on its way to a client. A recall has no token, and only a grant has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelMessage {
    pub client: u8,
    pub acquisition: u8,
    pub token: u64,
    pub deadline: u64,
    /// The server's time when it was sent.
    pub now: u64,
    pub more: bool,
    pub about: ModelMessageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelMessageKind {
    Grant,
    /// Another client wants the cached lock.
    RecallToRead,
    RecallToWrite,
    /// A forced release has ended its lease.
    End,
}

impl CallRequest {
    /// As it is given to the router.
    pub fn call(&self, id: AcquisitionId, lock: &LockKey) -> Call {
        match self {
            CallRequest::Acquire(acquire) => acquire.call(id, lock, LOCAL_NOW),
            CallRequest::Work(WorkerCall::Renew { renew, .. }) => renew.call(id, lock),
            CallRequest::Work(WorkerCall::Holds { .. }) => {
                HoldsRequest { id: id.as_str() }.call(lock)
            }
            CallRequest::Work(WorkerCall::Downgrade(downgrade)) => downgrade.call(id, lock),
            CallRequest::Work(WorkerCall::ReleasePermits(request)) => request.call(id, lock),
            CallRequest::Work(WorkerCall::Release(release)) => release.call(id, lock),
            CallRequest::OwnerRelease => RELEASE.call(id, lock),
            CallRequest::GrantWaiters => grant_waiters_request(lock),
            CallRequest::Revoke(token) => revoke(lock, *token),
            CallRequest::Force(token) => force_release(lock, *token),
        }
    }

    pub fn read(&self, reply: RespValue) -> ReadReply<CallAnswer> {
        match self {
            CallRequest::Acquire(_) => answer(AcquireRequest::read(reply), CallAnswer::Acquired),
            CallRequest::Work(WorkerCall::Renew { .. }) => {
                answer(RenewReply::read(reply), CallAnswer::Renewed)
            }
            CallRequest::Work(WorkerCall::Holds { .. }) => {
                answer(HoldsRequest::read(reply), CallAnswer::Asked)
            }
            CallRequest::Work(WorkerCall::Downgrade(_)) => {
                answer(RenewReply::read(reply), CallAnswer::Downgraded)
            }
            CallRequest::Work(WorkerCall::ReleasePermits(ReleasePermitsRequest { keep })) => {
                let keep = *keep;
                let released = |lease| CallAnswer::PermitsReleased { keep, lease };
                answer(ReleasePermitsRequest::read(reply), released)
            }
            CallRequest::Work(WorkerCall::Release(ReleaseRequest { wait_only, .. })) => {
                let wait_only = *wait_only;
                let released = |ended| CallAnswer::Released { wait_only, ended };
                answer(ReleaseRequest::read(reply), released)
            }
            CallRequest::OwnerRelease => answer(ReleaseRequest::read(reply), CallAnswer::GivenBack),
            CallRequest::GrantWaiters => {
                Ok((parse_grant_waiters_reply(reply)?, CallAnswer::WaitersGranted))
            }
            CallRequest::Revoke(_) => answer(RevokeReply::read(reply), |_| CallAnswer::Outside),
            CallRequest::Force(_) => {
                answer(ForceReleaseReply::read(reply), |_| CallAnswer::Outside)
            }
        }
    }

    fn each_token(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        match self {
            CallRequest::Acquire(AcquireRequest {
                kind: AcquireKind::Upgrade { token }, ..
            }) => visit(token),
            CallRequest::Work(WorkerCall::Downgrade(downgrade)) => visit(&mut downgrade.token),
            CallRequest::Work(WorkerCall::Renew { renew, .. }) => visit(&mut renew.token),
            CallRequest::Revoke(token) | CallRequest::Force(token) => visit(token),
            _ => {}
        }
    }
}

type ReadReply<T> = Result<(Envelope, T), ReplyError>;

fn answer<T>(read: ReadReply<T>, form: impl FnOnce(T) -> CallAnswer) -> ReadReply<CallAnswer> {
    let (envelope, body) = read?;
    Ok((envelope, form(body)))
}

impl CallAnswer {
    fn grant(&mut self) -> Option<&mut Grant> {
        match self {
            CallAnswer::Acquired(AcquireReply::Granted(grant))
            | CallAnswer::Renewed(
                RenewReply::Renewed(grant) | RenewReply::Revoked(grant) | RenewReply::Other(grant),
            )
            | CallAnswer::Downgraded(RenewReply::Renewed(grant) | RenewReply::Revoked(grant))
            | CallAnswer::PermitsReleased { lease: Some(grant), .. }
            | CallAnswer::Released { ended: ReleaseReply::UpgradeGranted(grant), .. } => {
                Some(grant)
            }
            _ => None,
        }
    }
}

impl ModelCall {
    pub fn is_abandoned(&self) -> bool {
        matches!(self.stage, CallStage::Abandoned(_))
    }

    /// What the server has not run so far.
    pub fn request(&self) -> Option<&CallRequest> {
        match &self.stage {
            CallStage::Sent(request) | CallStage::Abandoned(request) => Some(request),
            CallStage::Answered(..) => None,
        }
    }

    /// The client stops waiting. Nothing is left of a call that has run.
    pub fn abandon(self) -> Option<ModelCall> {
        match self.stage {
            CallStage::Sent(request) | CallStage::Abandoned(request) => {
                let stage = CallStage::Abandoned(request);
                Some(ModelCall { stage, sent: LOCAL_NOW, until: LOCAL_NOW, ..self })
            }
            CallStage::Answered(..) => None,
        }
    }

    pub fn age(&mut self, by: &mut AgingVisitor) {
        if self.is_abandoned() {
            (self.sent, self.until) = (LOCAL_NOW, LOCAL_NOW);
        } else {
            by.visit_sent_time(&mut self.sent);
            by.visit_deadline(&mut self.until);
        }
        if self.not_after > 0 {
            self.not_after = (self.not_after - by.server_ms).max(SERVER_NOW - 1);
        }
        match &mut self.stage {
            CallStage::Sent(CallRequest::Work(
                WorkerCall::Renew { deadline, .. } | WorkerCall::Holds { deadline },
            ))
            | CallStage::Abandoned(CallRequest::Work(
                WorkerCall::Renew { deadline, .. } | WorkerCall::Holds { deadline },
            )) => {
                by.visit_reported_time(deadline);
            }
            CallStage::Answered(envelope, answer) => {
                // 0: the script did not read the clock.
                envelope.server_now = envelope.server_now.saturating_sub(by.server_ms);
                if let Some(grant) = answer.grant() {
                    grant.deadline -= by.server_ms;
                }
            }
            _ => {}
        }
    }

    /// All tokens in it.
    pub fn tokens(&self) -> Vec<u64> {
        let mut all = Vec::new();
        self.clone().each_token(&mut |token| all.push(*token));
        all
    }

    pub fn each_token(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        match &mut self.stage {
            CallStage::Sent(request) | CallStage::Abandoned(request) => request.each_token(visit),
            CallStage::Answered(_, CallAnswer::Asked(token)) => token.iter_mut().for_each(visit),
            CallStage::Answered(_, answer) => {
                if let Some(grant) = answer.grant() {
                    visit(&mut grant.token);
                    visit(&mut grant.last_token);
                }
            }
        }
    }
}

impl ModelMessage {
    pub fn age(&mut self, by_ms: u64) {
        self.deadline = (self.deadline - by_ms).max(SERVER_NOW);
        self.now = match self.deadline {
            SERVER_NOW => SERVER_NOW,
            _ => self.now - by_ms,
        };
    }
}
