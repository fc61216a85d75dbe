//! Held permits, and how to give some of them back.

use crate::client::acquisition::AcquisitionEvent;
use crate::error::{Error, Result};
use crate::lock::guard::SemaphoreGuard;

impl SemaphoreGuard {
    /// The number of permits this guard holds. Zero once its client was shut down.
    pub fn permits(&self) -> u32 {
        self.with(|holding| holding.permits()).unwrap_or(0)
    }

    /// Gives back `permits` of the permits and keeps the others. One round trip.
    ///
    /// The guard has fewer permits from the call on, whatever its outcome. If the server does not
    /// answer, the client goes on trying in the background.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for zero permits and for all that the guard holds,
    /// which [`release`](Self::release) gives back. [`Lost`](crate::ErrorKind::Lost) when the lease
    /// is lost. [`Unavailable`](crate::ErrorKind::Unavailable) when the server does not answer
    /// within the client's call timeout.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the permits are given back in the background.
    pub async fn release_some(&mut self, permits: u32) -> Result<()> {
        let held = self.permits();
        if self.is_held() && (permits == 0 || permits >= held) {
            let message = format!("{permits} of {held} permits are not a part of them");
            return Err(self.acquisition.lock.add_context(Error::invalid(message)));
        }
        let keep = held.saturating_sub(permits);
        self.client.apply(&self.acquisition, AcquisitionEvent::ReleasePermits { keep });
        self.shrunk().await
    }
}
