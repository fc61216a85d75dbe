//! Which client crate the locks under test connect by: the one place where that is chosen.

use rwlease::{Builder, Error, Locks};

/// Names the backend: `redis` or `fred`. Without it, the first one that is compiled in.
const BACKEND: &str = "RWLEASE_BACKEND";

/// A client crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Redis,
    Fred,
}

/// A client with the default settings, by the chosen backend.
pub async fn connect<U: AsRef<str>>(urls: &[U]) -> Result<Locks, Error> {
    Backend::chosen().connect(Locks::builder(), urls).await
}

impl Backend {
    /// The backend for suites that run by any.
    pub fn chosen() -> Backend {
        match std::env::var(BACKEND).as_deref() {
            Ok("redis") => Backend::Redis,
            Ok("fred") => Backend::Fred,
            Ok(other) => panic!("{BACKEND}={other} is no backend"),
            Err(_) if cfg!(feature = "redis") => Backend::Redis,
            Err(_) => Backend::Fred,
        }
    }

    /// Connects with these settings.
    pub async fn connect<U: AsRef<str>>(self, settings: Builder, urls: &[U]) -> Result<Locks, Error> {
        match self {
            #[cfg(feature = "redis")]
            Backend::Redis => settings.servers(urls).connect().await,
            #[cfg(feature = "fred")]
            Backend::Fred => settings.connect_fred(fred_config(urls)).await,
            #[allow(unreachable_patterns)]
            missing => {
                let _ = settings;
                panic!("{missing:?} is not compiled in: see the crate's features")
            }
        }
    }
}

/// What the URLs say, in the terms of `fred`: credentials are the first one's.
#[cfg(feature = "fred")]
pub fn fred_config<U: AsRef<str>>(urls: &[U]) -> fred::types::config::Config {
    use fred::types::config::{Config, ServerConfig};

    let configs: Vec<Config> = urls
        .iter()
        .map(|url| Config::from_url_centralized(url.as_ref()).expect("the URL of a server"))
        .collect();
    let hosts = configs.iter().flat_map(|config| config.server.hosts());
    Config {
        server: ServerConfig::Clustered {
            hosts: hosts.collect(),
            policy: Default::default(),
        },
        ..configs[0].clone()
    }
}
