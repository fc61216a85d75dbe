//! TLS, and a user that has the rights it needs and no others.

// By the `redis` crate that needs a feature; with `fred` the application brings its own TLS, here that of `fred-tls`.
#![cfg(any(feature = "redis-tls", feature = "fred-tls"))]
// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods)]

#[macro_use]
mod conformance;
mod support;

use std::error::Error as _;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
#[cfg(feature = "legacy")]
use rwlease::LegacyRwLock;
use rwlease::{Builder, Error, ErrorKind, Locks, Released, Result as Outcome};
use support::{Backend, Certificates, Cluster, Result, Server, ServerSettings, Shape, Single};
use tokio::time::timeout;

const USER: &str = "locker";
const PASSWORD: &str = "a-password";

/// As `docs/operating.md` lists them.
const RIGHTS: &str = "resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time +info +cluster|slots \
                      +ssubscribe +sunsubscribe +wait \
                      +exists +hget +hmget +hset +hdel +pexpireat +pttl +spublish";

/// What other kinds of locks need besides, and listing them.
const BESIDES: &str = "+get +set +del +scan";

/// An authority of one's own, and a certificate by it for 127.0.0.1.
fn certificates() -> Certificates {
    certificates_for("127.0.0.1")
}

fn certificates_for(name: &str) -> Certificates {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    // Were it of the same name as the one below, that would pass for signed by itself.
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

fn settings(certificates: &Certificates, rights: &str) -> ServerSettings {
    ServerSettings {
        tls: Some(certificates.clone()),
        ..ServerSettings::default()
    }
    .line(format!("user {USER} on >{PASSWORD} {rights}"))
}

async fn secure_cluster(rights: &str) -> Result<(Cluster, Certificates)> {
    let certificates = certificates();
    let shape = Shape {
        settings: settings(&certificates, rights),
        ..Shape::of(3, 1)
    };
    Ok((Cluster::start_with(shape).await?, certificates))
}

/// Connects with TLS as that user, trusting that authority.
async fn connect(server: &Server, password: &str, authority: &str) -> rwlease::Result<Locks> {
    let patient = Locks::builder().call_timeout(Duration::from_secs(20));
    connect_with(patient, server, password, authority).await
}

async fn connect_with(settings: Builder, server: &Server, password: &str, authority: &str) -> rwlease::Result<Locks> {
    let port = server.tls_port().expect("a server with TLS");
    match Backend::chosen() {
        #[cfg(feature = "redis-tls")]
        Backend::Redis => by_redis(settings, port, password, authority).await,
        #[cfg(feature = "fred-tls")]
        Backend::Fred => by_fred(settings, port, password, authority).await,
        #[allow(unreachable_patterns)]
        other => {
            let _ = settings;
            panic!("{other:?} has no TLS here")
        }
    }
}

#[cfg(feature = "redis-tls")]
async fn by_redis(settings: Builder, port: u16, password: &str, authority: &str) -> rwlease::Result<Locks> {
    let url = format!("rediss://{USER}:{password}@127.0.0.1:{port}");
    settings.tls_roots(authority).servers([url]).connect().await
}

#[cfg(feature = "fred-tls")]
async fn by_fred(settings: Builder, port: u16, password: &str, authority: &str) -> rwlease::Result<Locks> {
    use fred::types::config::Server;

    let config = fred_config(Server::new("127.0.0.1", port), password, authority, None);
    settings.connect_fred(config).await
}

/// With a certificate of the client's own, if one is given.
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
    let tls = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let tls = match own {
        None => tls.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            tls.with_client_auth_cert(vec![certificate(&own.certificate)], key)
                .unwrap()
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

async fn two_clients() -> (Locks, Locks, Cluster) {
    let (cluster, certificates) = secure_cluster(RIGHTS).await.unwrap();
    let one = connect(cluster.node(0), PASSWORD, &certificates.authority)
        .await
        .unwrap();
    let other = connect(cluster.node(1), PASSWORD, &certificates.authority)
        .await
        .unwrap();
    (one, other, cluster)
}

// The whole suite, once: as that user, with TLS, and nobody has installed a provider of cryptography for the process.
lock_tests!(two_clients);

#[tokio::test(flavor = "multi_thread")]
async fn locks_follow_their_slot() -> Result {
    let (cluster, certificates) = secure_cluster(RIGHTS).await?;
    let locks = connect(cluster.node(0), PASSWORD, &certificates.authority).await?;
    let lock = locks.rwlock("followed")?;
    let slot = lock.slot().get();
    for turn in 0..3 {
        let held = lock.write().await?;
        let next = (cluster.owner(slot).await? + 1) % 3;
        let step = cluster.begin_move(slot, next).await?;
        let guest = locks.rwlock(format!("{{{}}}{turn}", "followed"))?;
        drop(guest.read().await?);
        cluster.move_keys(step).await?;
        cluster.finish_move(step).await?;
        assert_eq!(held.release().await?, Released::Released);
    }
    let confirmed = lock.write().replicas(1).await?;
    assert_eq!(confirmed.release().await?, Released::Released);
    Ok(())
}

/// A push needs its rights on both sides; with looks so rare, only a push can tell in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_is_pushed() -> Result {
    const LONG: Duration = Duration::from_secs(60);
    let (cluster, certificates) = secure_cluster(RIGHTS).await?;
    let rare = Locks::builder().poll_interval(LONG).waiter_liveness(LONG * 10);
    let locks = connect_with(rare, cluster.node(0), PASSWORD, &certificates.authority).await?;
    let lock = locks.rwlock("pushed")?;
    let held = lock.write().await?;
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    held.release().await?;
    drop(timeout(LONG / 2, waiting).await???);
    Ok(())
}

/// The words of an error and of all its sources.
fn words(error: &Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        said = format!("{said}: {inner}");
        source = inner.source();
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named() -> Result {
    for right in ["time", "cluster|slots", "evalsha", "hset", "hmget", "pexpireat"] {
        let lacking = format!("{RIGHTS} -{right}");
        let certificates = certificates();
        let server = Shape {
            settings: settings(&certificates, &lacking),
            ..Shape::of(1, 0)
        };
        let cluster = Cluster::start_with(server).await?;
        let outcome = async {
            let locks = connect(cluster.node(0), PASSWORD, &certificates.authority).await?;
            locks.rwlock("order")?.write().await.map(drop)
        };
        let error = outcome.await.unwrap_err();
        names(&error, right);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_of_the_other_kinds_is_named() -> Result {
    for right in ["get", "set", "del"] {
        let certificates = certificates();
        let lacking = format!("{RIGHTS} {BESIDES} -{right}");
        let server = Single::start_with(settings(&certificates, &lacking)).await?;
        let locks = connect(&server, PASSWORD, &certificates.authority).await?;
        names(&lock_mutex(&locks).await.unwrap_err(), right);
        #[cfg(feature = "legacy")]
        names(&lock_two_keys(&locks).await.unwrap_err(), right);
    }
    Ok(())
}

async fn lock_mutex(locks: &Locks) -> Outcome<Released> {
    locks.mutex("rwlease:plain")?.lock().await?.release().await
}

#[cfg(feature = "legacy")]
async fn lock_two_keys(locks: &Locks) -> Outcome<Released> {
    const TIME: Duration = Duration::from_secs(10);
    let lock = LegacyRwLock::tagged(locks, "rwlease:{two}")?;
    lock.read(TIME, TIME).await?.release().await?;
    lock.write(TIME, TIME).await?.release().await
}

/// By itself in quotes, or in the list of all.
fn names(error: &Error, right: &str) {
    assert_eq!(error.kind(), ErrorKind::Refused, "{right}: {error:?}");
    let said = words(error);
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
    assert_eq!(writing.release().await?, Released::Released);
    let reading = lock.write().await?.downgrade().await?;
    assert_eq!(lock.status().await?.readers, 1);
    assert_eq!(locks.list("order").next_page().await?, Some(vec!["order".into()]));
    assert_eq!(reading.release().await?, Released::Released);
    let _forced = lock.write().await?;
    lock.force_release().await?.expect("held");

    let owner = locks.owner();
    let outer = owner.write(&lock).await?;
    assert_eq!(owner.read(&lock).await?.release().await?, Released::Released);
    assert_eq!(outer.release().await?, Released::Released);

    assert_eq!(lock_mutex(&locks).await?, Released::Released);
    assert!(locks.mutex("rwlease:plain")?.status().await?.is_none());
    #[cfg(feature = "legacy")]
    assert_eq!(lock_two_keys(&locks).await?, Released::Released);
    Ok(())
}

/// A server that asks for a certificate lets in who has one, and nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_a_certificate_of_its_own() -> Result {
    let certificates = certificates();
    let settings = settings(&certificates, RIGHTS).line("tls-auth-clients yes");
    let server = Single::start_with(settings).await?;
    let port = server.tls_port().expect("a server with TLS");
    assert!(connect(&server, PASSWORD, &certificates.authority).await.is_err());
    let locks = connect_with_own(port, &certificates).await?;
    assert_eq!(
        locks.rwlock("order")?.write().await?.release().await?,
        Released::Released
    );
    Ok(())
}

async fn connect_with_own(port: u16, certificates: &Certificates) -> Outcome<Locks> {
    let Certificates {
        authority,
        certificate,
        key,
    } = certificates;
    match Backend::chosen() {
        #[cfg(feature = "redis-tls")]
        Backend::Redis => {
            let settings = Locks::builder().tls_client(certificate.as_str(), key.as_str());
            by_redis(settings, port, PASSWORD, authority).await
        }
        #[cfg(feature = "fred-tls")]
        Backend::Fred => {
            let server = fred::types::config::Server::new("127.0.0.1", port);
            let config = fred_config(server, PASSWORD, authority, Some(certificates));
            Locks::builder().connect_fred(config).await
        }
        #[allow(unreachable_patterns)]
        other => {
            let _ = (authority, certificate, key);
            panic!("{other:?} has no TLS here")
        }
    }
}

/// The nodes announce 127.0.0.1, and their certificate is for a name.
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
    let shape = Shape {
        settings: settings(&certificates, RIGHTS),
        ..Shape::of(2, 0)
    };
    let cluster = Cluster::start_with(shape).await?;
    let port = cluster.node(0).tls_port().expect("a server with TLS");
    let own_name = Server::new_with_tls("127.0.0.1", port, Some("localhost".into()));
    for (server, hostnames) in [
        (Server::new("localhost", port), TlsHostMapping::DefaultHost),
        (
            Server::new("127.0.0.1", port),
            TlsHostMapping::Custom(std::sync::Arc::new(Localhost)),
        ),
        (own_name.clone(), TlsHostMapping::Custom(std::sync::Arc::new(Localhost))),
    ] {
        let mut config = fred_config(server, PASSWORD, &certificates.authority, None);
        config.tls.as_mut().expect("TLS").hostnames = hostnames;
        let locks = Locks::builder().connect_fred(config).await?;
        for name in ["a", "b", "c", "d"] {
            let held = locks.rwlock(name)?.write().await?;
            assert_eq!(held.release().await?, Released::Released);
        }
    }

    let single = Single::start_with(settings(&certificates, RIGHTS)).await?;
    let server = Server {
        port: single.tls_port().expect("a server with TLS"),
        ..own_name
    };
    let mut config = fred_config(server, PASSWORD, &certificates.authority, None);
    // Its own name counts, not what it would be mapped to.
    config.tls.as_mut().expect("TLS").hostnames = TlsHostMapping::Custom(std::sync::Arc::new(Elsewhere));
    let locks = Locks::builder().connect_fred(config).await?;
    assert!(locks.rwlock("order")?.try_write().await?.is_some());
    Ok(())
}

/// That the other side speaks no TLS no retry can mend.
#[tokio::test(flavor = "multi_thread")]
async fn who_expects_tls_of_a_port_without_it_is_told_at_once() -> Result {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let plain = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"-ERR unknown command\r\n").await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let authority = certificates().authority;
    #[cfg(feature = "redis-tls")]
    {
        let error = by_redis(Locks::builder(), port, PASSWORD, &authority)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    }
    #[cfg(feature = "fred-tls")]
    {
        let error = by_fred(Locks::builder(), port, PASSWORD, &authority).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    }
    plain.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_let_in_is_told_why() -> Result {
    let (own, strange) = (certificates(), certificates());
    let server = Single::start_with(settings(&own, RIGHTS)).await?;
    assert!(connect(&server, PASSWORD, &own.authority).await.is_ok());

    let error = connect(&server, "wrong", &own.authority).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(words(&error).contains("WRONGPASS"), "{}", words(&error));
    let error = connect(&server, PASSWORD, &strange.authority).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(
        words(&error).to_lowercase().contains("certificate"),
        "{}",
        words(&error)
    );
    Ok(())
}
