//! Each error: its exit status, and one line that says what to do.

use std::io::Write;

use rustix::process::geteuid;
use rwlease::Client;
use tokio::time::timeout;

use crate::fixture::{self, LONG, RWLEASE, Tool, alone, hearing};
use testkit::{Cluster, ClusterConfig, Fake, Result, ServerSettings, StandaloneServer, TempFolder};

/// The status, and a word of the line.
async fn fails(tool: &Tool, args: &[&str], status: i32, word: &str) -> Result {
    let ran = tool.exits(args, status).await?;
    assert_eq!(ran.err.lines().count(), 1, "{args:?}: {ran:?}");
    assert!(ran.err.starts_with("rwlease: ") && ran.err.contains("; "), "{args:?}: {ran:?}");
    assert!(ran.err.contains(word), "{args:?}: {ran:?}");
    assert!(!ran.err.contains("secret"), "a password: {ran:?}");
    assert!(!ran.err.contains('\x1b'), "colour is for terminals: {ran:?}");
    assert_eq!(ran.out, "", "{args:?}");
    Ok(())
}

#[tokio::test]
async fn command_line_errors_exit_64_and_name_the_cause() -> Result {
    let tool = Tool::new(["redis://127.0.0.1:1"]);
    for (args, word) in [
        (&["stauts", "a"][..], "status"),
        (&["status"], "NAME"),
        (&["status", "a", "--every", "2s"], "--watch"),
        (&["run", "a"], "COMMAND"),
        (&["run", "a", "true"], "-- <COMMAND>"),
        (&["run", "--read", "--write", "a", "--", "true"], "--write"),
        (&["run", "--lease", "5parsecs", "a", "--", "true"], "1500ms"),
        (&["run", "--lease", "3s", "--grace", "2s", "a", "--", "true"], "--grace"),
        (&["run", "--min-replicas", "many", "a", "--", "true"], "--min-replicas"),
        (&["run", "--fsync", "disk", "a", "--", "true"], "--fsync"),
        (&["run", "--fsync", "replicas", "a", "--", "true"], "--min-replicas"),
        (&["release", "a"], "--force"),
        (&["slot"], "NAME"),
        (&["completions", "csh"], "bash"),
        (&["man", "nothing"], "nothing"),
        (&["status", "a", "--tls-cert", "x"], "--tls-key"),
        (&["status", "a", "--user", "locker"], "RWLEASE_PASSWORD"),
        (&["status", "a", "--redis", "redis://u:secret@x:y"], "`redis://u:***@x:y`"),
        (&["status", "a", "--redis", "redis://u@x"], "`user:password@`"),
        (&["doctor", "--redis", "http://x"], "invalid URL of a server `http://x`"),
        (&["doctor", "--redis", "redis://u:secret@x:y"], "`redis://u:***@x:y`"),
        (&["doctor", "--redis", "redis://x,redis://u:secret@x/y"], "database is not a number"),
        (&["doctor", "--redis", "redis+sentinel://u:secret@s"], "`redis+sentinel://u:***@s`"),
        (&["doctor", "--redis", "redis://u@x"], "`user:password@`"),
    ] {
        fails(&tool, args, 64, word).await?;
    }
    fails(&Tool::new([""]), &["status", "a"], 64, "RWLEASE_URL").await
}

#[tokio::test]
async fn commands_without_a_server_exit_69_and_name_it() -> Result {
    let tool = Tool::new(["redis://127.0.0.1:1"]);
    for args in [
        &["run", "a", "--", "true"][..],
        &["status", "a"],
        &["list"],
        &["revoke", "a"],
        &["release", "--force", "a"],
        &["doctor"],
    ] {
        fails(&tool, args, 69, "127.0.0.1:1").await?;
    }
    fails(&tool, &["list", "--tls-roots", "/no/such/file"], 71, "/no/such/file").await
}

#[tokio::test]
async fn commands_refused_by_the_server_exit_77_with_advice() -> Result {
    let settings = ServerSettings::default()
        .password("secret")
        .line("user weak on >p ~* &* -@all +time +cluster|slots +info");
    let server = StandaloneServer::start_with(settings).await?;
    let wrong = server.url().replace("secret", "guessed");
    assert_ne!(wrong, server.url());
    fails(&Tool::new([&wrong]), &["status", "a"], 77, "; check the user and the password").await?;
    fails(&Tool::new([&wrong]), &["doctor"], 77, "password").await?;
    let told = Tool::new([&wrong]).run(&["status", "a"]).await?.err;
    assert_eq!(told.matches("username-password").count(), 1, "told twice: {told}");
    let weak = server.url().replace(":secret@", "weak:p@");
    fails(&Tool::new([&weak]), &["run", "a", "--", "true"], 77, "rwlease doctor").await?;
    fails(&Tool::new([&weak]), &["list"], 77, "scan").await
}

#[tokio::test]
async fn advice_matches_the_reply_at_the_address() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    for (fake, status, advice) in [
        (
            Fake::repeating("HTTP/1.1 400 Bad Request\r\n\r\n").await?,
            69,
            "; check that a Redis or Valkey",
        ),
        (Fake::repeating("-ERR unknown command 'HELLO'\r\n").await?, 77, "does not speak RESP3"),
        (Fake::repeating("-LOADING it loads\r\n").await?, 69, "; wait until the server has loaded"),
    ] {
        for command in [&["status", "a"][..], &["doctor"]] {
            fails(&Tool::new([fake.url()]), command, status, advice).await?;
        }
    }
    let database = Tool::new([format!("{}/1", cluster.node(0).url())]);
    let advice = "; leave the database out of the URL";
    fails(&database, &["status", "a"], 64, advice).await?;
    fails(&database, &["doctor"], 64, advice).await
}

/// The resolver of the system cannot be stopped. This needs a network of its own, whose name server
/// never answers, and says so where there can be none.
#[tokio::test]
async fn status_with_a_silent_name_server_exits() -> Result {
    const NETWORK: &str =
        "ip link set lo up; mount --bind \"$0\" /etc/resolv.conf; exec python3 -c \"$@\"";
    const MUTE: &str = "
import socket, subprocess, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 53))
sys.exit(subprocess.run(sys.argv[1:], timeout=15).returncode)
";
    let rights = if geteuid().is_root() { "-mn" } else { "-rmn" };
    let mut network = hearing("unshare");
    network.args([rights, "true"]);
    let can = fixture::ran(network).await?;
    if can.status != Some(0) {
        let what = "usage_errors::status_with_a_silent_name_server_exits";
        writeln!(std::io::stderr(), "{what}: not run: {}", can.err)?;
        return Ok(());
    }
    let folder = TempFolder::new("resolver")?;
    let resolver =
        folder.write("resolv.conf", "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")?;
    let mut command = hearing("unshare");
    command.args([rights, "sh", "-c", NETWORK]).arg(&resolver);
    command.args([MUTE, RWLEASE, "status", "--redis", "redis://a.name.example", "a"]);
    fixture::ran(command).await?.expect_status(69).expect_err(&["a.name.example"]);
    Ok(())
}

#[tokio::test]
async fn commands_on_keys_of_another_type_exit_65() -> Result {
    let (server, tool) = alone().await?;
    server.run_words::<()>("SET rwlease:text x").await?;
    server.run_words::<()>("HSET rwlease:hash field x").await?;
    for name in ["text", "hash"] {
        fails(&tool, &["run", name, "--", "true"], 65, name).await?;
        fails(&tool, &["status", name], 65, name).await?;
        fails(&tool, &["revoke", name], 65, name).await?;
        fails(&tool, &["release", "--force", name], 65, name).await?;
    }
    fails(&tool, &["run", "", "--", "true"], 64, "name").await
}

#[tokio::test]
async fn run_timeout_covers_unanswered_calls() -> Result {
    let (server, tool) = alone().await?;
    server.freeze()?;
    fails(&tool, &["run", "--timeout", "50ms", "a", "--", "true"], 69, "--timeout").await
}

/// A cluster in which nobody serves the slot of `a`.
async fn without_a_slot() -> Result<Cluster> {
    let shape = ClusterConfig::of(1, 0).line("cluster-require-full-coverage no");
    let cluster = Cluster::start_with(shape).await?;
    cluster.node(0).run_words::<()>("CLUSTER DELSLOTS 11174").await?;
    Ok(cluster)
}

#[tokio::test]
async fn run_timeout_exits_69_on_server_trouble_and_75_behind_a_holder() -> Result {
    let cluster = without_a_slot().await?;
    let settings = ServerSettings::default().line("min-replicas-to-write 1");
    let writeless = StandaloneServer::start_with(settings).await?;
    let run = &["run", "--timeout", "3s", "a", "--", "true"];
    fails(&Tool::new(cluster.urls()), run, 69, "no master serves slot").await?;
    fails(&Tool::new([writeless.url()]), run, 69, "NOREPLICAS").await?;
    let (server, tool) = alone().await?;
    let lock = Client::connect([server.url()]).await?.rwlock("a")?;
    let _guard = lock.write().await?;
    fails(&tool, run, 75, "--timeout").await?;
    let waiter = tool.start(&["run", "--timeout", "4s", "a", "--", "true"])?;
    tool.until("a", |status| status["waiter_count"] == 1).await?;
    server.kill()?;
    waiter.ended().await?.expect_status(69).expect_err(&["no reply in time"]);
    Ok(())
}

#[tokio::test]
async fn run_without_a_timeout_reports_server_trouble() -> Result {
    let cluster = without_a_slot().await?;
    let mut run = Tool::new(cluster.urls()).start(&["run", "a", "--", "true"])?;
    let line = run.err_line().await?;
    assert!(line.starts_with("rwlease: still waiting: "), "{line}");
    assert!(line.contains("no master serves slot"), "{line}");
    Ok(())
}

#[tokio::test]
async fn unwritable_output_sets_the_exit_status() -> Result {
    let tool = Tool::new(["redis://127.0.0.1:1"]);
    for (words, status) in [
        ("slot a >/dev/full", 71),
        ("man >/dev/full", 71),
        ("--help >/dev/full", 71),
        ("status a 2>/dev/full", 69),
        ("status a 2>&-", 69),
        ("status 2>/dev/full", 64),
        ("2>/dev/full", 64),
        ("slot a >/dev/full 2>&1", 71),
    ] {
        let ran = fixture::ran(tool.shell(&format!("exec {RWLEASE} {words}"))).await?;
        assert_eq!(ran.status, Some(status), "{words}: {ran:?}");
    }
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = tool.command(&["slot", "a"]);
    command.stdout(writer);
    let status = timeout(LONG, command.status()).await??;
    assert_eq!(status.code(), Some(128 + 13), "nobody reads");
    Ok(())
}
