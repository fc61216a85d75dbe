//! What a user reads when something is wrong with the servers, the network or the settings: the
//! kind of the error, words that it must say, and words that would mislead. Each ends in bounded
//! time, and says nothing twice.
//!
//! `RWLEASE_ERRORS=FILE` appends all texts to a file.

use std::error::Error as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use rwlease::ErrorKind::{
    self, InvalidInput, LeaseLost, LeaseRevoked, Rejected, TimedOut, Unavailable, WrongType,
};
use rwlease::{Client, ClientBuilder, Error, RenewalPolicy};
use testkit::{
    Cluster, ClusterConfig, Fake, PollLimit, Proxy, ProxyFlow, SentinelConfigForTest,
    SentinelDeployment, Server, ServerSettings, StandaloneServer, error_chain,
};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// No situation may take longer, on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// One client's patience.
const PATIENCE: Duration = Duration::from_secs(3);

type Outcome = rwlease::Result<()>;

/// The situations that were tried, and what was wrong with their errors.
#[derive(Default)]
struct Table {
    faults: Vec<String>,
}

impl Table {
    /// Tries each situation: its name, the kind of its error, the words that the error or its
    /// sources must say, the words that they must not say (both separated by `, `), and what to
    /// pass to the attempt.
    async fn rows<T, const N: usize>(
        &mut self,
        attempt: impl AsyncFn(T) -> Outcome,
        rows: [(&str, ErrorKind, &str, &str, T); N],
    ) {
        for (name, kind, says, never, to) in rows {
            self.row(name, kind, says, never, attempt(to)).await;
        }
    }

    /// Tries one situation.
    async fn row(
        &mut self,
        name: &str,
        kind: ErrorKind,
        says: &str,
        never: &str,
        attempt: impl Future<Output = Outcome>,
    ) {
        let began = Instant::now();
        let Ok(outcome) = timeout(BOUND, attempt).await else {
            self.faults.push(format!("{}: it did not end", name));
            return;
        };
        let Err(error) = outcome else {
            record(name, began.elapsed(), "no error");
            self.faults.push(format!("{}: no error", name));
            return;
        };
        let text = error_chain(&error);
        record(name, began.elapsed(), &format!("{:?}: {text}", error.kind()));
        let missing = says.split(", ").filter(|word| !text.contains(*word));
        let misleading = never.split_terminator(", ").filter(|word| text.contains(*word));
        let faults: Vec<String> = missing
            .map(|word| format!("does not say {word:?}"))
            .chain(misleading.map(|word| format!("says {word:?}")))
            .chain((error.kind() != kind).then(|| format!("is {:?}", error.kind())))
            .collect();
        let faults: Vec<String> = faults.into_iter().chain(repetitions(&error)).collect();
        if !faults.is_empty() {
            self.faults.push(format!("{}: {} in {text:?}", name, faults.join(", ")));
        }
    }

    fn end(self) {
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
    }
}

/// The texts in the chain that repeat what one before them says.
fn repetitions(error: &Error) -> Vec<String> {
    let words = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let mut said = words(&error.to_string());
    let mut faults = Vec::new();
    let mut source = error.source();
    while let Some(inner) = source {
        let text = words(&inner.to_string());
        if said.contains(&text) {
            faults.push(format!("repeats {:?}", inner.to_string()));
        }
        said += &text;
        source = inner.source();
    }
    faults
}

fn record(name: &str, took: Duration, text: &str) {
    let Some(file) = std::env::var_os("RWLEASE_ERRORS") else {
        return;
    };
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    writeln!(file, "{name}\t{:.1} s\t{text}", took.as_secs_f64()).unwrap();
}

fn settings() -> ClientBuilder {
    Client::builder().call_timeout(PATIENCE)
}

async fn connect(urls: &[String]) -> rwlease::Result<Client> {
    settings().urls(urls).connect().await
}

async fn connect_to(url: String) -> Outcome {
    connect(&[url]).await.map(drop)
}

/// Connects, and takes a lock.
async fn lock_at(url: String) -> Outcome {
    let locks = connect(&[url]).await?;
    locks.rwlock("order")?.write().timeout(PATIENCE).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_without_a_server_error_names_the_cause() {
    let mut table = Table::default();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let http = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let http = Fake::answering(http).await.unwrap();
    let smtp = Fake::greeting("220 mail.example.com ESMTP\r\n").await.unwrap();
    let silent = Fake::start(|_| Vec::new()).await.unwrap();
    let closes = Fake::greeting("").await.unwrap();
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
    let nowhere = format!("redis://{closed}");
    let nobody = "redis://no-such-host.invalid:6379".to_owned();
    let bus = format!("redis://127.0.0.1:{}", cluster.node(0).bus_port());
    let no_reply = "no reply within 1s, connect_timeout";
    let rows = [
        ("nothing listens", Unavailable, "127.0.0.1:, refused", "TLS", nowhere),
        ("an unknown name", Unavailable, "no-such-host.invalid, resolve", "TLS", nobody),
        ("an HTTP port", Unavailable, "speaks HTTP", "TLS, makes no sense", http.url()),
        ("another protocol", Unavailable, "220 mail.example.com ESMTP", "TLS", smtp.url()),
        ("a port that says nothing", Unavailable, no_reply, "TLS", silent.url()),
        ("a port that closes", Unavailable, "expects TLS, cluster bus", "", closes.url()),
        ("the port of a cluster bus", Unavailable, "cluster bus", "", bus),
    ];
    table.rows(connect_to, rows).await;
    table.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_to_a_server_of_another_kind_error_names_it() {
    let mut table = Table::default();
    let watch =
        SentinelConfigForTest { replicas: 1, sentinels: 1, ..SentinelConfigForTest::default() };
    let watched = SentinelDeployment::start_with(watch).await.unwrap();
    let sentinel = watched.sentinels()[0].url();
    let replica = watched.server(1).url();
    let rows = [
        ("a sentinel", InvalidInput, "is a sentinel, redis+sentinel://", "time, NOPERM", sentinel),
        ("a replica", Unavailable, "READONLY, replica", "TLS", replica),
    ];
    table.rows(lock_at, rows).await;

    let by_sentinel = |server: &Server, name: &str| {
        format!("{}/{name}", server.url().replace("redis://", "redis+sentinel://"))
    };
    let nobody = by_sentinel(&watched.sentinels()[0], "nobody");
    let server = by_sentinel(watched.server(0), "mymaster");
    // (The test support itself begins without HELLO.)
    let old = ServerSettings::default().line("rename-command HELLO \"\"");
    let old = StandaloneServer::start_with(old).await.unwrap();
    let proxy = Fake::repeating("-NOPROTO unsupported protocol version\r\n").await.unwrap();
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
    let first = format!("{}/1", cluster.node(0).url());
    let single = StandaloneServer::start().await.unwrap();
    let last = format!("{}/99", single.url());
    let node = ServerSettings { cluster: true, ..ServerSettings::default() };
    let empty = Server::start(&node).await.unwrap();
    let renamed = Server::start(&node.line("rename-command CLUSTER OTHER")).await.unwrap();
    renamed.run_words::<()>("OTHER ADDSLOTSRANGE 0 16383").await.unwrap();
    let rows = [
        ("a sentinel without that master", InvalidInput, "nobody", "TLS", nobody),
        ("a server as a sentinel", Unavailable, "is not a sentinel", "TLS", server),
        ("a server without RESP3", Rejected, "RESP3, 6.2", "TLS", old.url()),
        ("a proxy without RESP3", Rejected, "RESP3, NOPROTO", "TLS", proxy.url()),
        ("a database of a cluster", InvalidInput, "database 1, cluster", "TLS", first),
        ("a database that is not there", InvalidInput, "database 99", "TLS", last),
        ("a node with CLUSTER renamed", Rejected, "CLUSTER, renamed", "TLS", renamed.url()),
        ("a cluster without slots", Unavailable, "no master of any slot", "TLS", empty.url()),
    ];
    table.rows(connect_to, rows).await;
    table.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_rejected_by_the_server_error_says_why() {
    let mut table = Table::default();
    let locked = ServerSettings::default().password("right-one");
    let locked = StandaloneServer::start_with(locked).await.unwrap();
    let wrong = format!("redis://:hunter2@{}", locked.address());
    let none = format!("redis://{}", locked.address());
    let full =
        StandaloneServer::start_with(ServerSettings::default().line("maxclients 1")).await.unwrap();
    let wait_limit = PollLimit::new("the only connection");
    let _only = loop {
        match full.connect().await {
            Ok(connection) => break connection,
            Err(error) => wait_limit.pause(error).await.unwrap(),
        }
    };
    let protected = Fake::greeting(
        "-DENIED Redis is running in protected mode because protected mode is enabled and no password \
         is set for the default user.\r\n",
    );
    let protected = protected.await.unwrap();
    let busy = loading().await;
    let booting = Fake::repeating("-LOADING Redis is loading the dataset in memory\r\n");
    let booting = booting.await.unwrap();
    let too_many = "max number of clients reached";
    let denied = "DENIED Redis is running in protected mode";
    let own_words = "TLS, waiting for one, asked for it";
    let rows = [
        ("a wrong password", Rejected, "WRONGPASS, password", "hunter2, TLS", wrong),
        ("no password", Rejected, "NOAUTH, authentication failed", "TLS", none),
        ("maxclients", Unavailable, too_many, own_words, full.url()),
        ("protected mode", Rejected, denied, own_words, protected.url()),
        ("a server that loads its data", Unavailable, "LOADING", "TLS, refused", busy.url()),
        ("one that refuses even HELLO", Unavailable, "LOADING", "TLS, refused", booting.url()),
    ];
    table.rows(connect_to, rows).await;
    table.end();
}

/// A server that needs half a minute to load its keys.
async fn loading() -> StandaloneServer {
    let settings = ServerSettings::default()
        .line("key-load-delay 3000")
        .line("loading-process-events-interval-bytes 1024");
    let server = StandaloneServer::start_with(settings).await.unwrap();
    server.run_words::<()>("DEBUG POPULATE 9000").await.unwrap();
    server.run_words::<()>("SAVE").await.unwrap();
    server.restart().await.unwrap();
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_at_an_unreachable_announced_address_error_names_it() {
    let mut table = Table::default();
    for (name, line, says) in [
        (
            "an announced port where nothing listens",
            "cluster-announce-port 1",
            "127.0.0.1:1, announced by 127.0.0.1:, address_translator, cluster-announce",
        ),
        (
            "an announced name that only the cluster knows",
            "cluster-announce-hostname node-0.invalid\ncluster-preferred-endpoint-type hostname",
            "node-0.invalid, announced by 127.0.0.1:, address_translator, cluster-announce",
        ),
    ] {
        let cluster = Cluster::start_with(ClusterConfig::of(1, 0).line(line)).await.unwrap();
        table.row(name, Unavailable, says, "TLS", lock_at(cluster.node(0).url())).await;
    }
    table.end();
}

#[cfg(feature = "tls")]
mod tls {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    };

    use super::*;
    use testkit::Certificates;

    /// An authority, and a certificate of it for this name.
    fn certificates(name: &str, has_expired: bool) -> Certificates {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority
            .distinguished_name
            .push(DnType::CommonName, format!("authority of {}", fastrand::u64(..)));
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = authority.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(authority, key);
        let key = KeyPair::generate().unwrap();
        let mut own = CertificateParams::new(vec![name.into()]).unwrap();
        if has_expired {
            own.not_after = date_time_ymd(2000, 1, 1);
        }
        Certificates {
            authority: root,
            certificate: own.signed_by(&key, &issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    async fn server(certificates: &Certificates, line: &str) -> StandaloneServer {
        let tls = Some(certificates.clone());
        let settings = ServerSettings { tls, ..ServerSettings::default() };
        StandaloneServer::start_with(settings.line(line)).await.unwrap()
    }

    async fn connect((port, authority): (u16, String)) -> Outcome {
        let url = format!("rediss://127.0.0.1:{port}");
        settings().tls_root_certificates(authority).urls([url]).connect().await.map(drop)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn connect_with_failing_tls_error_says_why() {
        let mut table = Table::default();
        let [good, other, old, elsewhere] = [
            certificates("127.0.0.1", false),
            certificates("127.0.0.1", false),
            certificates("127.0.0.1", true),
            certificates("redis.example.com", false),
        ];
        let plain = server(&good, "").await;
        let expired = server(&old, "").await;
        let wrong = server(&elsewhere, "").await;
        let strict = server(&good, "tls-auth-clients yes").await;
        let at = |server: &StandaloneServer, certificates: &Certificates| {
            (server.tls_port().unwrap(), certificates.authority.clone())
        };
        let (unknown, expired) = (at(&plain, &other), at(&expired, &old));
        let (wrong, anonymous) = (at(&wrong, &elsewhere), at(&strict, &good));
        let plaintext = (plain.port(), good.authority.clone());
        let (foreign, other_name) =
            ("UnknownIssuer, tls_root_certificates", "not valid for name, redis.example.com");
        let no_identity = "CertificateRequired, tls_client_identity";
        let no_tls = "check that the port speaks TLS";
        let misleads = "password, speaks TLS";
        let rows = [
            ("an unknown authority", Rejected, foreign, misleads, unknown),
            ("an expired certificate", Rejected, "expired", misleads, expired),
            ("a certificate for another name", Rejected, other_name, misleads, wrong),
            ("no certificate of the client", Rejected, no_identity, misleads, anonymous),
            ("TLS to a plain port", Unavailable, no_tls, "password", plaintext),
        ];
        table.rows(connect, rows).await;
        let url = format!("redis://127.0.0.1:{}", plain.tls_port().unwrap());
        table.row("no TLS to a TLS port", Unavailable, "TLS", "password", connect_to(url)).await;
        table.end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_that_the_server_cannot_grant_error_says_why() {
    let mut table = Table::default();
    let server = StandaloneServer::start().await.unwrap();
    let locks = connect(&[server.url()]).await.unwrap();
    let lock = locks.rwlock("order").unwrap();
    let take = async || lock.write().timeout(PATIENCE).await.map(drop);
    take().await.unwrap();
    server.run_words::<()>("CONFIG SET maxmemory 1").await.unwrap();
    table.row("a full memory", Rejected, "memory is full, OOM", "TLS, right", take()).await;
    server.run_words::<()>("CONFIG SET maxmemory 0").await.unwrap();
    server.run_words::<()>("CONFIG SET min-replicas-to-write 1").await.unwrap();
    table.row("too few replicas", Unavailable, "NOREPLICAS", "TLS, refused", take()).await;
    server.run_words::<()>("CONFIG SET min-replicas-to-write 0").await.unwrap();
    server.run_words::<()>("SET rwlease:text value").await.unwrap();
    server.run_words::<()>("HSET rwlease:hash field value").await.unwrap();
    let other_type = "another type, WRONGTYPE, `text`";
    let rows = [
        ("a key of another type", WrongType, other_type, "TLS", "text"),
        ("a hash that is no lock", WrongType, "not a lock, LOCKTYPE", "TLS", "hash"),
    ];
    table.rows(async |name| locks.rwlock(name)?.write().await.map(drop), rows).await;
    // (`tests/faults/secure.rs` has the rights to commands.)
    let locker = "ACL SETUSER locker on >a-password ~other:* &* +@all";
    server.run_words::<()>(locker).await.unwrap();
    let locker = lock_at(format!("redis://locker:a-password@{}", server.address()));
    table.row("no right to the key", Rejected, "key", "TLS, a-password", locker).await;
    let held = lock.write().await.unwrap();
    let timed_out = async { lock.write().timeout(Duration::from_millis(300)).await.map(drop) };
    table.row("a lock that is held", TimedOut, "`order`", "TLS, connection", timed_out).await;
    let _ = held.release().await.unwrap();
    let too_long = async { lock.write().lease(Duration::from_secs(1 << 40)).await.map(drop) };
    table.row("a lease that is too long", InvalidInput, "lease, must be", "TLS", too_long).await;
    server.freeze().unwrap();
    let says = "no reply within, 127.0.0.1:";
    table.row("a server that is stopped", Unavailable, says, "TLS, refused", take()).await;
    server.kill().unwrap();
    table.row("a server that is gone", Unavailable, "refused, 127.0.0.1:", "TLS", take()).await;
    table.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_over_slow_round_trips_error_names_the_timeout() {
    let mut table = Table::default();
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    // A round trip takes longer than `response_timeout`.
    proxy.replies(ProxyFlow::Slow(Duration::from_millis(700)));
    let (says, never) = ("no reply within 1s, connect_timeout", "TLS, response_timeout");
    table.row("a slow opening", Unavailable, says, never, connect_to(proxy.url())).await;
    let patient = || settings().connect_timeout(Duration::from_secs(20)).urls([proxy.url()]);
    let write = async {
        let locks = patient().connect().await.expect("connect_timeout is long enough");
        locks.rwlock("order")?.write().timeout(PATIENCE).await.map(drop)
    };
    let (says, never) = ("no reply within 500ms, response_timeout", "TLS, connect_timeout");
    table.row("a slow call", Unavailable, says, never, write).await;
    let locks = patient().response_timeout(Duration::from_secs(20)).connect().await.unwrap();
    let taken = timeout(BOUND, locks.rwlock("order").unwrap().write()).await.unwrap().unwrap();
    assert!(taken.is_held());
    table.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_or_revoked_lease_error_says_why() {
    let mut table = Table::default();
    let server = StandaloneServer::start().await.unwrap();
    let locks = connect(&[server.url()]).await.unwrap();
    let lock = locks.rwlock("order").unwrap();
    let short = || lock.write().lease(Duration::from_secs(2));
    table
        .row("a lease that was forced open", LeaseLost, "lost", "TLS", async {
            let guard = lock.write().await?;
            lock.force_release().await?;
            guard.ended().await;
            guard.downgrade().await.map(drop)
        })
        .await;
    table
        .row("a lease that was revoked", LeaseRevoked, "revoked", "TLS", async {
            let guard = lock.write().await?;
            lock.revoke().await?;
            guard.renew().await
        })
        .await;
    table
        .row("a lease that was not renewed", LeaseLost, "lost", "TLS", async {
            let guard = short().renewal(RenewalPolicy::Manual).await?;
            guard.ended().await;
            guard.renew().await
        })
        .await;
    table
        .row("a server that lost its data", LeaseLost, "lost", "TLS", async {
            let guard = lock.write().await?;
            server.restart().await.unwrap();
            guard.renew().await
        })
        .await;
    table
        .row("a lease of a server that is stopped", LeaseLost, "lost", "TLS", async {
            let guard = short().await?;
            server.freeze().unwrap();
            guard.ended().await;
            server.thaw().unwrap();
            guard.renew().await
        })
        .await;
    table.end();
}
