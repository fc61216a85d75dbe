use rwlease_core::acquisition::AcquisitionEvent;

use crate::error::{AddContext, Error, Result};
use crate::lock::guard::{SemaphorePermit, fencing_token, let_expire, release};

impl SemaphorePermit {
    fencing_token!();
    release!();

    /// Returns the number of permits this guard holds. Zero once its client was shut down.
    pub fn num_permits(&self) -> u32 {
        self.with(|holding| holding.permits()).unwrap_or(0)
    }

    /// Releases `permits` of the permits and keeps the rest. One round trip.
    ///
    /// The guard has fewer permits from the call on, whatever its outcome. If the server refuses or
    /// does not reply, the client retries in the background.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for zero permits, and for all permits of
    /// the guard: use [`release`](Self::release) for these.
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) when the lease is lost.
    /// [`Rejected`](crate::ErrorKind::Rejected) when the server refuses.
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the server does not reply within the
    /// client's call timeout.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the permits are released in the background.
    pub async fn release_permits(&mut self, permits: u32) -> Result<()> {
        let held = self.num_permits();
        if self.is_held() && (permits == 0 || permits >= held) {
            let advice = match held {
                1 => "call `release`".to_owned(),
                _ => format!("pass 1 to {}, or call `release`", held - 1),
            };
            let message = format!("cannot release {permits} of {held} permits; {advice}");
            return Err(self.acquisition.lock.add_context(Error::invalid(message)));
        }
        let keep = held.saturating_sub(permits);
        self.client.apply(&self.acquisition, AcquisitionEvent::ReleasePermits { keep });
        self.shrunk().await
    }

    let_expire!();
}
