//! Reports of all leases that a client loses.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::Mode;
use crate::slot::Slot;

/// A lease that was lost: it ended while a guard held it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The lock's name.
    pub lock: Arc<str>,
    /// The lock's slot.
    pub slot: Slot,
    /// The mode in which it was held.
    pub mode: Mode,
    /// The fencing token, which is stale from now on.
    pub token: u64,
    /// The time for which it was held.
    pub held: Duration,
    /// The number of guards that held it: one, or more for a cached lease.
    pub guards: u64,
}

type Listener = Arc<dyn Fn(&Loss) + Send + Sync>;

/// The listener for losses.
#[derive(Clone, Default)]
pub(crate) struct OnLost(pub(crate) Option<Listener>);

impl OnLost {
    /// A panic of the listener affects nothing else.
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
