//! A server with replicas that sentinels watch, all of them local processes.

use std::time::Duration;

use futures::future::try_join_all;
use redis::Value;
use tokio::time::sleep;

use super::server_limit::acquire_server_slots;
use super::{Error, PollLimit, Result, Server, ServerSettings};

/// The name by which the sentinels know the master.
const NAME: &str = "mymaster";

/// The number of servers and sentinels, and their settings.
#[derive(Clone, Debug)]
pub struct SentinelConfigForTest {
    pub replicas: usize,
    pub sentinels: usize,
    /// After how much silence a sentinel considers a server dead.
    pub down_after: Duration,
    pub servers: ServerSettings,
    pub sentinel_settings: ServerSettings,
}

impl Default for SentinelConfigForTest {
    fn default() -> Self {
        SentinelConfigForTest {
            replicas: 1,
            sentinels: 3,
            // A busy machine must not be considered dead.
            down_after: Duration::from_secs(4),
            servers: ServerSettings::default(),
            sentinel_settings: ServerSettings::default(),
        }
    }
}

/// Servers and sentinels have fixed numbers. At first the first server is the master.
#[derive(Debug)]
pub struct SentinelDeployment {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl SentinelDeployment {
    /// A master, a replica and three sentinels.
    pub async fn start() -> Result<SentinelDeployment> {
        Self::start_with(SentinelConfigForTest::default()).await
    }

    /// Starts them, and waits until they all know each other.
    pub async fn start_with(watch: SentinelConfigForTest) -> Result<SentinelDeployment> {
        acquire_server_slots(1 + watch.replicas + watch.sentinels).await;
        let settings = ServerSettings { cluster: false, ..watch.servers.clone() };
        let servers = (0..=watch.replicas).map(|_| Server::start(&settings));
        let servers = try_join_all(servers).await?;
        let (host, port) = (servers[0].host(), watched_port(&servers[0]));
        for replica in &servers[1..] {
            replica.run_words::<()>(&format!("REPLICAOF {host} {port}")).await?;
        }
        wait_replicas_synced(&servers[0], watch.replicas).await?;
        let settings = watch.sentinel_settings(host, port);
        let sentinels = (0..watch.sentinels).map(|_| Server::start(&settings));
        let sentinels = SentinelDeployment { servers, sentinels: try_join_all(sentinels).await? };
        sentinels.agree().await?;
        Ok(sentinels)
    }

    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number]
    }

    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    pub fn sentinel(&self, number: usize) -> &Server {
        &self.sentinels[number]
    }

    /// The URL of all sentinels.
    pub fn url(&self) -> String {
        self.url_of(&self.sentinels, NAME)
    }

    /// The URL of some of them, for a master of this name.
    pub fn url_of(&self, sentinels: &[Server], name: &str) -> String {
        let user = self.servers[0].password().map(|password| format!(":{password}@"));
        let user = user.unwrap_or_default();
        let addresses = |port: fn(&Server) -> u16| {
            let all = sentinels.iter().map(|one| format!("{}:{}", one.host(), port(one)));
            all.collect::<Vec<_>>().join(",")
        };
        match sentinels[0].tls_port() {
            Some(_) => format!("rediss+sentinel://{user}{}/{name}", addresses(watched_port)),
            None => format!("redis+sentinel://{user}{}/{name}", addresses(Server::port)),
        }
    }

    /// The number of the master, once all running sentinels report the same.
    pub async fn master(&self) -> Result<usize> {
        let wait_limit = PollLimit::new("the sentinels to name one master");
        wait_limit.until_ok(|| self.reported_master()).await
    }

    /// Orders a sentinel to promote a replica, waits until all agree, and returns the new master's
    /// number.
    pub async fn fail_over(&self) -> Result<usize> {
        let old = self.master().await?;
        let wait_limit = PollLimit::new("a failover by order to begin");
        let order = format!("SENTINEL FAILOVER {NAME}");
        // A sentinel knows no good replica until it has heard from one.
        wait_limit.until_ok(|| self.running()[0].run_words::<()>(&order)).await?;
        let new = self.new_master(old).await?;
        self.agree().await?;
        Ok(new)
    }

    /// Waits until all running sentinels name another master than `old`, and returns its number.
    pub async fn new_master(&self, old: usize) -> Result<usize> {
        let wait_limit = PollLimit::new(format!("another master than server {old}"));
        let other = || async {
            match self.reported_master().await? {
                number if number != old => Ok(number),
                _ => Err(Error::new("it is still the master")),
            }
        };
        wait_limit.until_ok(other).await
    }

    /// Closes every client's connections at the master, repeatedly, but not those of the sentinels.
    pub async fn storm(&self, rounds: usize, pause: Duration) -> Result<u64> {
        let master = self.server(self.master().await?);
        let mut killed = 0;
        for _ in 0..rounds {
            for kind in ["normal", "pubsub"] {
                let clients: String = master.run_words(&format!("CLIENT LIST TYPE {kind}")).await?;
                let others = clients.lines().filter(|line| !line.contains(" name=sentinel-"));
                let ids = others.filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
                for id in ids {
                    let was_there: u64 = master.run_words(&format!("CLIENT KILL ID {id}")).await?;
                    killed += was_there;
                }
            }
            sleep(pause).await;
        }
        Ok(killed)
    }

    /// Waits until all running processes know each other, the master, and its replicas, which are
    /// in step.
    pub async fn agree(&self) -> Result {
        PollLimit::new("servers and sentinels to agree").until_ok(|| self.check()).await
    }

    async fn check(&self) -> Result {
        let master = self.reported_master().await?;
        let mut replicas = 0;
        for (number, server) in self.servers.iter().enumerate().filter(|(_, one)| one.is_running())
        {
            let role = server.info("replication").await?.remove("role").unwrap_or_default();
            if (number == master) != (role == "master") {
                return Err(Error::new(format!("server {number} is a {role}")));
            }
            replicas += usize::from(number != master);
        }
        replicas_synced(&self.servers[master], replicas).await?;
        for sentinel in self.running() {
            let state = state(sentinel).await?;
            let number = |name| field(&state, name).and_then(|digits| digits.parse().ok());
            let known: (Option<usize>, Option<usize>) =
                (number("num-slaves"), number("num-other-sentinels"));
            let is_known = known.0 >= Some(replicas) && known.1 == Some(self.sentinels.len() - 1);
            if !is_known || field(&state, "flags") != Some("master".into()) {
                return Err(Error::new(format!("a sentinel says {state:?}")));
            }
        }
        Ok(())
    }

    fn running(&self) -> Vec<&Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_running()).collect()
    }

    async fn reported_master(&self) -> Result<usize> {
        let order = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}");
        let mut named = Vec::new();
        for sentinel in self.running() {
            let (host, port): (String, u16) = sentinel.run_words(&order).await?;
            named.push((host, port));
        }
        named.sort();
        named.dedup();
        let is_named = |server: &Server| {
            named.iter().all(|(host, port)| host == server.host() && *port == watched_port(server))
        };
        match self.servers.iter().position(is_named) {
            Some(number) if !named.is_empty() => Ok(number),
            _ => Err(Error::new(format!("the sentinels name {named:?}"))),
        }
    }
}

impl SentinelConfigForTest {
    pub fn of(replicas: usize) -> SentinelConfigForTest {
        SentinelConfigForTest { replicas, ..SentinelConfigForTest::default() }
    }

    fn sentinel_settings(&self, host: &str, port: u16) -> ServerSettings {
        let quorum = self.sentinels / 2 + 1;
        let down_after = self.down_after.as_millis();
        let mut settings = ServerSettings { sentinel: true, ..self.sentinel_settings.clone() };
        let lines = [
            format!("sentinel monitor {NAME} {host} {port} {quorum}"),
            format!("sentinel down-after-milliseconds {NAME} {down_after}"),
            // A sentinel waits for twice this after a failed attempt.
            format!("sentinel failover-timeout {NAME} {down_after}"),
        ];
        settings.lines.extend(lines);
        if let Some(password) = &self.servers.password {
            settings.lines.push(format!("sentinel auth-pass {NAME} {password}"));
        }
        settings
    }
}

/// The port by which others know the server.
fn watched_port(server: &Server) -> u16 {
    server.tls_port().unwrap_or(server.port())
}

async fn wait_replicas_synced(master: &Server, replicas: usize) -> Result {
    let wait_limit = PollLimit::new(format!("{replicas} replicas to be in step"));
    wait_limit.until_ok(|| replicas_synced(master, replicas)).await
}

async fn replicas_synced(master: &Server, replicas: usize) -> Result {
    match master.replicas_in_step().await? {
        online if online == replicas => Ok(()),
        online => Err(Error::new(format!("{online} replicas are in step"))),
    }
}

/// What a sentinel says of the master.
async fn state(sentinel: &Server) -> Result<Value> {
    sentinel.run_words(&format!("SENTINEL MASTER {NAME}")).await
}

fn field(state: &Value, name: &str) -> Option<String> {
    let words: Vec<String> = redis::from_redis_value(state.clone()).ok()?;
    let mut pairs = words.chunks_exact(2);
    pairs.find(|pair| pair[0] == name).map(|pair| pair[1].clone())
}
