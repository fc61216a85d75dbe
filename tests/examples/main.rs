//! Runs each example to its end, on embedded servers and on a cluster.

// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods)]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use testkit::{Cluster, ClusterConfig, Error, Result, SentinelDeployment};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

const EXAMPLES: &[&str] = &[
    "axum_handler",
    "blocking",
    "cache_refresh",
    "cached_config",
    "fenced_store",
    "transfer",
    "leader_election",
    "run_once",
    "semaphore",
];

/// The example that needs sentinels, or no server at all.
const WITH_SENTINELS: &str = "sentinels";

/// Ends a test that would never end.
const LONG: Duration = Duration::from_secs(60);

/// The path of a built example. `cargo test` builds the examples with the tests; with `--test
/// examples` it does not, and `cargo build --examples` must run first.
fn built(example: &str) -> Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let target = tests.parent().and_then(|deps| deps.parent());
    let example = target.unwrap_or(&tests).join("examples").join(example);
    match example.is_file() {
        true => Ok(example),
        false => Err(Error::new(format!(
            "{} is not built: `cargo build --examples --all-features`",
            example.display()
        ))),
    }
}

async fn run(example: &str, urls: Option<String>) -> Result<String> {
    let mut command = Command::new(built(example)?);
    match urls {
        Some(urls) => command.env("RWLEASE_URL", urls),
        None => command.env_remove("RWLEASE_URL"),
    };
    let output = timeout(LONG, command.stdin(Stdio::null()).kill_on_drop(true).output()).await??;
    if !output.status.success() {
        return Err(Error::new(format!("{example}: {output:?}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn examples_run_on_embedded_servers() -> Result {
    for example in EXAMPLES {
        let said = run(example, None).await?;
        assert!(!said.trim().is_empty(), "{example} says nothing");
    }
    Ok(())
}

#[tokio::test]
async fn on_a_cluster() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    for example in EXAMPLES {
        cluster.node(0).reset_stats().await?;
        let said = run(example, Some(cluster.urls().join(","))).await?;
        assert!(!said.trim().is_empty(), "{example} says nothing");
        let queries = cluster.node(0).calls("cluster|slots").await?;
        assert!(queries > 0, "{example} did not query the cluster");
    }
    Ok(())
}

#[tokio::test]
async fn behind_sentinels() -> Result {
    let sentinels = SentinelDeployment::start().await?;
    for example in EXAMPLES.iter().copied().chain([WITH_SENTINELS]) {
        let said = run(example, Some(sentinels.url())).await?;
        assert!(!said.trim().is_empty(), "{example} says nothing");
    }
    assert!(run(WITH_SENTINELS, None).await?.contains("a replica knows"));
    Ok(())
}

/// The job is done: until its lease ends, no other process runs it.
#[tokio::test]
async fn run_once_example_skips_a_job_whose_lease_lasts() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let urls = || Some(cluster.urls().join(","));
    assert_eq!(run("run_once", urls()).await?.matches("runs the report").count(), 1);
    assert_eq!(run("run_once", urls()).await?.matches("runs the report").count(), 0);
    Ok(())
}

/// Requests that run at SIGTERM end, and what is still held is released.
#[tokio::test]
async fn axum_handler_example_on_sigterm_ends_requests_and_holds_nothing() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let locks = testkit::connect(&cluster.urls()).await?;
    let mut command = Command::new(built("axum_handler")?);
    command.args(["serve", "127.0.0.1:0"]).env("RWLEASE_URL", cluster.urls().join(","));
    let mut service = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let output = service.stdout.take().ok_or_else(|| Error::new("no output"))?;
    let mut lines = BufReader::new(output).lines();
    let line = timeout(LONG, lines.next_line()).await??.unwrap_or_default();
    let address = line.strip_prefix("listening on ").ok_or_else(|| Error::new(line.clone()))?;

    let mut connection = TcpStream::connect(address).await?;
    let request = b"POST /orders/7/ship HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    connection.write_all(request).await?;
    let order = locks.rwlock("order:{7}")?;
    while !order.is_locked().await? {}
    let id = service.id().ok_or_else(|| Error::new("it has ended"))?.to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await?.success());

    let mut response = String::new();
    timeout(LONG, connection.read_to_string(&mut response)).await??;
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("shipped"), "{response}");
    assert!(timeout(LONG, service.wait()).await??.success());
    assert!(!order.is_locked().await?);
    Ok(())
}

/// Of two payments one succeeds, and work that a shutdown cuts off is to be tried again.
#[tokio::test]
async fn axum_handler_example_answers_each_outcome_with_its_status() -> Result {
    let said = run("axum_handler", None).await?;
    assert!(
        said.contains("200 OK and 409 Conflict") || said.contains("409 Conflict and 200 OK"),
        "{said}"
    );
    assert!(said.contains("cut off: 503 Service Unavailable; may still be held: []"), "{said}");
    Ok(())
}
