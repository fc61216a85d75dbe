//! Calls under way, their answers, and the messages of the server.

use crate::backend::RespValue;
use crate::checker::time::{AgingVisitor, LOCAL_NOW, SERVER_NOW};
use crate::client::acquisition::WorkerCall;
use crate::client::acquisition::time_visitor::TimeVisitor;
use crate::clock::LocalInstant;
use crate::protocol::{
    AcquireKind, AcquireReply, AcquireRequest, Envelope, ForceReleaseReply, Grant, HoldsRequest,
    LockKey, ReleasePermitsRequest, ReleaseReply, ReleaseRequest, RenewReply, ReplyError,
    RevokeReply, Scripts, force_release, parse_pump_reply, pump_request, revoke,
};
use crate::protocol::{AcquisitionId, LockMode};
use crate::router;

const RELEASE: ReleaseRequest = ReleaseRequest { wait_only: false };

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelCall {
    /// The index of the client's acquisition that the call is for.
    pub(super) acquisition: u8,
    pub(super) sent: LocalInstant,
    /// Its client waits for the answer until then.
    pub(super) until: LocalInstant,
    /// The server may run it until then, in ms; 0: at any time.
    pub(super) not_after: u64,
    pub(super) stage: CallStage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallStage {
    Sent(CallRequest),
    /// The client no longer waits, but the call may still run.
    Abandoned(CallRequest),
    Answered(Envelope, CallAnswer),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallRequest {
    Acquire(AcquireRequest),
    Work(WorkerCall),
    /// The holder's own release.
    OwnerRelease,
    Pump,
    /// By somebody else, for leases with tokens up to this one.
    Revoke(u64),
    Force(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallAnswer {
    Acquired(AcquireReply),
    Renewed(RenewReply),
    Asked(Option<u64>),
    Downgraded(RenewReply),
    Released {
        only_wait: bool,
        ended: ReleaseReply,
    },
    GivenBack(ReleaseReply),
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
pub(super) struct ModelMessage {
    pub(super) client: u8,
    pub(super) acquisition: u8,
    pub(super) token: u64,
    pub(super) deadline: u64,
    /// The server's time when it was sent.
    pub(super) now: u64,
    pub(super) more: bool,
    pub(super) about: ModelMessageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ModelMessageKind {
    Grant,
    /// Another client wants the cached lock.
    RecallToRead,
    RecallToWrite,
    /// A forced release has ended its lease.
    End,
}

impl CallRequest {
    /// As it is given to the router.
    pub(super) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
    ) -> router::Call {
        match self {
            CallRequest::Acquire(acquire) => acquire.call(scripts, id, lock, LOCAL_NOW),
            CallRequest::Work(WorkerCall::Renew { renew, .. }) => renew.call(scripts, id, lock),
            CallRequest::Work(WorkerCall::Holds { .. }) => {
                HoldsRequest { id: id.as_str() }.call(scripts, lock)
            }
            CallRequest::Work(WorkerCall::Downgrade(downgrade)) => {
                downgrade.call(scripts, id, lock)
            }
            CallRequest::Work(WorkerCall::ReleasePermits(shrink)) => shrink.call(scripts, id, lock),
            CallRequest::Work(WorkerCall::Release(release)) => release.call(scripts, id, lock),
            CallRequest::OwnerRelease => RELEASE.call(scripts, id, lock),
            CallRequest::Pump => pump_request(scripts, lock),
            CallRequest::Revoke(token) => revoke(scripts, lock, *token),
            CallRequest::Force(token) => force_release(scripts, lock, *token),
        }
    }

    pub(super) fn read(&self, reply: RespValue) -> Result<(Envelope, CallAnswer), ReplyError> {
        Ok(match self {
            CallRequest::Acquire(_) => {
                let (envelope, acquired) = AcquireRequest::read(reply)?;
                (envelope, CallAnswer::Acquired(acquired))
            }
            CallRequest::Work(WorkerCall::Renew { .. }) => {
                let (envelope, renewed) = RenewReply::read(reply)?;
                (envelope, CallAnswer::Renewed(renewed))
            }
            CallRequest::Work(WorkerCall::Holds { .. }) => {
                let (envelope, token) = HoldsRequest::read(reply)?;
                (envelope, CallAnswer::Asked(token))
            }
            CallRequest::Work(WorkerCall::Downgrade(_)) => {
                let (envelope, renewed) = RenewReply::read(reply)?;
                (envelope, CallAnswer::Downgraded(renewed))
            }
            CallRequest::Work(WorkerCall::ReleasePermits(ReleasePermitsRequest { keep })) => {
                let (envelope, lease) = ReleasePermitsRequest::read(reply)?;
                (envelope, CallAnswer::Shrunk { keep: *keep, lease })
            }
            CallRequest::Work(WorkerCall::Release(ReleaseRequest { wait_only: only_wait })) => {
                let (envelope, ended) = ReleaseRequest::read(reply)?;
                (envelope, CallAnswer::Released { only_wait: *only_wait, ended })
            }
            CallRequest::OwnerRelease => {
                let (envelope, ended) = ReleaseRequest::read(reply)?;
                (envelope, CallAnswer::GivenBack(ended))
            }
            CallRequest::Pump => (parse_pump_reply(reply)?, CallAnswer::Pumped),
            CallRequest::Revoke(_) => (RevokeReply::read(reply)?.0, CallAnswer::Outside),
            CallRequest::Force(_) => (ForceReleaseReply::read(reply)?.0, CallAnswer::Outside),
        })
    }

    /// The name in the trace.
    pub(super) fn name(&self) -> &'static str {
        match self {
            CallRequest::Acquire(AcquireRequest {
                kind: AcquireKind::Lock(LockMode::Read, _),
                ..
            }) => "acquire_read",
            CallRequest::Acquire(AcquireRequest {
                kind: AcquireKind::Lock(LockMode::Write, _),
                ..
            }) => "acquire_write",
            CallRequest::Acquire(AcquireRequest { kind: AcquireKind::Permits(_), .. }) => {
                "acquire permits"
            }
            CallRequest::Acquire(_) => "upgrade",
            CallRequest::Work(WorkerCall::Renew { .. }) => "renew",
            CallRequest::Work(WorkerCall::Holds { .. }) => "holds",
            CallRequest::Work(WorkerCall::Downgrade(_)) => "downgrade",
            CallRequest::Work(WorkerCall::ReleasePermits(_)) => "shrink",
            CallRequest::Work(WorkerCall::Release(ReleaseRequest { wait_only: true })) => {
                "release wait"
            }
            CallRequest::Work(WorkerCall::Release(_)) => "release",
            CallRequest::OwnerRelease => "release by the holder",
            CallRequest::Pump => "pump",
            CallRequest::Revoke(_) => "revoke",
            CallRequest::Force(_) => "force_release",
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

impl CallAnswer {
    fn grant(&mut self) -> Option<&mut Grant> {
        match self {
            CallAnswer::Acquired(AcquireReply::Granted(grant))
            | CallAnswer::Renewed(
                RenewReply::Renewed(grant) | RenewReply::Revoked(grant) | RenewReply::Other(grant),
            )
            | CallAnswer::Downgraded(RenewReply::Renewed(grant) | RenewReply::Revoked(grant))
            | CallAnswer::Shrunk { lease: Some(grant), .. }
            | CallAnswer::Released { ended: ReleaseReply::UpgradeGranted(grant), .. } => {
                Some(grant)
            }
            _ => None,
        }
    }
}

impl ModelCall {
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.stage, CallStage::Abandoned(_))
    }

    /// What the server has not run so far.
    pub(super) fn request(&self) -> Option<&CallRequest> {
        match &self.stage {
            CallStage::Sent(request) | CallStage::Abandoned(request) => Some(request),
            CallStage::Answered(..) => None,
        }
    }

    /// The client stops waiting. Nothing is left of a call that has run.
    pub(super) fn abandon(self) -> Option<ModelCall> {
        match self.stage {
            CallStage::Sent(request) | CallStage::Abandoned(request) => {
                let stage = CallStage::Abandoned(request);
                Some(ModelCall { stage, sent: LOCAL_NOW, until: LOCAL_NOW, ..self })
            }
            CallStage::Answered(..) => None,
        }
    }

    pub(super) fn age(&mut self, by: &mut AgingVisitor) {
        if self.is_abandoned() {
            (self.sent, self.until) = (LOCAL_NOW, LOCAL_NOW);
        } else {
            by.visit_sent_time(&mut self.sent);
            by.visit_deadline(&mut self.until);
        }
        if self.not_after > 0 {
            self.not_after = (self.not_after - by.by_ms).max(SERVER_NOW - 1);
        }
        match &mut self.stage {
            CallStage::Sent(CallRequest::Work(
                WorkerCall::Renew { ends, .. } | WorkerCall::Holds { ends },
            ))
            | CallStage::Abandoned(CallRequest::Work(
                WorkerCall::Renew { ends, .. } | WorkerCall::Holds { ends },
            )) => {
                by.visit_reported_time(ends);
            }
            CallStage::Answered(envelope, answer) => {
                // 0: the script did not read the clock.
                envelope.server_now = envelope.server_now.saturating_sub(by.by_ms);
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
    pub(super) fn age(&mut self, by_ms: u64) {
        self.deadline = (self.deadline - by_ms).max(SERVER_NOW);
        self.now = match self.deadline {
            SERVER_NOW => SERVER_NOW,
            _ => self.now - by_ms,
        };
    }
}
