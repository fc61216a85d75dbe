//! TLS, and a user that is named beside the URL.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::fixture::Tool;
use testkit::{
    Certificates, Cluster, ClusterConfig, Result, ServerSettings, StandaloneServer, TempFolder,
};

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

#[tokio::test]
async fn tls_roots_and_user_are_checked_by_run_status_and_doctor() -> Result {
    let certificates = certificates()?;
    let settings = ServerSettings { tls: Some(certificates.clone()), ..ServerSettings::default() };
    let settings = settings.line(format!("user locker on >{PASSWORD} ~* &* +@all"));
    let cluster =
        Cluster::start_with(ClusterConfig { settings, ..ClusterConfig::of(1, 0) }).await?;
    let folder = TempFolder::new("roots")?;
    let roots = folder.write("roots.pem", &certificates.authority)?;
    let port = cluster.node(0).tls_port().unwrap_or_default();
    let as_locker = |scheme, password| {
        let tool = Tool::new([format!("{scheme}://127.0.0.1:{port}")]);
        tool.env("RWLEASE_USER", "locker").env("RWLEASE_PASSWORD", password)
    };
    let (tool, guessing) = (as_locker("rediss", PASSWORD), as_locker("rediss", "another"));

    let held = tool.run(&["run", "--tls-roots", &roots, "a", "--", "echo", "held"]).await?;
    assert_eq!((held.status, held.out.as_str()), (Some(0), "held\n"), "{held:?}");
    tool.exits(&["doctor", "--tls-roots", &roots], 0).await?;
    for command in [&["status", "a"][..], &["doctor"]] {
        let trusting = [command, &["--tls-roots", &roots]].concat();
        guessing.exits(&trusting, 77).await?;
        tool.exits(command, 77).await?;
    }
    // The doctor does not name itself, and has the hints of the others.
    let refused = guessing.run(&["doctor", "--tls-roots", &roots]).await?;
    refused.expect_err(&["WRONGPASS"]);
    assert!(!refused.err.contains("`rwlease doctor`"), "{refused:?}");
    let plain = as_locker("redis", PASSWORD);
    plain.run(&["doctor"]).await?.expect_err(&["check whether the port expects TLS"]);
    Ok(())
}

#[tokio::test]
async fn roots_file_without_a_certificate_is_a_usage_error() -> Result {
    let folder = TempFolder::new("key")?;
    let key = folder.write("key.pem", certificates()?.key)?;
    let tool = Tool::new(["rediss://127.0.0.1:1"]);
    for command in [&["status", "a"][..], &["doctor"]] {
        let ran = tool.exits(&[command, &["--tls-roots", &key]].concat(), 64).await?;
        ran.expect_err(&["no certificate in"]);
    }
    Ok(())
}

#[tokio::test]
async fn password_without_a_user_is_of_the_default_user() -> Result {
    let server = StandaloneServer::start_with(ServerSettings::default().password(PASSWORD)).await?;
    let bare = Tool::new([format!("redis://{}", server.address())]);
    for args in [&["run", "a", "--", "true"][..], &["status", "a"], &["doctor"]] {
        bare.env("RWLEASE_PASSWORD", PASSWORD).exits(args, 0).await?;
    }
    bare.env("RWLEASE_PASSWORD", "another").exits(&["status", "a"], 77).await?;
    let with_its_own = Tool::new([server.url()]).env("RWLEASE_PASSWORD", "another");
    with_its_own.exits(&["status", "a"], 0).await?;
    Ok(())
}

#[tokio::test]
async fn password_with_commas_in_a_url_is_accepted() -> Result {
    let server = StandaloneServer::start_with(ServerSettings::default().password("a,b,c")).await?;
    let other = StandaloneServer::start_with(ServerSettings::default().password("a,b,c")).await?;
    let tool = Tool::new([server.url()]);
    for args in [&["status", "a"][..], &["doctor"]] {
        tool.exits(args, 0).await?;
    }
    Tool::new([server.url(), other.url()]).run(&["doctor"]).await?.expect_out(&["its own locks"]);
    Ok(())
}
