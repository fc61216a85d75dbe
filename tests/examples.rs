//! Runs each example to its end, on embedded servers and on a cluster.

// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods)]

mod support;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use support::{Cluster, ClusterConfig, Error, Result, SentinelDeployment};
use tokio::process::Command;
use tokio::time::timeout;

const EXAMPLES: &[&str] = &[
    "axum_handler",
    "blocking",
    "cache_refresh",
    "cached_config",
    "fenced_store",
    "hand_on",
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
