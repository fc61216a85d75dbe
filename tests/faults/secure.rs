//! TLS, and a user that has only the rights it needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::lock_tests;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
#[cfg(feature = "legacy")]
use rwlease::TwoKeyRwLock;
use rwlease::{Client, ClientBuilder, Error, ErrorKind, ReleaseOutcome, Result as Outcome};
use testkit::{
    Backend, Certificates, Cluster, ClusterConfig, PollLimit, Result, Server, ServerSettings,
    StandaloneServer, error_chain, is_subscribed_waiter, spawn_write,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

const USER: &str = "locker";
pub(crate) const PASSWORD: &str = "a-password";

/// The rights that `docs/operating.md` lists.
pub(crate) const RIGHTS: &str = "resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time +info +cluster|slots \
                      +cluster|myid +cluster|info +ssubscribe +sunsubscribe +wait \
                      +exists +hget +hmget +hset +hdel +pexpireat +spublish";

/// Additional rights, for the other kinds of locks and for listing them.
const BESIDES: &str = "+get +set +del +pttl +scan";

/// A new certificate authority, and a certificate that it has issued for 127.0.0.1.
pub(crate) fn certificates() -> Certificates {
    certificates_for("127.0.0.1")
}

fn certificates_for(name: &str) -> Certificates {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    // The certificate below has the default name. With the same name here, it would pass for
    // self-signed.
    authority.distinguished_name.push(DnType::CommonName, "authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec![name.into()]).unwrap();
    Certificates {
        authority: root,
        certificate: own.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

pub(crate) fn settings(certificates: &Certificates, rights: &str) -> ServerSettings {
    ServerSettings { tls: Some(certificates.clone()), ..ServerSettings::default() }
        .line(format!("user {USER} on >{PASSWORD} {rights}"))
}

async fn secure_cluster(rights: &str) -> Result<(Cluster, Certificates)> {
    let certificates = certificates();
    let shape =
        ClusterConfig { settings: settings(&certificates, rights), ..ClusterConfig::of(3, 1) };
    Ok((Cluster::start_with(shape).await?, certificates))
}

/// Connects over TLS as `USER`, with this certificate authority.
pub(crate) async fn connect(server: &Server, password: &str, authority: &str) -> Outcome<Client> {
    let patient = Client::builder().call_timeout(Duration::from_secs(20));
    connect_with(patient, server, password, authority).await
}

async fn connect_with(
    settings: ClientBuilder,
    server: &Server,
    password: &str,
    authority: &str,
) -> Outcome<Client> {
    let port = server.tls_port().expect("a server with TLS");
    connect_at(settings, port, password, authority, None).await
}

/// Connects to a port by the chosen backend, with a client certificate if `own` is set.
async fn connect_at(
    settings: ClientBuilder,
    port: u16,
    password: &str,
    authority: &str,
    own: Option<&Certificates>,
) -> Outcome<Client> {
    match Backend::chosen() {
        #[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
        Backend::Native | Backend::Redis => {
            let settings = match own {
                Some(own) => settings.tls_client_identity(&*own.certificate, &*own.key),
                None => settings,
            };
            let url = format!("rediss://{USER}:{password}@127.0.0.1:{port}");
            connect_by_urls(settings.tls_root_certificates(authority).urls([url])).await
        }
        #[cfg(feature = "fred-tls")]
        Backend::Fred => {
            let server = fred::types::config::Server::new("127.0.0.1", port);
            settings.connect_fred(fred_config(server, password, authority, own)).await
        }
        #[allow(unreachable_patterns)]
        other => {
            let _ = (settings, port, password, authority, own);
            panic!("{other:?} has no TLS here")
        }
    }
}

#[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
async fn connect_by_urls(settings: ClientBuilder) -> Outcome<Client> {
    match Backend::chosen() {
        #[cfg(feature = "redis")]
        Backend::Redis => settings.connect_redis().await,
        _ => settings.connect().await,
    }
}

/// Configures a client certificate if `own` is set.
#[cfg(feature = "fred-tls")]
fn fred_config(
    server: fred::types::config::Server,
    password: &str,
    authority: &str,
    own: Option<&Certificates>,
) -> fred::types::config::Config {
    use fred::types::config::{Config, ServerConfig, TlsConnector};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate(authority)).unwrap();
    let tls = rustls::ClientConfig::builder_with_provider(
        rustls::crypto::ring::default_provider().into(),
    )
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(roots);
    let tls = match own {
        None => tls.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            tls.with_client_auth_cert(vec![certificate(&own.certificate)], key).unwrap()
        }
    };
    Config {
        server: ServerConfig::Centralized { server },
        username: Some(USER.into()),
        password: Some(password.into()),
        tls: Some(TlsConnector::from(tls).into()),
        ..Config::default()
    }
}

async fn two_clients() -> (Client, Client, Cluster) {
    // With those of the records of clients, which status shows.
    let (cluster, certificates) = secure_cluster(&format!("{RIGHTS} +get +set")).await.unwrap();
    let one = connect(cluster.node(0), PASSWORD, &certificates.authority).await.unwrap();
    let other = connect(cluster.node(1), PASSWORD, &certificates.authority).await.unwrap();
    (one, other, cluster)
}

// The whole suite runs as `USER` and over TLS. The process has installed no provider of
// cryptography.
lock_tests!(two_clients());

#[tokio::test(flavor = "multi_thread")]
async fn locks_follow_their_slot() -> Result {
    let (cluster, certificates) = secure_cluster(RIGHTS).await?;
    let locks = connect(cluster.node(0), PASSWORD, &certificates.authority).await?;
    let lock = locks.rwlock("followed")?;
    let slot = lock.slot().get();
    for turn in 0..3 {
        let held = lock.write().await?;
        let next = (cluster.master_of(slot).await? + 1) % 3;
        let step = cluster.begin_migration(slot, next).await?;
        let other = locks.rwlock(format!("{{{}}}{turn}", "followed"))?;
        drop(other.read().await?);
        cluster.move_keys(step).await?;
        cluster.finish_migration(step).await?;
        assert_eq!(held.release().await?, ReleaseOutcome::Released);
    }
    let confirmed = lock.write().min_replicas(1).await?;
    assert_eq!(confirmed.release().await?, ReleaseOutcome::Released);
    Ok(())
}

/// A push needs rights of both clients. Polls are so rare that only a push is in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_is_pushed() -> Result {
    const LONG: Duration = Duration::from_secs(60);
    let (cluster, certificates) = secure_cluster(RIGHTS).await?;
    let rare = Client::builder().poll_interval(LONG).waiter_ttl(LONG * 10);
    let locks = connect_with(rare, cluster.node(0), PASSWORD, &certificates.authority).await?;
    let lock = locks.rwlock("pushed")?;
    let held = lock.write().await?;
    let waiting = spawn_write(&lock);
    let wait_limit = PollLimit::new("the waiter to be pushed to");
    let master = cluster.node(cluster.master_of(lock.slot().get()).await?);
    let is_pushed_to = || async {
        let entries: Vec<String> = master.run_words("HVALS rwlease:pushed").await?;
        Ok(entries.iter().any(|entry| is_subscribed_waiter(entry)))
    };
    wait_limit.until(is_pushed_to).await?;
    let _ = held.release().await?;
    drop(timeout(LONG / 2, waiting).await???);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_of_the_other_kinds_is_named() -> Result {
    for right in ["get", "set", "del"] {
        let certificates = certificates();
        let lacking = format!("{RIGHTS} {BESIDES} -{right}");
        let server = StandaloneServer::start_with(settings(&certificates, &lacking)).await?;
        let locks = connect(&server, PASSWORD, &certificates.authority).await?;
        names(&lock_mutex(&locks).await.unwrap_err(), right);
        #[cfg(feature = "legacy")]
        names(&lock_two_keys(&locks).await.unwrap_err(), right);
    }
    Ok(())
}

async fn lock_mutex(locks: &Client) -> Outcome<ReleaseOutcome> {
    locks.set_nx_mutex("rwlease:plain")?.lock().await?.release().await
}

#[cfg(feature = "legacy")]
async fn lock_two_keys(locks: &Client) -> Outcome<ReleaseOutcome> {
    const TIME: Duration = Duration::from_secs(10);
    let lock = TwoKeyRwLock::tagged(locks, "rwlease:{two}")?;
    let _ = lock.read(TIME, TIME).await?.release().await?;
    lock.write(TIME, TIME).await?.release().await
}

/// The error names the right by itself in quotes, or in the list of all rights.
fn names(error: &Error, right: &str) {
    assert_eq!(error.kind(), ErrorKind::Rejected, "{right}: {error:?}");
    let said = error_chain(error);
    assert!(
        said.contains(&format!("'{right}'")) || said.contains(&format!("+{right}")),
        "{right}: {said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_in_the_documentation_are_enough_for_each_kind() -> Result {
    let (cluster, certificates) = secure_cluster(&format!("{RIGHTS} {BESIDES}")).await?;
    let locks = connect(cluster.node(0), PASSWORD, &certificates.authority).await?;
    let lock = locks.rwlock("order")?;

    let writing = lock.read().await?.upgrade().await.unwrap();
    lock.revoke().await?.expect("held");
    assert_eq!(writing.release().await?, ReleaseOutcome::Released);
    let reading = lock.write().await?.downgrade().await?;
    assert_eq!(lock.status().await?.reader_count, 1);
    assert_eq!(locks.scan("order").next_page().await?, Some(vec!["order".into()]));
    assert_eq!(reading.release().await?, ReleaseOutcome::Released);
    let _forced = lock.write().await?;
    lock.force_release().await?.expect("held");

    let reentrant = locks.reentrant_owner();
    let outer = reentrant.write(&lock).await?;
    assert_eq!(reentrant.read(&lock).await?.release().await?, ReleaseOutcome::Released);
    assert_eq!(outer.release().await?, ReleaseOutcome::Released);

    assert_eq!(lock_mutex(&locks).await?, ReleaseOutcome::Released);
    assert!(locks.set_nx_mutex("rwlease:plain")?.status().await?.is_none());
    #[cfg(feature = "legacy")]
    assert_eq!(lock_two_keys(&locks).await?, ReleaseOutcome::Released);
    Ok(())
}

/// A server that requires a client certificate refuses clients without one.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_a_certificate_of_its_own() -> Result {
    let certificates = certificates();
    let settings = settings(&certificates, RIGHTS).line("tls-auth-clients yes");
    let server = StandaloneServer::start_with(settings).await?;
    let port = server.tls_port().expect("a server with TLS");
    assert!(connect(&server, PASSWORD, &certificates.authority).await.is_err());
    let (settings, authority) = (Client::builder(), &certificates.authority);
    let locks = connect_at(settings, port, PASSWORD, authority, Some(&certificates)).await?;
    assert_eq!(locks.rwlock("order")?.write().await?.release().await?, ReleaseOutcome::Released);
    Ok(())
}

/// The nodes announce 127.0.0.1, and their certificate is for `localhost`.
#[cfg(feature = "fred-tls")]
#[tokio::test(flavor = "multi_thread")]
async fn fred_knows_the_names_of_servers_with_addresses() -> Result {
    use fred::types::config::{HostMapping, Server, TlsHostMapping};

    #[derive(Debug)]
    struct Localhost;

    impl HostMapping for Localhost {
        fn map(&self, ip: &std::net::IpAddr, _: &str) -> Option<String> {
            ip.is_loopback().then(|| "localhost".into())
        }
    }

    #[derive(Debug)]
    struct Elsewhere;

    impl HostMapping for Elsewhere {
        fn map(&self, _: &std::net::IpAddr, _: &str) -> Option<String> {
            Some("elsewhere".into())
        }
    }

    let certificates = certificates_for("localhost");
    let shape =
        ClusterConfig { settings: settings(&certificates, RIGHTS), ..ClusterConfig::of(2, 0) };
    let cluster = Cluster::start_with(shape).await?;
    let port = cluster.node(0).tls_port().expect("a server with TLS");
    let own_name = Server::new_with_tls("127.0.0.1", port, Some("localhost".into()));
    for (server, hostnames) in [
        (Server::new("localhost", port), TlsHostMapping::DefaultHost),
        (Server::new("127.0.0.1", port), TlsHostMapping::Custom(Arc::new(Localhost))),
        (own_name.clone(), TlsHostMapping::Custom(Arc::new(Localhost))),
    ] {
        let mut config = fred_config(server, PASSWORD, &certificates.authority, None);
        config.tls.as_mut().expect("TLS").hostnames = hostnames;
        let locks = Client::builder().connect_fred(config).await?;
        for name in ["a", "b", "c", "d"] {
            let held = locks.rwlock(name)?.write().await?;
            assert_eq!(held.release().await?, ReleaseOutcome::Released);
        }
    }

    let single = StandaloneServer::start_with(settings(&certificates, RIGHTS)).await?;
    let server = Server { port: single.tls_port().expect("a server with TLS"), ..own_name };
    let mut config = fred_config(server, PASSWORD, &certificates.authority, None);
    // The server's own name takes precedence over the mapping.
    config.tls.as_mut().expect("TLS").hostnames = TlsHostMapping::Custom(Arc::new(Elsewhere));
    let locks = Client::builder().connect_fred(config).await?;
    assert!(locks.rwlock("order")?.try_write().await?.is_some());
    Ok(())
}

/// No retry helps if the other side does not speak TLS.
#[tokio::test(flavor = "multi_thread")]
async fn tls_connect_to_a_plaintext_port_is_refused_at_once() -> Result {
    use tokio::io::AsyncReadExt;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let plain = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"-ERR unknown command\r\n").await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let authority = certificates().authority;
    let error = connect_at(Client::builder(), port, PASSWORD, &authority, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    plain.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_with_wrong_password_or_authority_is_refused_with_the_reason() -> Result {
    let (own, strange) = (certificates(), certificates());
    let server = StandaloneServer::start_with(settings(&own, RIGHTS)).await?;
    assert!(connect(&server, PASSWORD, &own.authority).await.is_ok());

    // Waiting for servers mends neither.
    let wait = Duration::from_secs(3_600);
    let refused = async |password, authority: &str| {
        let waiting = Client::builder().wait_for_servers(wait);
        connect_with(waiting, &server, password, authority).await.unwrap_err()
    };
    let error = refused("wrong", &own.authority).await;
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert!(error_chain(&error).contains("WRONGPASS"), "{}", error_chain(&error));
    let error = refused(PASSWORD, &strange.authority).await;
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    let told = error_chain(&error);
    assert!(told.to_lowercase().contains("certificate"), "{told}");
    Ok(())
}

/// A credentials provider whose password can change while clients run.
#[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
#[derive(Clone)]
struct Rotated {
    password: Arc<Mutex<&'static str>>,
    /// The number of calls of the provider.
    calls: watch::Sender<u32>,
}

#[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
impl Rotated {
    fn new(password: &'static str) -> Self {
        Rotated { password: Arc::new(password.into()), calls: watch::Sender::new(0) }
    }

    fn set(&self, password: &'static str) {
        *self.password.lock().unwrap() = password;
    }

    /// Waits until the provider was called `times` more times.
    async fn until_called(&self, times: u32) {
        let enough = *self.calls.borrow() + times;
        let mut calls = self.calls.subscribe();
        timeout(Duration::from_secs(20), calls.wait_for(|calls| *calls >= enough))
            .await
            .expect("called in time")
            .unwrap();
    }
}

#[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
impl rwlease::CredentialsProvider for Rotated {
    fn credentials(&self) -> rwlease::CredentialsFuture<'_> {
        self.calls.send_modify(|calls| *calls += 1);
        let password = *self.password.lock().unwrap();
        Box::pin(async move { Ok(rwlease::Credentials::new(USER, password)) })
    }
}

/// Changes the password at the server, and closes the user's connections.
#[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
async fn change_password(server: &Server, password: &str) -> Result {
    server.run_words::<()>(&format!("ACL SETUSER {USER} resetpass >{password}")).await?;
    server.run_words::<i64>(&format!("CLIENT KILL USER {USER}")).await?;
    Ok(())
}

/// The server learns the new password before the provider does.
#[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_credentials_is_called_again_when_they_are_refused() -> Result {
    let certificates = certificates();
    let server = StandaloneServer::start_with(settings(&certificates, RIGHTS)).await?;
    let url = format!("rediss://127.0.0.1:{}", server.tls_port().expect("a server with TLS"));
    let builder = || {
        let patient = Client::builder().call_timeout(Duration::from_secs(40));
        patient.tls_root_certificates(certificates.authority.as_str()).urls([&url])
    };
    let rotated = Rotated::new(PASSWORD);
    let locks = connect_by_urls(builder().credentials(rotated.clone())).await?;
    let lock = locks.rwlock("order")?;
    drop(lock.write().await?);
    let fixed = rwlease::Credentials::new(USER, PASSWORD);
    let fixed = connect_by_urls(builder().credentials(fixed)).await?;

    change_password(&server, "another").await?;
    let waiting = tokio::spawn(async move { lock.write().await });
    rotated.until_called(4).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    rotated.set("another");
    let held = timeout(Duration::from_secs(20), waiting).await???;
    assert_eq!(held.release().await?, ReleaseOutcome::Released);

    // Fixed credentials are not tried again.
    let error = fixed.rwlock("order")?.write().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    assert!(error_chain(&error).contains("WRONGPASS"), "{}", error_chain(&error));
    Ok(())
}

/// A proxy that terminates TLS, and records for each connection whether it has resumed a session.
struct Front {
    port: u16,
    handshakes: Arc<Mutex<Vec<rustls::HandshakeKind>>>,
    /// A new count closes all connections.
    cuts: watch::Sender<u32>,
    /// It ends each handshake by an alert, as a proxy whose server is away.
    is_sick: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Front {
    async fn start(certificates: &Certificates, server: u16) -> Result<Front> {
        use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

        let certificate = CertificateDer::from_pem_slice(certificates.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(certificates.key.as_bytes())?;
        let config = rustls::ServerConfig::builder_with_provider(
            rustls::crypto::ring::default_provider().into(),
        )
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let handshakes = Arc::<Mutex<Vec<_>>>::default();
        let cuts = watch::Sender::new(0);
        let (noted, cut) = (handshakes.clone(), cuts.clone());
        let is_sick = Arc::<AtomicBool>::default();
        let sick = is_sick.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                if sick.load(Ordering::Relaxed) {
                    const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
                    let _ = stream.write_all(&INTERNAL_ERROR).await;
                    continue;
                }
                let (acceptor, noted, mut cut) = (acceptor.clone(), noted.clone(), cut.subscribe());
                tokio::spawn(async move {
                    let mut outside = acceptor.accept(stream).await?;
                    noted.lock().unwrap().extend(outside.get_ref().1.handshake_kind());
                    let mut inside = tokio::net::TcpStream::connect(("127.0.0.1", server)).await?;
                    tokio::select! {
                        ended = tokio::io::copy_bidirectional(&mut outside, &mut inside) => ended.map(drop),
                        _ = cut.changed() => Ok(()),
                    }
                });
            }
        });
        Ok(Front { port, handshakes, cuts, is_sick, task })
    }

    async fn connect(&self, settings: ClientBuilder, authority: &str) -> Outcome<Client> {
        connect_at(settings, self.port, PASSWORD, authority, None).await
    }

    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    fn handshakes(&self) -> Vec<rustls::HandshakeKind> {
        self.handshakes.lock().unwrap().clone()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_replaced_without_a_new_session() -> Result {
    const CUTS: usize = 3;
    let certificates = certificates();
    let server = StandaloneServer::start_with(settings(&certificates, RIGHTS)).await?;
    let front = Front::start(&certificates, server.port()).await?;
    let locks = front.connect(Client::builder(), &certificates.authority).await?;
    for _ in 0..CUTS {
        front.cut();
        let held = locks.rwlock("order")?.write().await?;
        assert_eq!(held.release().await?, ReleaseOutcome::Released);
    }
    let handshakes = front.handshakes();
    let resumed = handshakes.iter().filter(|kind| **kind == rustls::HandshakeKind::Resumed);
    assert!(handshakes.len() > CUTS, "{handshakes:?}");
    assert_eq!(resumed.count(), handshakes.len() - 1, "{handshakes:?}");
    Ok(())
}

/// A proxy ends handshakes by the alert `internal_error` for a while.
#[tokio::test(flavor = "multi_thread")]
async fn write_while_tls_handshakes_fail_for_a_while_is_granted() -> Result {
    let certificates = certificates();
    let server = StandaloneServer::start_with(settings(&certificates, RIGHTS)).await?;
    let front = Front::start(&certificates, server.port()).await?;
    let locks = front.connect(Client::builder(), &certificates.authority).await?;
    let lock = locks.rwlock("order")?;
    let _ = lock.write().await?.release().await?;
    front.is_sick.store(true, Ordering::Relaxed);
    front.cut();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().timeout(Duration::from_secs(30)).await }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await?);
    let error = front.connect(Client::builder(), &certificates.authority).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    front.is_sick.store(false, Ordering::Relaxed);
    assert_eq!(waiting.await??.release().await?, ReleaseOutcome::Released);
    Ok(())
}

/// Servers behind one host name do not share TLS sessions.
#[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
#[tokio::test(flavor = "multi_thread")]
async fn each_server_of_a_host_has_sessions_of_its_own() -> Result {
    const CUTS: usize = 3;
    let certificates = certificates();
    let settings = ServerSettings::default().line(format!("user {USER} on >{PASSWORD} {RIGHTS}"));
    let shape = ClusterConfig { settings, ..ClusterConfig::of(2, 0) };
    let cluster = Cluster::start_with(shape).await?;
    let mut fronts = Vec::new();
    for node in cluster.nodes() {
        fronts.push((node.port(), Front::start(&certificates, node.port()).await?));
    }
    let ports: Vec<_> = fronts.iter().map(|(port, front)| (*port, front.port)).collect();
    let settings = Client::builder().address_translator(move |host, port| {
        let front = ports.iter().find(|(inside, _)| *inside == port);
        (host.to_owned(), front.map_or(port, |(_, outside)| *outside))
    });
    // By URLs: an application that connects by `fred` configures its sessions itself.
    let url = format!("rediss://{USER}:{PASSWORD}@127.0.0.1:{}", fronts[0].1.port);
    let settings = settings.tls_root_certificates(certificates.authority.as_str()).urls([url]);
    let locks = connect_by_urls(settings).await?;
    for _ in 0..=CUTS {
        for name in ["a", "b", "c", "d"] {
            let held = locks.rwlock(name)?.write().await?;
            assert_eq!(held.release().await?, ReleaseOutcome::Released);
        }
        fronts.iter().for_each(|(_, front)| front.cut());
    }
    for (_, front) in &fronts {
        let handshakes = front.handshakes();
        let new = handshakes.iter().filter(|kind| **kind != rustls::HandshakeKind::Resumed);
        assert!(handshakes.len() > CUTS, "{handshakes:?}");
        assert_eq!(new.count(), 1, "{handshakes:?}");
    }
    Ok(())
}

/// The servers and sentinels use TLS among themselves too.
#[cfg(all(feature = "tls", any(feature = "native", feature = "redis")))]
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_the_servers_that_they_name() -> Result {
    use testkit::{SentinelConfigForTest, SentinelDeployment};

    let certificates = certificates();
    let with_tls =
        || ServerSettings { tls: Some(certificates.clone()), ..ServerSettings::default() };
    let watch = SentinelConfigForTest {
        servers: with_tls(),
        sentinel_settings: with_tls(),
        ..SentinelConfigForTest::default()
    };
    let sentinels = SentinelDeployment::start_with(watch).await?;
    let settings = || Client::builder().urls([sentinels.url()]);
    let trusting = settings().tls_root_certificates(certificates.authority.as_str());
    let locks = connect_by_urls(trusting.call_timeout(Duration::from_secs(20))).await?;
    for _ in 0..2 {
        assert_eq!(locks.rwlock("a")?.write().await?.release().await?, ReleaseOutcome::Released);
        sentinels.fail_over().await?;
    }
    let error = connect_by_urls(settings()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error:?}");
    Ok(())
}
