//! The events of an acquisition, and their effects.

use std::time::Duration;

use crate::backend::Address;
use crate::client::config::ClientConfig;
use crate::client::lease_options::WaitPolicy;
use crate::client::loss::LeaseLoss;
use crate::client::script_result::{ScriptReply, ScriptResult};
use crate::clock::LocalInstant;
use crate::error::Error;
use crate::protocol::{
    AcquireReply, AcquireRequest, DowngradeRequest, Grant, LockKey, LockKind, LockMode,
    ReleasePermitsRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
};
use crate::router::ClockBounds;

/// What a transition uses besides the state and the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: LocalInstant,
    /// From 0 to 1, to spread timers.
    pub(crate) jitter: f64,
    pub(crate) settings: &'a ClientConfig,
    /// The kind of the lock.
    pub(crate) lock_kind: LockKind,
}

#[derive(Debug)]
pub(crate) enum AcquisitionEvent {
    // Of a request, which is for a new lease or for an upgrade.
    /// It is time to call. `hears` says whether the client receives grants in the lock's slot.
    Call {
        is_subscribed: bool,
    },
    /// The call has ended.
    AcquireReply(ScriptResult<AcquireReply>),
    /// Something may have changed, or the time to wake has come.
    Wake,
    /// A message may have been lost.
    PushMissed,
    /// A grant was pushed.
    GrantPushed(Box<GrantPush>),
    /// The request has ended or was dropped: what it does not hold is released.
    RequestEnded,

    // Of a holder.
    /// A guard has the reserved lease from now on.
    BeginUse,
    /// Turn the read into a write.
    Upgrade(WaitPolicy),
    /// Turn the write into a read.
    Downgrade,
    /// Keep this many of the permits.
    ReleasePermits {
        keep: u32,
    },
    /// Keep the write: cancel a downgrade that was not sent yet.
    CancelDowngrade,
    /// The holder sends its own release.
    ReleaseStarted,
    /// That release was answered. Without an answer, an [`Abandon`](AcquisitionEvent::Abandon)
    /// follows.
    ReleaseReply(ScriptReply<ReleaseReply>),
    /// Leave it to its lease.
    LetExpire,
    /// Leave it to the holder of its ticket.
    Transfer,
    /// Give it up in any state.
    Abandon,

    /// The client has failed: nothing more is sent for it.
    ClientFailed,
    /// A message says that a forced release has ended the lease with this token.
    ForceReleased {
        token: u64,
    },

    // Of the worker.
    /// It is time to look at it.
    TimerFired,
    /// The server's answer: the token by which it holds the lock, if it does.
    HoldsReply(ScriptResult<Option<u64>>),
    RenewReply(ScriptResult<RenewReply>),
    DowngradeReply(ScriptResult<RenewReply>),
    /// The server's answer: the lease by which it holds this many permits, if it does.
    ReleasePermitsReply {
        keep: u32,
        outcome: ScriptResult<Option<Grant>>,
    },
    WorkerReleaseReply {
        only_wait: bool,
        outcome: ScriptResult<ReleaseReply>,
    },
}

impl AcquisitionEvent {
    /// Whether it is an answer that reports work left at the server.
    pub(super) fn has_pump_work(&self) -> bool {
        match self {
            AcquisitionEvent::AcquireReply(Ok(ScriptReply { envelope, .. }))
            | AcquisitionEvent::HoldsReply(Ok(ScriptReply { envelope, .. }))
            | AcquisitionEvent::RenewReply(Ok(ScriptReply { envelope, .. }))
            | AcquisitionEvent::DowngradeReply(Ok(ScriptReply { envelope, .. }))
            | AcquisitionEvent::ReleasePermitsReply {
                outcome: Ok(ScriptReply { envelope, .. }),
                ..
            }
            | AcquisitionEvent::WorkerReleaseReply {
                outcome: Ok(ScriptReply { envelope, .. }),
                ..
            }
            | AcquisitionEvent::ReleaseReply(ScriptReply { envelope, .. }) => {
                envelope.has_pump_work
            }
            _ => false,
        }
    }
}

/// A grant as it was pushed.
#[derive(Debug)]
pub(crate) struct GrantPush {
    pub(crate) grant: Grant,
    /// The server's time when it was sent, ms.
    pub(crate) server_now: u64,
    pub(crate) received_at: LocalInstant,
    pub(crate) server: Address,
    /// The bound of that server's clock.
    pub(crate) clock_bounds: Option<ClockBounds>,
}

/// What to do after a transition, once the state is unlocked.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// When the transition took place.
    pub(crate) now: LocalInstant,
    /// When the worker must look at it.
    pub(crate) wake_worker_at: Option<LocalInstant>,
    /// Wake the callers that wait for a change.
    pub(crate) notify_waiters: bool,
    /// The lease or the request has ended: notify callers, and cancel what depends on the lease.
    pub(crate) notify_end: bool,
    /// It has ended: remove it from the registry.
    pub(crate) deregister: bool,
    /// The server has work left: continue it by `pump`.
    pub(crate) pump: bool,
    /// What is left is a release.
    pub(crate) is_release: bool,
    /// The lease was lost.
    pub(crate) loss: Option<LossRecord>,
    /// An event to emit.
    pub(crate) telemetry: Option<TelemetryEvent>,
    /// The hold has ended: its mode, the way it ended, and how long it lasted.
    pub(crate) hold_end: Option<(LockMode, &'static str, Duration)>,
    /// What the worker sends: at most a renewal or a question, and a change or a release.
    pub(crate) worker_calls: [Option<WorkerCall>; 2],
    /// How the request continues.
    pub(crate) next_step: Option<RequestStep>,
}

impl Effects {
    pub(crate) fn wake_worker_by(&mut self, due: LocalInstant) {
        self.wake_worker_at = Some(self.wake_worker_at.map_or(due, |earlier| earlier.min(due)));
    }
}

/// A lease that was lost.
#[derive(Debug)]
pub(crate) struct LossRecord {
    pub(crate) mode: LockMode,
    pub(crate) token: u64,
    pub(crate) held_for: Duration,
    /// Whether it ended before its deadline.
    pub(crate) by_server: bool,
    /// Whether it ended because the client has failed.
    pub(crate) client_failed: bool,
    /// Whether the loss is reported here. The cache reports that of a cached lease, and a reserved
    /// lease has no guard.
    pub(crate) is_reported: bool,
}

impl LossRecord {
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            LossRecord { client_failed: true, .. } => "client_failed",
            LossRecord { by_server: true, .. } => "taken",
            _ => "expired",
        }
    }

    pub(crate) fn into_loss(self, lock: &LockKey) -> LeaseLoss {
        let LossRecord { mode, token, held_for: held, .. } = self;
        LeaseLoss {
            lock: lock.name.clone(),
            slot: lock.slot,
            mode,
            token,
            held_for: held,
            guard_count: 1,
        }
    }
}

/// An event for logs and metrics.
#[derive(Debug)]
pub(crate) enum TelemetryEvent {
    Queued { mode: LockMode, node: Address, ahead: u64 },
    GrantExpired { mode: LockMode, node: Address },
    Renewed { mode: LockMode, node: Address, outcome: &'static str, took: Duration },
    RenewalFailed { mode: LockMode, why: String },
    ChangeRefused(Error),
    Released { node: Address, ended: ReleaseReply, took: Duration },
    ReleaseFailed(Error),
}

/// What the worker sends for an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkerCall {
    /// It needs this many replicas' confirmation, and is useless after the end of the lease.
    Renew {
        renew: RenewRequest,
        replicas: u32,
        ends: LocalInstant,
    },
    /// Ask whether it holds the lock. It is useless after the end of the lease.
    Holds {
        ends: LocalInstant,
    },
    Downgrade(DowngradeRequest),
    ReleasePermits(ReleasePermitsRequest),
    Release(ReleaseRequest),
}

/// How a request continues.
#[derive(Debug)]
pub(crate) enum RequestStep {
    /// [`Call`](AcquisitionEvent::Call) again at once.
    CallNow,
    /// Send this call, which is useless after `until`.
    Send {
        acquire: AcquireRequest,
        replicas: u32,
        deadline: LocalInstant,
    },
    /// [`Wake`](AcquisitionEvent::Wake) it at this moment, or when something has changed.
    WaitUntil(LocalInstant),
    Granted {
        token: u64,
        by: GrantSource,
        node: Address,
    },
    /// It was a try, and others hold the lock.
    Busy,
    Failed(Error),
}

/// How a grant arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantSource {
    Reply,
    Push,
}
