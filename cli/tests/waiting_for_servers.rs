//! Servers that start later, and servers that fall silent.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fixture::{Tool, alone};
use testkit::{Result, StandaloneServer};
use tokio::time::sleep;

#[tokio::test]
async fn run_wait_for_servers_runs_after_a_late_start_and_prints_one_line() -> Result {
    let (server, tool) = alone().await?;
    server.kill()?;
    let began = Instant::now();
    tool.exits(&["run", "a", "--", "echo", "ran"], 69).await?;
    assert!(began.elapsed() < Duration::from_secs(3));
    let run = tool.start(&["--wait-for-servers", "50s", "run", "a", "--", "echo", "ran"])?;
    sleep(Duration::from_secs(3)).await;
    server.restart().await?;
    let ran = run.ended().await?.expect_output(0, "ran\n");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(ran.err.contains("refused") && ran.err.contains("waiting up to 50s"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn doctor_wait_for_servers_checks_a_server_that_starts_later() -> Result {
    let (server, tool) = alone().await?;
    server.kill()?;
    tool.doctor(69).await?;
    let mut doctor = tool.start(&["--wait-for-servers", "50s", "doctor"])?;
    let line = doctor.err_line().await?;
    assert!(line.contains("waiting up to 50s"), "{line}");
    server.restart().await?;
    doctor.ended().await?.expect_err_lines(0, 0).expect_out(&["a lock was taken"]);
    Ok(())
}

#[tokio::test]
async fn wait_for_servers_ends_at_its_time_and_at_a_wrong_password() -> Result {
    let tool = Tool::new(["redis://127.0.0.1:1"]);
    let began = Instant::now();
    tool.run(&["--wait-for-servers", "2s", "status", "a"]).await?.expect_err_lines(69, 2);
    assert!(began.elapsed() >= Duration::from_secs(2) && began.elapsed() < Duration::from_secs(20));
    tool.run(&["--wait-for-servers", "1s", "list"]).await?.expect_err_lines(69, 2);
    let settings = testkit::ServerSettings::default().password("right");
    let server = StandaloneServer::start_with(settings).await?;
    let tool = Tool::new([format!("redis://:wrong@{}", server.address())]);
    tool.run(&["--wait-for-servers", "59s", "status", "a"]).await?.expect_err_lines(77, 1);
    Ok(())
}

/// The longest time that the option takes.
#[tokio::test]
async fn wait_for_servers_for_the_longest_time_waits() -> Result {
    let tool = Tool::new(["redis://127.0.0.1:1"]);
    let longest = format!("{}s", u64::MAX);
    let mut run = tool.start(&["--wait-for-servers", &longest, "status", "a"])?;
    let line = run.err_line().await?;
    assert!(line.contains("waiting up to 584542046090years"), "{line}");
    run.signal(Signal::TERM)?;
    assert_eq!(run.ended().await?.err, "");
    Ok(())
}

#[tokio::test]
async fn wait_for_servers_of_several_deployments_prints_one_line() -> Result {
    let (first, second) = (StandaloneServer::start().await?, StandaloneServer::start().await?);
    let tool = Tool::new([first.url(), second.url()]);
    let ran = tool.run(&["--wait-for-servers", "3s", "status", "a"]).await?.expect_err_lines(64, 2);
    assert!(ran.err.contains("waiting up to 2s"), "{ran:?}");
    let ran = tool
        .run(&["--wait-for-servers", "3s", "--redis", "http://127.0.0.1:1", "status", "a"])
        .await?;
    assert_eq!((ran.status, ran.err.lines().count()), (Some(64), 1), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_at_risk_prints_one_line_an_episode_and_goes_on() -> Result {
    let (server, tool) = alone().await?;
    let script = "echo ready; sleep 11; echo done";
    let mut run = tool.start(&["run", "--lease", "6s", "a", "--", "sh", "-c", script])?;
    assert_eq!(run.line().await?, "ready");
    for _ in 0..2 {
        server.freeze()?;
        let line = run.err_line().await?;
        assert!(line.contains("no renewal of the lease succeeds; unless one does"), "{line}");
        server.thaw()?;
        sleep(Duration::from_secs(1)).await;
    }
    let ran = run.ended().await?.expect_output(0, "done\n");
    assert_eq!(ran.err, "");
    Ok(())
}
