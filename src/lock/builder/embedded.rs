//! Connecting to servers in this process.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use super::{ClientBuilder, refuse};
use crate::client::label::ClientLabel;
use crate::embedded::{EmbeddedCluster, SimulatedHost};
use crate::error::Result;
use crate::lock::client::Client;
use crate::locks::lock;
use crate::scripts::Scripts;

impl ClientBuilder {
    /// Connects to servers in this process.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting that is out of range or has
    /// no effect here (URLs, credentials, certificates);
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if all servers are stopped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, open connections are closed.
    pub async fn connect_embedded(mut self, engine: &EmbeddedCluster) -> Result<Client> {
        refuse(self.given_with_urls(), "connect_embedded")?;
        self.router.seeds = engine.addresses();
        Client::start(engine.connector(), engine.clock(), self.settings, self.router).await
    }

    /// Connects from a host of a simulated network.
    ///
    /// The client's id comes from the network's seeded randomness, so a run can be repeated. A
    /// client without a [label](ClientBuilder::label) of its own has no record.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`connect_embedded`](ClientBuilder::connect_embedded).
    pub async fn connect_simulated(mut self, host: &SimulatedHost) -> Result<Client> {
        refuse(self.given_with_urls(), "connect_simulated")?;
        self.router.seeds = host.engine().addresses();
        if self.settings.label == ClientLabel::HostAndPid {
            self.settings.label = ClientLabel::Text(String::new());
        }
        let mut id = [0; 11];
        fastrand::fill(&mut id);
        self.settings.id = Some(id);
        Client::start(host.connector(), host.clock(), self.settings, self.router).await
    }

    /// Reads the scripts from a folder laid out as `lua/`, to try changed scripts without a build.
    /// The text stays in memory, each text once.
    #[doc(hidden)]
    pub fn scripts_from(mut self, folder: impl AsRef<Path>) -> io::Result<Self> {
        static KNOWN: Mutex<Vec<&'static Scripts>> = Mutex::new(Vec::new());
        let read = Scripts::from_folder(folder.as_ref())?;
        let digests = |scripts: &Scripts| {
            scripts.iter().map(|script| script.digest().to_owned()).collect::<Vec<_>>()
        };
        let mut known = lock(&KNOWN);
        let same = known.iter().copied().find(|one| digests(one) == digests(&read));
        self.router.scripts = same.unwrap_or_else(|| {
            let new: &'static Scripts = Box::leak(Box::new(read));
            known.push(new);
            new
        });
        Ok(self)
    }
}
