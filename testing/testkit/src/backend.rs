//! The backend of the locks under test: the one place where it is chosen.

use rwlease::{Client, ClientBuilder, Error};

/// Names the backend: `native`, `redis`, `fred` or `cluster-async`. Without it, the first one that
/// is compiled in.
const BACKEND: &str = "RWLEASE_BACKEND";

/// How locks connect to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Connections of the library's own.
    Native,
    Redis,
    Fred,
    /// The cluster connection of the `redis` crate, as applications use it.
    ClusterAsync,
}

/// A client with the default settings, by the chosen backend.
pub async fn connect<U: AsRef<str>>(urls: &[U]) -> Result<Client, Error> {
    Backend::chosen().connect(Client::builder(), urls).await
}

/// Connects settings by the chosen backend.
pub trait ConnectBuilder {
    /// Connects to the deployment of these servers.
    fn connect_to<U: AsRef<str> + Sync>(
        self,
        urls: &[U],
    ) -> impl Future<Output = Result<Client, Error>> + Send;
}

impl ConnectBuilder for ClientBuilder {
    async fn connect_to<U: AsRef<str> + Sync>(self, urls: &[U]) -> Result<Client, Error> {
        Backend::chosen().connect(self, urls).await
    }
}

impl Backend {
    /// The backend for suites that run with any.
    pub fn chosen() -> Backend {
        match std::env::var(BACKEND).as_deref() {
            Ok("native") => Backend::Native,
            Ok("redis") => Backend::Redis,
            Ok("fred") => Backend::Fred,
            Ok("cluster-async") => Backend::ClusterAsync,
            Ok(other) => panic!("{BACKEND}={other} is no backend"),
            Err(_) if cfg!(feature = "native") => Backend::Native,
            Err(_) if cfg!(feature = "redis") => Backend::Redis,
            Err(_) => Backend::Fred,
        }
    }

    /// Connects with these settings.
    pub async fn connect<U: AsRef<str>>(
        self,
        settings: ClientBuilder,
        urls: &[U],
    ) -> Result<Client, Error> {
        match self {
            #[cfg(feature = "native")]
            Backend::Native => settings.urls(urls).connect().await,
            #[cfg(feature = "redis")]
            Backend::Redis => settings.urls(urls).connect_redis().await,
            #[cfg(feature = "fred")]
            Backend::Fred => settings.connect_fred(fred_config(urls)).await,
            #[cfg(feature = "cluster-async")]
            Backend::ClusterAsync => settings.connect_shared(cluster_connection(urls).await),
            #[allow(unreachable_patterns)]
            missing => {
                let _ = (settings, urls);
                panic!("{missing:?} is not compiled in: see the crate's features")
            }
        }
    }
}

/// Each setting that applies only to URLs, with its name: other ways to connect refuse them.
#[cfg(any(feature = "native", feature = "redis"))]
pub fn url_only_settings() -> [(&'static str, ClientBuilder); 5] {
    let settings = Client::builder;
    [
        ("urls", settings().urls(["redis://127.0.0.1:1"])),
        (
            "sentinel",
            settings().sentinel(rwlease::SentinelConfig::new("mymaster").node("127.0.0.1:1")),
        ),
        ("credentials", settings().credentials(rwlease::Credentials::password("secret"))),
        ("tls_root_certificates", settings().tls_root_certificates("PEM")),
        ("tls_client_identity", settings().tls_client_identity("PEM", "PEM")),
    ]
}

/// Set up as `docs/backends.md` recommends.
#[cfg(feature = "cluster-async")]
pub async fn cluster_connection<U: AsRef<str>>(
    urls: &[U],
) -> redis::cluster_async::ClusterConnection {
    let urls = urls.iter().map(|url| url.as_ref().to_owned());
    let client = redis::cluster::ClusterClientBuilder::new(urls)
        .response_timeout(std::time::Duration::from_secs(1))
        .overall_response_timeout(Some(std::time::Duration::from_secs(3)))
        .connection_timeout(std::time::Duration::from_secs(1));
    let connection = client.build().expect("URLs of servers").get_async_connection().await;
    connection.expect("a cluster")
}

/// Converts URLs for `fred`, with the credentials of the first one.
#[cfg(feature = "fred")]
pub fn fred_config<U: AsRef<str>>(urls: &[U]) -> fred::types::config::Config {
    use fred::types::config::{Config, ServerConfig};

    let configs: Vec<Config> = urls
        .iter()
        .map(|url| Config::from_url_centralized(url.as_ref()).expect("the URL of a server"))
        .collect();
    let hosts = configs.iter().flat_map(|config| config.server.hosts());
    Config {
        server: ServerConfig::Clustered { hosts: hosts.collect(), policy: Default::default() },
        ..configs[0].clone()
    }
}
