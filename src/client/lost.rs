//! Telling a client of all leases that it loses.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::Mode;
use crate::slot::Slot;

/// A lease that was lost: it ended while its guard was held.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The lock's name.
    pub lock: Arc<str>,
    /// The lock's slot.
    pub slot: Slot,
    /// How it was held.
    pub mode: Mode,
    /// The fencing token, which is stale from now on.
    pub token: u64,
    /// How long it was held.
    pub held: Duration,
    /// How many guards held by it: one, or as many as a cached lease had.
    pub guards: u64,
}

type Listener = Arc<dyn Fn(&Loss) + Send + Sync>;

/// Who is told of losses.
#[derive(Clone, Default)]
pub(crate) struct OnLost(pub(crate) Option<Listener>);

impl OnLost {
    /// A listener that panics takes nobody else with it.
    pub(crate) fn tell(&self, loss: &Loss) {
        if let Some(listener) = &self.0
            && catch_unwind(AssertUnwindSafe(|| listener(loss))).is_err()
        {
            crate::client::telemetry::listener_panicked(loss);
        }
    }
}

impl fmt::Debug for OnLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnLost").field(&self.0.is_some()).finish()
    }
}
