//! The scripts by name, and the statuses of their replies.

use crate::resp::GRANTED;

const ACQUIRE: &[&str] = &[GRANTED, "queued", "busy", "recalling", "queue_full", "too_late"];
const TRY: &[&str] = &[GRANTED, "busy", "too_late"];
const RELEASE: &[&str] = &["released", "not_found"];
const GRANT_WAITERS: &[&str] = &["done"];

/// Declares the scripts: the variant, the file in `lua/` without its ending, the statuses.
macro_rules! scripts {
    ($($variant:ident $file:literal $statuses:expr;)*) => {
        /// A script of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ScriptName {
            $($variant),*
        }

        impl ScriptName {
            /// All scripts, in the order of their discriminants.
            pub const ALL: &[ScriptName] = &[$(ScriptName::$variant),*];

            /// Returns the path of the script's file in `lua/`, without its ending.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ScriptName::$variant => $file),*
                }
            }

            /// Returns the statuses of the script's replies.
            pub const fn statuses(self) -> &'static [&'static str] {
                match self {
                    $(ScriptName::$variant => $statuses),*
                }
            }
        }
    };
}

scripts! {
    AcquireRead "acquire_read" ACQUIRE;
    AcquireWrite "acquire_write" ACQUIRE;
    Release "release" &["released", "kept", "left_queue", "force_released", "not_found", "upgrade_granted"];
    Renew "renew" &["renewed", "revoked", "other", "not_held"];
    GrantWaiters "grant_waiters" GRANT_WAITERS;
    Downgrade "downgrade" &[GRANTED, "not_held"];
    Upgrade "upgrade"
        &[GRANTED, "queued", "busy", "conflict", "revoked", "not_held", "too_late"];
    Revoke "revoke" &["revoked", "not_locked"];
    ForceRelease "force_release" &["forced", "not_locked"];
    Inspect "inspect" &["lock", "not_found"];
    Holds "holds" &["writes", "reads", "not_held"];
    RaiseToken "raise_token" &["raised", "ahead", "not_held"];
    AcceptTransfer "accept_transfer" &[GRANTED, "not_held", "too_late"];
    SetNxAcquire "set_nx/acquire" TRY;
    SetNxRenew "set_nx/renew" &[GRANTED, "not_held"];
    SetNxRelease "set_nx/release" RELEASE;
    SetNxInspect "set_nx/inspect" &["held", "not_found"];
    SemaphoreAcquire "semaphore/acquire"
        &[GRANTED, "queued", "busy", "limit_mismatch", "queue_full", "too_late"];
    SemaphoreRenew "semaphore/renew" &["renewed", "other", "not_held"];
    SemaphoreRelease "semaphore/release" &["released", "left_queue", "not_found"];
    SemaphoreReleasePermits "semaphore/release_permits" &["kept", "not_held"];
    SemaphoreGrantWaiters "semaphore/grant_waiters" GRANT_WAITERS;
    SemaphoreSetLimit "semaphore/set_limit" &["set", "limit_mismatch", "too_late"];
    SemaphoreInspect "semaphore/inspect" &["semaphore", "not_found"];
    FencedGet "fenced/get" &["value", "no_value", "not_found", "other_lock"];
    FencedSet "fenced/set" &["written", "stale", "taken_over", "not_found", "other_lock"];
    FencedDelete "fenced/delete" &["written", "stale", "taken_over", "other_lock"];
    FencedEnter "fenced/enter" &["value", "no_value", "stale", "taken_over", "other_lock"];
    ClientRecordWrite "client_record/write" &["written"];
    ClientRecordRead "client_record/read" &["found", "not_found"];
    LegacyAcquireRead "legacy/acquire_read" TRY;
    LegacyAcquireWrite "legacy/acquire_write" TRY;
    LegacyRelease "legacy/release" RELEASE;
}

impl ScriptName {
    /// Returns true if the script is for the two-key lock of older fleets.
    pub fn is_legacy(self) -> bool {
        self.as_str().starts_with("legacy/")
    }

    /// Returns true if the usual case of the script is `DELIFEQ` with its key and its argument, on
    /// servers that have that command.
    pub fn is_delifeq(self) -> bool {
        self == ScriptName::SetNxRelease
    }

    /// Returns true if the script extends a held lease.
    pub fn is_renewal(self) -> bool {
        matches!(self, ScriptName::Renew | ScriptName::SetNxRenew | ScriptName::SemaphoreRenew)
    }

    /// Returns true if the script may answer that it has granted a lease.
    pub fn can_grant(self) -> bool {
        self.statuses().contains(&GRANTED)
    }
}
