//! TLS, and a user that is named beside the URL.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::fixture::{self, Ran, Tool};
use testkit::{Certificates, Cluster, ClusterConfig, Result, ServerSettings, StandaloneServer};

const PASSWORD: &str = "a-password";

fn certificates() -> Result<Certificates> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, "authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let root = authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate()?;
    let own = CertificateParams::new(vec!["127.0.0.1".into()])?;
    Ok(Certificates {
        authority: root,
        certificate: own.signed_by(&key, &issuer)?.pem(),
        key: key.serialize_pem(),
    })
}

async fn run(tool: &Tool, password: &str, args: &[&str]) -> Result<Ran> {
    let mut command = tool.command(args);
    command.env("RWLEASE_USER", "locker").env("RWLEASE_PASSWORD", password);
    fixture::ran(command).await
}

#[tokio::test]
async fn tls_roots_and_user_are_checked_by_run_status_and_doctor() -> Result {
    let certificates = certificates()?;
    let settings = ServerSettings { tls: Some(certificates.clone()), ..ServerSettings::default() };
    let settings = settings.line(format!("user locker on >{PASSWORD} ~* &* +@all"));
    let cluster =
        Cluster::start_with(ClusterConfig { settings, ..ClusterConfig::of(1, 0) }).await?;
    let roots = std::env::temp_dir().join(format!("rwlease-roots-{}.pem", cluster.node(0).port()));
    std::fs::write(&roots, &certificates.authority)?;
    let roots = roots.to_string_lossy().into_owned();
    let port = cluster.node(0).tls_port().unwrap_or_default();
    let tool = Tool::new([format!("rediss://127.0.0.1:{port}")]);

    let held =
        run(&tool, PASSWORD, &["run", "--tls-roots", &roots, "a", "--", "echo", "held"]).await?;
    assert_eq!((held.status, held.out.as_str()), (Some(0), "held\n"), "{held:?}");
    let looked = run(&tool, PASSWORD, &["doctor", "--tls-roots", &roots]).await?;
    assert_eq!(looked.status, Some(0), "{looked:?}");
    for command in [&["status", "a"][..], &["doctor"]] {
        let trusting = [command, &["--tls-roots", &roots]].concat();
        let refused = run(&tool, "another", &trusting).await?;
        assert_eq!(refused.status, Some(77), "{refused:?}");
        let untrusted = run(&tool, PASSWORD, command).await?;
        assert_eq!(untrusted.status, Some(77), "{untrusted:?}");
    }
    // The doctor does not name itself, and has the hints of the others.
    let refused = run(&tool, "another", &["doctor", "--tls-roots", &roots]).await?;
    assert!(refused.err.contains("WRONGPASS"), "{refused:?}");
    assert!(!refused.err.contains("`rwlease doctor`"), "{refused:?}");
    let plain = Tool::new([format!("redis://127.0.0.1:{port}")]);
    let unexpected = run(&plain, PASSWORD, &["doctor"]).await?;
    assert!(unexpected.err.contains("check whether the port expects TLS"), "{unexpected:?}");
    std::fs::remove_file(roots)?;
    Ok(())
}

#[tokio::test]
async fn roots_file_without_a_certificate_is_a_usage_error() -> Result {
    let key = std::env::temp_dir().join(format!("rwlease-key-{}.pem", std::process::id()));
    std::fs::write(&key, certificates()?.key)?;
    let tool = Tool::new(["rediss://127.0.0.1:1"]);
    for command in [&["status", "a"][..], &["doctor"]] {
        let ran = tool.run(&[command, &["--tls-roots", &key.to_string_lossy()]].concat()).await?;
        assert_eq!(ran.status, Some(64), "{ran:?}");
        assert!(ran.err.contains("no certificate in"), "{ran:?}");
    }
    std::fs::remove_file(key)?;
    Ok(())
}

#[tokio::test]
async fn password_without_a_user_is_of_the_default_user() -> Result {
    let server = StandaloneServer::start_with(ServerSettings::default().password(PASSWORD)).await?;
    let run = async |url: String, password: &str, args: &[&str]| {
        let mut command = Tool::new([url]).command(args);
        command.env("RWLEASE_PASSWORD", password);
        fixture::ran(command).await
    };
    let bare = || format!("redis://{}", server.address());
    for args in [&["run", "a", "--", "true"][..], &["status", "a"], &["doctor"]] {
        let ran = run(bare(), PASSWORD, args).await?;
        assert_eq!(ran.status, Some(0), "{ran:?}");
    }
    let refused = run(bare(), "another", &["status", "a"]).await?;
    assert_eq!(refused.status, Some(77), "{refused:?}");
    let with_its_own = run(server.url(), "another", &["status", "a"]).await?;
    assert_eq!(with_its_own.status, Some(0), "{with_its_own:?}");
    Ok(())
}

#[tokio::test]
async fn password_with_commas_in_a_url_is_accepted() -> Result {
    let server = StandaloneServer::start_with(ServerSettings::default().password("a,b,c")).await?;
    let other = StandaloneServer::start_with(ServerSettings::default().password("a,b,c")).await?;
    let tool = Tool::new([server.url()]);
    for args in [&["status", "a"][..], &["doctor"]] {
        let ran = tool.run(args).await?;
        assert_eq!(ran.status, Some(0), "{ran:?}");
    }
    let both = Tool::new([server.url(), other.url()]).run(&["doctor"]).await?;
    assert!(both.out.contains("its own locks"), "{both:?}");
    Ok(())
}

#[tokio::test]
async fn user_without_a_password_is_a_usage_error() -> Result {
    let ran = Tool::new(["redis://127.0.0.1:1"]).run(&["status", "--user", "locker", "a"]).await?;
    assert_eq!(ran.status, Some(64));
    assert!(ran.err.contains("RWLEASE_PASSWORD"), "{ran:?}");
    Ok(())
}
