//! Connecting to servers in this process.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

#[cfg(feature = "__testing")]
use rwlease_core::resp::Address;

use super::{ClientBuilder, refuse};
#[cfg(feature = "__testing")]
use crate::backend::Connector;
use crate::backend::embedded::EmbeddedConnector;
#[cfg(feature = "__testing")]
use crate::client::label::ClientLabel;
#[cfg(feature = "__testing")]
use crate::clock::Clock;
use crate::embedded::EmbeddedCluster;
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
        let connector = Arc::new(EmbeddedConnector::new(engine));
        Client::start(connector, engine.clock(), self.settings, self.router).await
    }

    /// Connects through this connector, by this clock, and with this id. A client without a
    /// [label](ClientBuilder::label) of its own has no record.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`connect_embedded`](ClientBuilder::connect_embedded).
    #[cfg(feature = "__testing")]
    pub(crate) async fn connect_through(
        mut self,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        id: [u8; 11],
        seeds: Vec<Address>,
    ) -> Result<Client> {
        refuse(self.given_with_urls(), "connect_through")?;
        self.router.seeds = seeds;
        if self.settings.label == ClientLabel::HostAndPid {
            self.settings.label = ClientLabel::Text(String::new());
        }
        self.settings.id = Some(id);
        Client::start(connector, clock, self.settings, self.router).await
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
