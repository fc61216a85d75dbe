//! Connecting to servers in this process.

use super::{Builder, refuse};
use crate::embedded::{Engine, Host};
use crate::error::Result;
use crate::lock::locks::Locks;
use crate::protocol::Scripts;

impl Builder {
    /// Connects to servers in this process.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting out of its range, or one that does
    /// nothing here (URLs, credentials, the client's name, certificates);
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if all its servers are stopped.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no lock was taken yet, and what was opened is closed.
    pub async fn connect_embedded(mut self, engine: &Engine) -> Result<Locks> {
        refuse(self.given_with_urls(), "connect_embedded")?;
        self.router.seeds = engine.addresses();
        let scripts = self.scripts.unwrap_or_else(Scripts::built_in);
        Locks::start(engine.connector(), engine.clock(), scripts, self.settings, self.router).await
    }

    /// Connects from a host of a simulated network. The client's id is drawn from the seeded
    /// randomness that all else is drawn from: two runs that do the same are the same.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`connect_embedded`](Builder::connect_embedded).
    pub async fn connect_from(mut self, host: &Host) -> Result<Locks> {
        refuse(self.given_with_urls(), "connect_from")?;
        self.router.seeds = host.engine().addresses();
        let mut id = [0; 11];
        fastrand::fill(&mut id);
        self.settings.id = Some(id);
        let scripts = self.scripts.unwrap_or_else(Scripts::built_in);
        Locks::start(host.connector(), host.clock(), scripts, self.settings, self.router).await
    }

    /// Takes the scripts from a folder laid out as `lua/`, for trying changed ones without a build,
    /// on servers in this process. What is read stays in memory.
    #[doc(hidden)]
    pub fn scripts_from(mut self, folder: impl AsRef<std::path::Path>) -> std::io::Result<Self> {
        self.scripts = Some(Box::leak(Box::new(Scripts::from_folder(folder.as_ref())?)));
        Ok(self)
    }
}
