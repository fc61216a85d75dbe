//! Connecting to servers in this process.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::{Builder, refuse};
use crate::embedded::{EmbeddedCluster, SimulatedHost};
use crate::error::Result;
use crate::lock::client::Locks;
use crate::protocol::Scripts;

impl Builder {
    /// Connects to servers in this process.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting that is out of range or has no effect
    /// here (URLs, credentials, the client's name, certificates);
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if all servers are stopped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, what was opened is closed.
    pub async fn connect_embedded(mut self, engine: &EmbeddedCluster) -> Result<Locks> {
        refuse(self.given_with_urls(), "connect_embedded")?;
        self.router.seeds = engine.addresses();
        let scripts = self.scripts.unwrap_or_else(Scripts::embedded);
        Locks::start(engine.connector(), engine.clock(), scripts, self.settings, self.router).await
    }

    /// Connects from a host of a simulated network. The client's id comes from the network's seeded
    /// randomness, so a run can be repeated.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`connect_embedded`](Builder::connect_embedded).
    pub async fn connect_from(mut self, host: &SimulatedHost) -> Result<Locks> {
        refuse(self.given_with_urls(), "connect_from")?;
        self.router.seeds = host.engine().addresses();
        let mut id = [0; 11];
        fastrand::fill(&mut id);
        self.settings.id = Some(id);
        let scripts = self.scripts.unwrap_or_else(Scripts::embedded);
        Locks::start(host.connector(), host.clock(), scripts, self.settings, self.router).await
    }

    /// Reads the scripts from a folder laid out as `lua/`, to try changed scripts on servers in
    /// this process without a build. The text stays in memory, each text once.
    #[doc(hidden)]
    pub fn scripts_from(mut self, folder: impl AsRef<Path>) -> io::Result<Self> {
        static KNOWN: Mutex<Vec<&'static Scripts>> = Mutex::new(Vec::new());
        let read = Scripts::from_folder(folder.as_ref())?;
        let digests = |scripts: &Scripts| scripts.all().map(|script| script.digest.clone());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.iter().copied().find(|one| digests(one) == digests(&read));
        self.scripts = Some(same.unwrap_or_else(|| {
            let new: &'static Scripts = Box::leak(Box::new(read));
            known.push(new);
            new
        }));
        Ok(self)
    }
}
