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
use rwlease::{Builder, Error, ErrorKind, Locks, Released};
use support::{Backend, Certificates, Cluster, Result, Server, ServerSettings, Shape, Single};
use tokio::time::timeout;

const USER: &str = "locker";
const PASSWORD: &str = "a-password";

/// As `docs/operating.md` lists them.
const RIGHTS: &str = "resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time +info +cluster|slots \
                      +ssubscribe +sunsubscribe +wait \
                      +exists +hget +hmget +hset +hdel +pexpireat +pttl +spublish";

/// An authority of one's own, and a certificate by it for 127.0.0.1.
fn certificates() -> Certificates {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    // Were it of the same name as the one below, that would pass for signed by itself.
    authority.distinguished_name.push(DnType::CommonName, "authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
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
    use fred::types::config::{Config, ServerConfig, TlsConnector};
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
        .unwrap();
    let tls = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Config {
        server: ServerConfig::new_centralized("127.0.0.1", port),
        username: Some(USER.into()),
        password: Some(password.into()),
        tls: Some(TlsConnector::from(tls).into()),
        ..Config::default()
    };
    settings.connect_fred(config).await
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
        assert_eq!(error.kind(), ErrorKind::Refused, "{right}: {error:?}");
        assert!(words(&error).contains(right), "{right}: {}", words(&error));
    }
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
