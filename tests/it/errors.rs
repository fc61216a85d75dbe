//! What a user reads when something is wrong with the servers, the network or the settings: the
//! kind of the error, words that it must say, and words that would mislead. Each ends in bounded
//! time.
//!
//! `RWLEASE_ERRORS=FILE` appends all texts to a file.

use std::error::Error as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use crate::support::{
    Cluster, ClusterConfig, Fake, PollLimit, Proxy, ProxyFlow, SentinelConfigForTest,
    SentinelDeployment, Server, ServerSettings, StandaloneServer,
};
use rwlease::ErrorKind::{self, Foreign, Invalid, Lost, Refused, Revoked, TimedOut, Unavailable};
use rwlease::{Builder, Error, Locks, RenewalPolicy};
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
    /// Tries it. The error must have this kind; it or its sources must say the words of `says`, and
    /// none of `never`.
    async fn row(
        &mut self,
        name: &str,
        kind: ErrorKind,
        says: &[&str],
        never: &[&str],
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
        let text = chain(&error);
        record(name, began.elapsed(), &format!("{:?}: {text}", error.kind()));
        let missing = says.iter().filter(|word| !text.contains(**word));
        let misleading = never.iter().filter(|word| text.contains(**word));
        let faults: Vec<String> = missing
            .map(|word| format!("does not say {word:?}"))
            .chain(misleading.map(|word| format!("says {word:?}")))
            .chain((error.kind() != kind).then(|| format!("is {:?}", error.kind())))
            .collect();
        if !faults.is_empty() {
            self.faults.push(format!("{}: {} in {text:?}", name, faults.join(", ")));
        }
    }

    fn end(self) {
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
    }
}

/// The texts of an error and of its sources, which is what most programs print.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

fn record(name: &str, took: Duration, text: &str) {
    let Some(file) = std::env::var_os("RWLEASE_ERRORS") else {
        return;
    };
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    writeln!(file, "{name}\t{:.1} s\t{text}", took.as_secs_f64()).unwrap();
}

fn settings() -> Builder {
    Locks::builder().call_timeout(PATIENCE)
}

async fn connect(urls: &[String]) -> rwlease::Result<Locks> {
    settings().servers(urls).connect().await
}

async fn connect_to(url: impl Into<String>) -> Outcome {
    connect(&[url.into()]).await.map(drop)
}

/// Connects, and takes a lock.
async fn lock_at(url: impl Into<String>) -> Outcome {
    let locks = connect(&[url.into()]).await?;
    locks.rwlock("order")?.write().timeout(PATIENCE).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_without_a_server_error_names_the_cause() {
    let mut table = Table::default();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    table
        .row(
            "nothing listens",
            Unavailable,
            &["127.0.0.1:", "refused"],
            &["TLS"],
            connect_to(format!("redis://{closed}")),
        )
        .await;
    table
        .row(
            "a name that does not resolve",
            Unavailable,
            &["no-such-host.invalid", "resolve"],
            &["TLS"],
            connect_to("redis://no-such-host.invalid:6379"),
        )
        .await;
    let http = Fake::answering(
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    let http = http.await.unwrap();
    table
        .row(
            "an HTTP port",
            Unavailable,
            &["speaks HTTP"],
            &["TLS", "makes no sense"],
            connect_to(http.url()),
        )
        .await;
    let smtp = Fake::greeting("220 mail.example.com ESMTP\r\n").await.unwrap();
    table
        .row(
            "the port of another protocol",
            Unavailable,
            &["220 mail.example.com ESMTP"],
            &["TLS"],
            connect_to(smtp.url()),
        )
        .await;
    let silent = Fake::start(|_| Vec::new()).await.unwrap();
    table
        .row(
            "a port that says nothing",
            Unavailable,
            &["no reply within 1s", "connect_timeout"],
            &["TLS"],
            connect_to(silent.url()),
        )
        .await;
    let closes = Fake::greeting("").await.unwrap();
    table
        .row(
            "a port that closes connections",
            Unavailable,
            &["expect TLS", "cluster bus"],
            &[],
            connect_to(closes.url()),
        )
        .await;
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
    let bus = cluster.node(0).bus_port();
    table
        .row(
            "the port of a cluster bus",
            Unavailable,
            &["cluster bus"],
            &[],
            connect_to(format!("redis://127.0.0.1:{bus}")),
        )
        .await;
    table.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_to_a_server_of_another_kind_error_names_it() {
    let mut table = Table::default();
    let watch =
        SentinelConfigForTest { replicas: 1, sentinels: 1, ..SentinelConfigForTest::default() };
    let watched = SentinelDeployment::start_with(watch).await.unwrap();
    let sentinel = watched.sentinels()[0].url();
    table
        .row(
            "a sentinel as a server",
            Invalid,
            &["is a sentinel", "redis+sentinel://"],
            &["time", "NOPERM"],
            lock_at(sentinel.clone()),
        )
        .await;
    let named = sentinel.replace("redis://", "redis+sentinel://");
    table
        .row(
            "a sentinel without that master",
            Invalid,
            &["nobody"],
            &["TLS"],
            connect_to(format!("{named}/nobody")),
        )
        .await;
    table
        .row(
            "a server as a sentinel",
            Unavailable,
            &["is no sentinel"],
            &["TLS"],
            connect_to(
                watched.server(0).url().replace("redis://", "redis+sentinel://") + "/mymaster",
            ),
        )
        .await;
    table
        .row(
            "a replica",
            Unavailable,
            &["READONLY", "replica"],
            &["TLS"],
            lock_at(watched.server(1).url()),
        )
        .await;
    let old =
        StandaloneServer::start_with(ServerSettings::default().line("rename-command HELLO \"\""));
    // (The test support itself begins without HELLO.)
    let old = old.await.unwrap();
    table
        .row(
            "a server without RESP3",
            Refused,
            &["RESP3", "6.0"],
            &["does not let this client in", "TLS"],
            connect_to(old.url()),
        )
        .await;
    let proxy = Fake::repeating("-NOPROTO unsupported protocol version\r\n").await.unwrap();
    table
        .row(
            "a proxy without RESP3",
            Refused,
            &["RESP3", "NOPROTO"],
            &["does not let this client in", "TLS"],
            connect_to(proxy.url()),
        )
        .await;
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
    table
        .row(
            "a database of a cluster",
            Invalid,
            &["database 1", "cluster"],
            &["TLS", "does not let this client in"],
            connect_to(format!("{}/1", cluster.node(0).url())),
        )
        .await;
    let single = StandaloneServer::start().await.unwrap();
    table
        .row(
            "a database that is not there",
            Invalid,
            &["database 99"],
            &["TLS", "does not let this client in"],
            connect_to(format!("{}/99", single.url())),
        )
        .await;
    let node = ServerSettings { cluster: true, ..ServerSettings::default() };
    let renamed = Server::start(&node.line("rename-command CLUSTER OTHER")).await.unwrap();
    renamed.run_words::<()>("OTHER ADDSLOTSRANGE 0 16383").await.unwrap();
    table
        .row(
            "a node with CLUSTER renamed",
            Refused,
            &["CLUSTER", "renamed"],
            &["TLS"],
            connect_to(renamed.url()),
        )
        .await;
    let node = ServerSettings { cluster: true, ..ServerSettings::default() };
    let empty = Server::start(&node).await.unwrap();
    table
        .row(
            "a cluster without slots",
            Unavailable,
            &["no master of any slot"],
            &["TLS"],
            connect_to(empty.url()),
        )
        .await;
    table.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_rejected_by_the_server_error_says_why() {
    let mut table = Table::default();
    let locked = StandaloneServer::start_with(ServerSettings::default().password("right-one"))
        .await
        .unwrap();
    let address = locked.address();
    table
        .row(
            "a wrong password",
            Refused,
            &["WRONGPASS", "password"],
            &["hunter2", "TLS"],
            connect_to(format!("redis://:hunter2@{address}")),
        )
        .await;
    table
        .row(
            "no password",
            Refused,
            &["NOAUTH", "authentication failed"],
            &["TLS"],
            connect_to(format!("redis://{address}")),
        )
        .await;
    let full =
        StandaloneServer::start_with(ServerSettings::default().line("maxclients 1")).await.unwrap();
    let wait_limit = PollLimit::new("the only connection");
    let _only = loop {
        match full.connect().await {
            Ok(connection) => break connection,
            Err(error) => wait_limit.pause(error).await.unwrap(),
        }
    };
    table
        .row(
            "maxclients",
            Unavailable,
            &["max number of clients reached"],
            &["TLS", "waiting for one", "asked for it"],
            connect_to(full.url()),
        )
        .await;
    let protected = Fake::greeting(
        "-DENIED Redis is running in protected mode because protected mode is enabled and no password \
         is set for the default user.\r\n",
    );
    let protected = protected.await.unwrap();
    table
        .row(
            "protected mode",
            Refused,
            &["DENIED Redis is running in protected mode"],
            &["TLS", "waiting for one", "asked for it"],
            connect_to(protected.url()),
        )
        .await;
    let busy = loading().await;
    table
        .row(
            "a server that loads its data",
            Unavailable,
            &["LOADING"],
            &["TLS", "refused"],
            connect_to(busy.url()),
        )
        .await;
    let booting = Fake::repeating("-LOADING Redis is loading the dataset in memory\r\n");
    let booting = booting.await.unwrap();
    table
        .row(
            "a server that refuses even HELLO while it loads",
            Unavailable,
            &["LOADING"],
            &["TLS", "refused"],
            connect_to(booting.url()),
        )
        .await;
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

const RIGHTS: &str = "resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time +info +cluster|slots \
                      +cluster|myid +cluster|info +ssubscribe +sunsubscribe +wait \
                      +exists +hget +hmget +hset +hdel +pexpireat +spublish";

#[tokio::test(flavor = "multi_thread")]
async fn acquire_by_a_user_without_a_right_error_names_the_right() {
    let mut table = Table::default();
    for (name, lacking, says) in [
        ("no right to TIME", "-time", &["time"][..]),
        ("no right to EVALSHA", "-evalsha", &["evalsha"]),
        ("no right to HSET", "-hset", &["hset"]),
        ("no right to HGET", "-hget", &["hget"]),
        ("no right to PEXPIREAT", "-pexpireat", &["pexpireat"]),
        ("no right to the key", "resetkeys ~other:*", &["key"]),
    ] {
        let settings = ServerSettings::default()
            .line(format!("user locker on >a-password {RIGHTS} {lacking}"));
        let server = StandaloneServer::start_with(settings).await.unwrap();
        let url = format!("redis://locker:a-password@{}", server.address());
        table.row(name, Refused, says, &["TLS", "a-password"], lock_at(url)).await;
    }
    let lacking = format!("user locker on >a-password {RIGHTS} -cluster|slots");
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0).line(lacking)).await.unwrap();
    table
        .row(
            "no right to CLUSTER SLOTS",
            Refused,
            &["cluster|slots"],
            &["TLS", "a-password"],
            lock_at(format!("redis://locker:a-password@{}", cluster.node(0).address())),
        )
        .await;
    table.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_at_an_unreachable_announced_address_error_names_it() {
    let mut table = Table::default();
    for (name, line, says) in [
        (
            "an announced port where nothing listens",
            "cluster-announce-port 1",
            &["127.0.0.1:1", "announced by 127.0.0.1:", "address_translator", "cluster-announce"][..],
        ),
        (
            "an announced name that only the cluster knows",
            "cluster-announce-hostname node-0.invalid\ncluster-preferred-endpoint-type hostname",
            &[
                "node-0.invalid",
                "announced by 127.0.0.1:",
                "address_translator",
                "cluster-announce",
            ],
        ),
    ] {
        let settings = ServerSettings { cluster: true, ..ServerSettings::default() };
        let server = Server::start(&settings.line(line)).await.unwrap();
        server.run_words::<()>("CLUSTER ADDSLOTSRANGE 0 16383").await.unwrap();
        until_it_serves(&server).await;
        table.row(name, Unavailable, says, &["TLS"], lock_at(server.url())).await;
    }
    table.end();
}

async fn until_it_serves(node: &Server) {
    let wait_limit = PollLimit::new("the cluster to serve");
    while !node.run_words::<String>("CLUSTER INFO").await.unwrap().contains("cluster_state:ok") {
        wait_limit.pause("it does not").await.unwrap();
    }
}

#[cfg(feature = "tls")]
mod tls {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
    };

    use super::*;
    use crate::support::Certificates;

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

    async fn connect(port: u16, authority: &str) -> Outcome {
        let url = format!("rediss://127.0.0.1:{port}");
        settings().tls_roots(authority).servers([url]).connect().await.map(drop)
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
        let port = plain.tls_port().unwrap();
        table
            .row(
                "an unknown authority",
                Refused,
                &["UnknownIssuer", "tls_roots"],
                &["password", "may not speak TLS"],
                connect(port, &other.authority),
            )
            .await;
        let expired = server(&old, "").await;
        table
            .row(
                "an expired certificate",
                Refused,
                &["expired"],
                &["password", "may not speak TLS"],
                connect(expired.tls_port().unwrap(), &old.authority),
            )
            .await;
        let wrong = server(&elsewhere, "").await;
        table
            .row(
                "a certificate for another name",
                Refused,
                &["not valid for name", "redis.example.com"],
                &["password", "may not speak TLS"],
                connect(wrong.tls_port().unwrap(), &elsewhere.authority),
            )
            .await;
        let strict = server(&good, "tls-auth-clients yes").await;
        table
            .row(
                "no certificate of the client",
                Refused,
                &["CertificateRequired", "tls_client"],
                &["password", "may not speak TLS"],
                connect(strict.tls_port().unwrap(), &good.authority),
            )
            .await;
        table
            .row(
                "TLS to a plain port",
                Unavailable,
                &["does the port speak TLS"],
                &["password"],
                connect(plain.port(), &good.authority),
            )
            .await;
        table
            .row(
                "a plain connection to a TLS port",
                Unavailable,
                &["TLS"],
                &["password"],
                connect_to(format!("redis://127.0.0.1:{port}")),
            )
            .await;
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
    table
        .row("a full memory", Refused, &["memory is full", "OOM"], &["TLS", "right"], take())
        .await;
    server.run_words::<()>("CONFIG SET maxmemory 0").await.unwrap();
    server.run_words::<()>("CONFIG SET min-replicas-to-write 1").await.unwrap();
    table.row("too few replicas", Unavailable, &["NOREPLICAS"], &["TLS", "refused"], take()).await;
    server.run_words::<()>("CONFIG SET min-replicas-to-write 0").await.unwrap();
    server.run_words::<()>("SET rwlease:text value").await.unwrap();
    table
        .row(
            "a key of another type",
            Foreign,
            &["another type", "WRONGTYPE", "`text`"],
            &["TLS"],
            async { locks.rwlock("text")?.write().await.map(drop) },
        )
        .await;
    server.run_words::<()>("HSET rwlease:hash field value").await.unwrap();
    table
        .row("a hash that is no lock", Foreign, &["no lock", "LOCKFOREIGN"], &["TLS"], async {
            locks.rwlock("hash")?.write().await.map(drop)
        })
        .await;
    let held = lock.write().await.unwrap();
    table
        .row("a lock that another holds", TimedOut, &["`order`"], &["TLS", "connection"], async {
            lock.write().timeout(Duration::from_millis(300)).await.map(drop)
        })
        .await;
    let _ = held.release().await.unwrap();
    table
        .row("a lease that is too long", Invalid, &["lease", "must be"], &["TLS"], async {
            lock.write().lease(Duration::from_secs(1 << 40)).await.map(drop)
        })
        .await;
    server.freeze().unwrap();
    table
        .row(
            "a server that is stopped",
            Unavailable,
            &["no reply within", "127.0.0.1:"],
            &["TLS", "refused"],
            async { lock.write().timeout(PATIENCE).await.map(drop) },
        )
        .await;
    server.kill().unwrap();
    table
        .row("a server that is gone", Unavailable, &["refused", "127.0.0.1:"], &["TLS"], async {
            lock.write().timeout(PATIENCE).await.map(drop)
        })
        .await;
    table.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_over_slow_round_trips_error_names_the_timeout() {
    let mut table = Table::default();
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    // A round trip takes longer than `response_timeout`.
    proxy.replies(ProxyFlow::Slow(Duration::from_millis(700)));
    table
        .row(
            "a round trip longer than connect_timeout allows",
            Unavailable,
            &["no reply within 1s", "connect_timeout"],
            &["TLS", "response_timeout"],
            connect_to(proxy.url()),
        )
        .await;
    let patient = || settings().connect_timeout(Duration::from_secs(20)).servers([proxy.url()]);
    table
        .row(
            "a round trip longer than response_timeout",
            Unavailable,
            &["no reply within 500ms", "response_timeout"],
            &["TLS", "connect_timeout"],
            async {
                let locks = patient().connect().await.expect("connect_timeout is long enough");
                locks.rwlock("order")?.write().timeout(PATIENCE).await.map(drop)
            },
        )
        .await;
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
        .row("a lease that was forced open", Lost, &["lost"], &["TLS"], async {
            let guard = lock.write().await?;
            lock.force_release().await?;
            guard.lost().await;
            guard.downgrade().await.map(drop)
        })
        .await;
    table
        .row("a lease that was revoked", Revoked, &["revoked"], &["TLS"], async {
            let guard = lock.write().await?;
            lock.revoke().await?;
            guard.renew().await
        })
        .await;
    table
        .row("a lease that was not renewed", Lost, &["lost"], &["TLS"], async {
            let guard = short().renewal(RenewalPolicy::Manual).await?;
            guard.lost().await;
            guard.renew().await
        })
        .await;
    table
        .row("a lease of a server that has lost its data", Lost, &["lost"], &["TLS"], async {
            let guard = lock.write().await?;
            server.restart().await.unwrap();
            guard.renew().await
        })
        .await;
    table
        .row("a lease of a server that is stopped", Lost, &["lost"], &["TLS"], async {
            let guard = short().await?;
            server.freeze().unwrap();
            guard.lost().await;
            server.thaw().unwrap();
            guard.renew().await
        })
        .await;
    table.end();
}
