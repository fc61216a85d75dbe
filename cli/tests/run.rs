//! `rwlease run`: the lock, the command, its exit status.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use rwlease::Client;

use crate::fixture::{self, RWLEASE, Tool, alone};
use testkit::{Result, StandaloneServer, TempFolder};

#[tokio::test]
async fn run_exits_with_the_status_of_its_command() -> Result {
    let (_server, tool) = alone().await?;
    for (script, status) in
        [("true", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
    {
        tool.run(&["run", "a", "--", "sh", "-c", script]).await?.expect_err_lines(status, 0);
    }
    tool.exits(&["run", "a", "--", "/no/such/command"], 127).await?;
    let ran = tool.exits(&["run", "a", "--", "/etc/passwd"], 126).await?;
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    let status = tool.status("a").await?;
    assert_eq!(status["locked"], false, "every one of them gave it back");
    Ok(())
}

#[tokio::test]
async fn run_gives_its_command_a_token_and_tokens_rise() -> Result {
    let (_server, tool) = alone().await?;
    let mut last = 0;
    for mode in ["--read", "--write", "--write"] {
        let ran = tool.run(&["run", mode, "a", "--", "sh", "-c", "echo $RWLEASE_TOKEN"]).await?;
        let token: u64 = ran.out.trim().parse()?;
        assert!(token > last, "{token} after {last}");
        assert_eq!(tool.status("a").await?["token"], token);
        last = token;
    }
    Ok(())
}

#[tokio::test]
async fn run_gives_its_command_the_id_that_status_shows() -> Result {
    let (_server, tool) = alone().await?;
    let mut run = tool.start(&["run", "a", "--", "sh", "-c", "echo $RWLEASE_ID; sleep 60"])?;
    let id = run.line().await?;
    assert_eq!(tool.status("a").await?["writer"]["id"], id.as_str());
    run.signal(Signal::TERM)?;
    assert_eq!(run.ended().await?.status, Some(143));
    Ok(())
}

#[tokio::test]
async fn run_readers_share_and_writers_exclude() -> Result {
    let (_server, tool) = alone().await?;
    let mut command = tool.command(&["run", "--read", "a", "--", "sh", "-c", "echo in; read line"]);
    command.stdin(Stdio::piped());
    let mut reader = fixture::start(command)?;
    assert_eq!(reader.line().await?, "in");
    for (mode, timeout, status) in
        [("--read", "0s", 0), ("--read", "5s", 0), ("--write", "0s", 75), ("--write", "1s", 75)]
    {
        let run = ["run", mode, "--timeout", timeout, "a", "--", "true"];
        let ran = tool.exits(&run, status).await?;
        assert_eq!(ran.err.lines().count(), usize::from(status != 0), "{ran:?}");
    }
    assert_eq!(tool.status("a").await?["waiter_count"], 0, "who gave up waits no more");
    drop(reader); // its input ends with it
    Ok(())
}

#[tokio::test]
async fn run_whose_timeout_is_over_never_starts_its_command() -> Result {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let (server, tool) = alone().await?;
    let guard = Client::connect([server.url()]).await?.rwlock("a")?.write().await?;
    let run = tool.start(&["run", "--timeout", "2s", "a", "--", "echo", "started"])?;
    tool.until("a", |status| status["waiter_count"] == 1).await?;
    tokio::time::sleep(TIMEOUT).await; // by now the timeout is over, and not for long
    let _ = guard.release().await?;
    run.ended().await?.expect_output(75, "");
    assert_eq!(tool.status("a").await?["locked"], false);
    Ok(())
}

#[tokio::test]
async fn run_passes_signals_on_to_its_command() -> Result {
    let (_server, tool) = alone().await?;
    // dash drops a signal that comes while it starts a program in the foreground.
    let script = "for signal in HUP INT TERM USR1 USR2 ALRM XCPU XFSZ VTALRM PROF IO PWR URG; do
                      trap \"echo $signal; exit 41\" $signal
                  done
                  echo ready; while :; do sleep 0.05 & wait; done";
    let trapped = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::ALARM, "ALRM"),
        (Signal::XCPU, "XCPU"),
        (Signal::XFSZ, "XFSZ"),
        (Signal::VTALARM, "VTALRM"),
        (Signal::PROF, "PROF"),
        (Signal::IO, "IO"),
        (Signal::POWER, "PWR"),
        (Signal::URG, "URG"),
    ];
    let trapped = trapped.map(|(signal, name)| (signal, format!("{name}\n"), 41));
    let ending = [(Signal::QUIT, 128 + 3), (Signal::ABORT, 128 + 6)];
    let ending = ending.map(|(signal, status)| (signal, String::new(), status));
    for (signal, said, status) in trapped.into_iter().chain(ending) {
        let mut run = tool.start(&["run", "a", "--", "sh", "-c", script])?;
        assert_eq!(run.line().await?, "ready");
        run.signal(signal)?;
        let ran = run.ended().await?;
        assert_eq!((ran.status, &ran.out), (Some(status), &said), "{signal:?}: {ran:?}");
    }
    assert_eq!(tool.status("a").await?["locked"], false);
    Ok(())
}

#[tokio::test]
async fn run_keeps_ignoring_signals_ignored_at_its_start() -> Result {
    let (_server, tool) = alone().await?;
    let nohup = format!(
        "trap '' HUP; exec {RWLEASE} run a -- sh -c 'kill -HUP $PPID; kill -HUP $$; sleep 0.2; echo on'"
    );
    fixture::ran(tool.shell(&nohup)).await?.expect_output(0, "on\n");
    Ok(())
}

/// The standard library sets SIGPIPE to its default in each process that it starts.
#[tokio::test]
async fn run_lets_sigpipe_end_its_command_although_it_was_ignored() -> Result {
    let (_server, tool) = alone().await?;
    let script = "kill -PIPE $$; echo on";
    let ignoring = |command: &str| tool.shell(&format!("trap '' PIPE; exec {command}"));
    fixture::ran(ignoring(&format!("sh -c '{script}'"))).await?.expect_output(0, "on\n");
    let run = ignoring(&format!("{RWLEASE} run a -- sh -c '{script}'"));
    fixture::ran(run).await?.expect_output(128 + 13, "");
    // A command that is to ignore it does so itself.
    let again = format!("{RWLEASE} run a -- env --ignore-signal=PIPE sh -c '{script}'");
    fixture::ran(ignoring(&again)).await?.expect_output(0, "on\n");
    Ok(())
}

/// As the child of a program that blocks signals. SIGCHLD, which tells of a command that was
/// stopped, is the exception.
#[tokio::test]
async fn run_started_with_blocked_signals_leaves_them_blocked() -> Result {
    const BLOCKED: &str = "
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
os.execvp(sys.argv[1], sys.argv[1:])
";
    let server = StandaloneServer::start().await?;
    let script = "kill -TERM $PPID; kill -TERM $$; kill -TSTP $$; echo on";
    let mut command = fixture::hearing("python3");
    command.args(["-c", BLOCKED, RWLEASE, "run", "a", "--", "sh", "-c", script]);
    command.env("RWLEASE_URL", server.url()).kill_on_drop(true);
    fixture::ran(command).await?.expect_output(0, "on\n");
    Ok(())
}

#[tokio::test]
async fn run_terminated_while_it_waits_leaves_the_queue() -> Result {
    let (_server, tool) = alone().await?;
    let holder = tool.start(&["run", "a", "--", "sleep", "60"])?;
    tool.until("a", |status| status["locked"] == true).await?;
    let waiter = tool.start(&["run", "a", "--", "echo", "never"])?;
    tool.until("a", |status| status["waiter_count"] == 1).await?;
    waiter.signal(Signal::TERM)?;
    waiter.ended().await?.expect_output(143, "");
    assert_eq!(tool.status("a").await?["waiter_count"], 0);
    holder.signal(Signal::TERM)?;
    assert_eq!(holder.ended().await?.status, Some(143));
    Ok(())
}

#[tokio::test]
async fn run_interrupted_during_its_release_ends() -> Result {
    let (server, tool) = alone().await?;
    let script = "trap 'echo over; exit 41' INT; echo ready; while :; do sleep 0.05 & wait; done";
    let mut run = tool.start(&["run", "--lease", "10m", "a", "--", "sh", "-c", script])?;
    assert_eq!(run.line().await?, "ready");
    server.freeze()?;
    run.signal(Signal::INT)?;
    assert_eq!(run.line().await?, "over");
    tokio::time::sleep(Duration::from_millis(500)).await; // its end was seen by then; if not, the command is gone and hears nothing
    run.signal(Signal::INT)?;
    let ran = run.ended().await?.expect_status(41); // the command's
    ran.expect_err(&["interrupted its release; its lease ends it"]);
    server.thaw()
}

#[tokio::test]
async fn run_applies_lease_prefix_and_replicas() -> Result {
    let (server, tool) = alone().await?;
    let run =
        tool.start(&["run", "--lease", "1500ms", "--prefix", "mine:", "a", "--", "sleep", "60"])?;
    let keys = async || server.run_words::<Vec<String>>("KEYS *").await;
    while !keys().await?.contains(&"mine:a".to_owned()) {}
    let keys = keys().await?;
    assert!(keys.iter().all(|key| key == "mine:a" || key.starts_with("mine:client:")), "{keys:?}");
    let ran = tool.run(&["status", "--json", "--prefix", "mine:", "a"]).await?;
    let status: serde_json::Value = serde_json::from_str(&ran.out)?;
    let left = status["writer"]["lease_remaining"].as_f64().unwrap_or_default();
    assert!(left > 0.0 && left <= 1.5, "{status}");
    run.signal(Signal::TERM)?;
    run.ended().await?;
    let ran = tool.exits(&["run", "--min-replicas", "1", "b", "--", "true"], 69).await?;
    ran.expect_err(&["; check that the replicas run"]);
    let tool = tool.env("RWLEASE_MIN_REPLICAS", "1");
    tool.exits(&["run", "c", "--", "true"], 69).await?;
    tool.exits(&["run", "--min-replicas", "0", "c", "--", "true"], 0).await?;
    Ok(())
}

#[tokio::test]
async fn run_with_fsync_runs_the_command_only_where_disks_confirm() -> Result {
    let (server, tool) = alone().await?;
    let run = &["run", "--fsync", "master", "a", "--", "true"];
    // It keeps no file.
    let refused = tool.exits(run, 77).await?;
    if !server.version().has_waitaof() {
        refused.expect_err(&["needs Redis 7.2 or later, or Valkey"]);
        return Ok(());
    }
    refused.expect_err(&["set `appendonly yes` there"]);
    server.run_words::<()>("CONFIG SET appendonly yes").await?;
    tool.exits(run, 0).await?;
    server.run_words::<()>("CONFIG SET appendonly no").await?;
    tool.env("RWLEASE_FSYNC", "master").exits(&["run", "a", "--", "true"], 77).await?;
    Ok(())
}

#[tokio::test]
async fn run_passes_its_servers_and_its_prefix_on_to_the_command() -> Result {
    let server = StandaloneServer::start().await?;
    let tool = Tool::new(["redis://127.0.0.1:1"]);
    let url = server.url();
    let inner = format!("exec {RWLEASE} status --json a");
    for way in ["--write", "--transfer"] {
        let run = ["run", way, "--redis", &url, "--prefix", "mine:", "a", "--", "sh", "-c", &inner];
        let ran = tool.exits(&run, 0).await?;
        let status: serde_json::Value = serde_json::from_str(&ran.out)?;
        assert_eq!(status["locked"], true, "{status}");
    }
    let script = "echo $RWLEASE_USER $RWLEASE_SENTINEL_USER $RWLEASE_TLS_ROOTS";
    let ran = tool.run(&["run", "--redis", &url, "b", "--", "sh", "-c", script]).await?;
    assert_eq!(ran.out, "\n", "what is not set is not passed on: {ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_accepts_a_lock_name_that_begins_with_a_hyphen() -> Result {
    let (_server, tool) = alone().await?;
    let script = format!("exec {RWLEASE} list -- -");
    let ran = tool.run(&["run", "--lease", "9s", "--", "-x", "--", "sh", "-c", &script]).await?;
    assert!(ran.status == Some(0) && ran.out.contains("\n-x    write"), "{ran:?}");
    tool.run(&["run", "a", "--", "echo", "--", "b"]).await?.expect_output(0, "-- b\n");
    Ok(())
}

/// As shells do.
#[tokio::test]
async fn run_of_a_script_without_an_interpreter_uses_the_shell() -> Result {
    let (_server, tool) = alone().await?;
    let folder = TempFolder::new("script")?;
    let file = folder.write_program("script", "echo $1\n")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    let tool = tool.env("PATH", path);
    for (lock, way, name) in [
        ("a", "--write", &*file),
        ("b", "--write", "script"),
        ("c", "--transfer", &*file),
        ("d", "--transfer", "script"),
    ] {
        tool.run(&["run", way, lock, "--", name, "hello"]).await?.expect_output(0, "hello\n");
    }
    Ok(())
}

#[tokio::test]
async fn run_permits_are_shared_up_to_the_limit() -> Result {
    let (server, tool) = alone().await?;
    let held = ["run", "--permits", "2/3", "a", "--", "sh", "-c", "echo in; read line"];
    let mut command = tool.command(&held);
    command.stdin(Stdio::piped());
    let mut holder = fixture::start(command)?;
    assert_eq!(holder.line().await?, "in");
    for (permits, status) in [("1/3", 0), ("2/3", 75), ("1/4", 64), ("0/3", 64), ("4/3", 64)] {
        let run = ["run", "--permits", permits, "--timeout", "0s", "a", "--", "true"];
        let ran = tool.exits(&run, status).await?;
        assert_eq!(ran.err.lines().count(), usize::from(status != 0), "{ran:?}");
    }
    for wrong in ["2", "x/3", "2/x", "-1/3", "2/"] {
        let permits = format!("--permits={wrong}");
        tool.exits(&["run", &permits, "a", "--", "true"], 64).await?;
    }
    tool.exits(&["run", "--read", "--permits", "1/3", "a", "--", "true"], 64).await?;
    let lock = tool.exits(&["run", "a", "--", "true"], 65).await?;
    lock.expect_err(&["`a` is a semaphore; use --permits"]);
    for args in [&["revoke", "a"][..], &["release", "--force", "a"]] {
        let ran = tool.exits(args, 65).await?;
        assert!(ran.err.contains("`a` is a semaphore; its permits"), "{ran:?}");
    }
    let _guard = Client::connect([server.url()]).await?.rwlock("b")?.read().await?;
    let ran = tool.exits(&["run", "--permits", "1/3", "b", "--", "true"], 65).await?;
    assert!(ran.err.contains("`b` is a read/write lock; leave out --permits"), "{ran:?}");
    let status = tool.status("a").await?;
    assert_eq!((&status["limit"], &status["in_use"]), (&3.into(), &2.into()));
    assert_eq!(status["holders"][0]["permits"], 2);
    let words = tool.run(&["status", "a"]).await?.out;
    assert!(words.contains("semaphore, 2 of 3 permits in use"), "{words}");
    Ok(())
}
