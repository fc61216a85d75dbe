//! Permits that are held, and giving a part of them back.

use crate::client::acquisition::Event;
use crate::error::{Error, Result};
use crate::lock::guard::SemaphoreGuard;

impl SemaphoreGuard {
    /// How many permits it holds; zero once its client was shut down.
    pub fn permits(&self) -> u32 {
        self.with(|holding| holding.permits()).unwrap_or(0)
    }

    /// Gives so many of its permits back, and keeps the others. One round trip.
    ///
    /// From the call on the guard has as many fewer, whatever comes of it: if the server does not
    /// answer, the client goes on trying in the background.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for no permits, and for all that it holds:
    /// [`release`](Self::release) gives these back. [`Lost`](crate::ErrorKind::Lost) when the lease
    /// is lost; [`Unavailable`](crate::ErrorKind::Unavailable) when the server does not answer for
    /// the client's call timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the permits are given back in the background.
    pub async fn release_some(&mut self, permits: u32) -> Result<()> {
        let held = self.permits();
        if self.is_held() && (permits == 0 || permits >= held) {
            let message = format!("{permits} of {held} permits are not a part of them");
            return Err(self.acquisition.lock.with_lock(Error::invalid(message)));
        }
        let keep = held.saturating_sub(permits);
        self.client.on(&self.acquisition, Event::Shrink { keep });
        self.shrunk().await
    }
}
