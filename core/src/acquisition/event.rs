use std::time::Duration;

use crate::acquisition::config::AcquisitionConfig;
use crate::acquisition::error::AcquisitionError;
use crate::acquisition::lease_options::WaitPolicy;
use crate::protocol::{
    AcquireReply, AcquireRequest, CallError, Confirmation, DowngradeRequest, Grant, LockKind,
    LockMode, ReleasePermitsRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
    ScriptReply, ScriptResult,
};
use crate::resp::Address;
use crate::time::{ClockBounds, LocalInstant};

/// The inputs of a transition besides the state and the event.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub now: LocalInstant,
    /// From 0 to 1, to spread timers.
    pub jitter: f64,
    pub settings: &'a AcquisitionConfig,
    /// The kind of the lock.
    pub lock_kind: LockKind,
}

#[derive(Debug)]
pub enum AcquisitionEvent {
    // Events of a request, which is for a new lease or for an upgrade.
    /// It is time to call. `is_subscribed` says whether the client receives the pushes in the
    /// lock's slot.
    Call {
        is_subscribed: bool,
    },
    /// The call has ended.
    AcquireReply(ScriptResult<AcquireReply>),
    /// Something may have changed, or the time to wake has come.
    Wake,
    /// A message may have been lost.
    PushMissed,
    GrantPushed(Box<GrantPush>),
    /// The request has ended or was dropped. A wait or a grant that it left at the server is
    /// released.
    RequestEnded,

    // Events of a holder.
    /// A guard takes the reserved lease.
    BeginUse,
    /// Turn the read into a write.
    Upgrade(WaitPolicy),
    /// Turn the write into a read.
    Downgrade,
    /// The lock need not stay taken for its shortest time.
    CancelAtLeast,
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
    /// The holder lets the lease expire.
    LetExpire,
    /// The holder has made a `LeaseTransfer` of the lease.
    Transfer,
    /// End it in any state, and release what it has at the server.
    Abandon,
    /// End a request of which nothing was sent. There is nothing to release.
    Withdraw,

    /// The client has failed. No more calls are sent for the acquisition.
    ClientFailed,
    /// A message says that a forced release has ended the lease with this token.
    ForceReleased {
        token: u64,
    },

    // Events of the worker.
    /// Work for the acquisition is due.
    TimerFired,
    /// The reply to `holds`: the token of the lease, or `None` if the acquisition does not hold the
    /// lock.
    HoldsReply(ScriptResult<Option<u64>>),
    RenewReply(ScriptResult<RenewReply>),
    DowngradeReply(ScriptResult<RenewReply>),
    /// The reply to `release_permits`: the lease with `keep` permits, or `None` if the acquisition
    /// holds none.
    ReleasePermitsReply {
        keep: u32,
        outcome: ScriptResult<Option<Grant>>,
    },
    WorkerReleaseReply {
        wait_only: bool,
        outcome: ScriptResult<ReleaseReply>,
    },
}

impl AcquisitionEvent {
    /// Whether it is a reply that reports work left at the server.
    pub(super) fn has_more_work(&self) -> bool {
        match self {
            Self::AcquireReply(Ok(ScriptReply { envelope, .. }))
            | Self::HoldsReply(Ok(ScriptReply { envelope, .. }))
            | Self::RenewReply(Ok(ScriptReply { envelope, .. }))
            | Self::DowngradeReply(Ok(ScriptReply { envelope, .. }))
            | Self::ReleasePermitsReply { outcome: Ok(ScriptReply { envelope, .. }), .. }
            | Self::WorkerReleaseReply { outcome: Ok(ScriptReply { envelope, .. }), .. }
            | Self::ReleaseReply(ScriptReply { envelope, .. }) => envelope.has_more_work,
            _ => false,
        }
    }
}

/// A grant as it was pushed.
#[derive(Debug)]
pub struct GrantPush {
    pub grant: Grant,
    /// The server's time when it was sent, ms.
    pub server_now: u64,
    pub received_at: LocalInstant,
    pub server: Address,
    /// The bound of that server's clock.
    pub clock_bounds: Option<ClockBounds>,
}

/// The effects of a transition. The caller carries them out once the state is unlocked.
#[derive(Debug, Default)]
pub struct Effects {
    /// When the transition took place.
    pub now: LocalInstant,
    /// When the worker must handle the acquisition next.
    pub wake_worker_at: Option<LocalInstant>,
    /// Wake the callers that wait for a change.
    pub notify_waiters: bool,
    /// The lease or the request has ended: notify callers, and cancel the lease's cancellation
    /// token.
    pub notify_end: bool,
    /// It has ended: remove it from the registry.
    pub deregister: bool,
    /// The server has work left: continue it by `grant_waiters`.
    pub grant_waiters: bool,
    /// The acquisition only awaits its release.
    pub is_release: bool,
    /// The lease was lost.
    pub loss: Option<LossRecord>,
    /// An event to emit.
    pub telemetry: Option<TelemetryEvent>,
    /// The hold has ended: its mode, the way it ended, and how long it lasted.
    pub hold_end: Option<(LockMode, &'static str, Duration)>,
    /// The calls that the worker sends: at most a renewal or a `holds`, and a change or a release.
    pub worker_calls: [Option<WorkerCall>; 2],
    /// How the request continues.
    pub next_step: Option<RequestStep>,
}

impl Effects {
    pub fn wake_worker_by(&mut self, due: LocalInstant) {
        self.wake_worker_at = Some(self.wake_worker_at.map_or(due, |earlier| earlier.min(due)));
    }
}

/// A lease that was lost.
#[derive(Debug)]
pub struct LossRecord {
    pub mode: LockMode,
    pub token: u64,
    pub held_for: Duration,
    /// Whether it ended before its deadline.
    pub by_server: bool,
    /// Whether it ended because the client has failed.
    pub client_failed: bool,
    /// Whether the loss is reported here. The cache and a Redlock report those of their leases, and
    /// a reserved lease has no guard.
    pub is_reported: bool,
}

impl LossRecord {
    /// The reason, as events and metrics name it.
    pub fn reason(&self) -> &'static str {
        match self {
            LossRecord { client_failed: true, .. } => "client_failed",
            LossRecord { by_server: true, .. } => "not_held",
            _ => "expired",
        }
    }
}

/// An event for logs and metrics.
#[derive(Debug)]
pub enum TelemetryEvent {
    Queued { mode: LockMode, server: Address, ahead: u64 },
    GrantExpired { mode: LockMode, server: Address },
    Renewed { mode: LockMode, server: Address, outcome: &'static str, took: Duration },
    RenewalFailed { mode: LockMode, error: String },
    AtRisk { mode: LockMode, token: u64, left: Duration },
    ChangeRefused(CallError),
    Released { server: Address, outcome: ReleaseReply, took: Duration },
    ReleaseFailed(CallError),
}

/// A call that the worker sends for an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerCall {
    /// It is useless after the lease's deadline.
    Renew {
        renew: RenewRequest,
        confirmation: Confirmation,
        deadline: LocalInstant,
    },
    /// Query whether the acquisition holds the lock. It is useless after the
    /// lease's deadline.
    Holds {
        deadline: LocalInstant,
    },
    Downgrade(DowngradeRequest),
    ReleasePermits(ReleasePermitsRequest),
    Release(ReleaseRequest),
}

/// How a request continues.
#[derive(Debug)]
pub enum RequestStep {
    /// [`Call`](AcquisitionEvent::Call) again at once.
    CallNow,
    /// Send this call, which is useless after `deadline`.
    Send {
        acquire: AcquireRequest,
        confirmation: Confirmation,
        deadline: LocalInstant,
    },
    /// [`Wake`](AcquisitionEvent::Wake) it at this moment, or when something has changed.
    WaitUntil(LocalInstant),
    Granted {
        token: u64,
        source: GrantSource,
        server: Address,
    },
    /// A try found the lock busy.
    Busy,
    Failed(AcquisitionError),
}

/// How a grant arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantSource {
    Reply,
    Push,
}
