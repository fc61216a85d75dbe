//! The recipes of `docs/jobs.md`: each is run as it stands there.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use rustix::process::Signal;
use rwlease::Client;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::fixture::{LONG, RWLEASE, Ran, Running, Tool, alone, hearing, ran};
use testkit::{
    CutPoint, Error, Fake, Proxy, ProxyFlow, Result, ServerAct, StandaloneServer, TempFolder,
};

const PAGE: &str = include_str!("../../docs/jobs.md");

/// A machine, on which the job `report` counts its runs.
struct Machine {
    folder: TempFolder,
    url: String,
}

impl Machine {
    fn new(server: &StandaloneServer, name: &str) -> Result<Machine> {
        let folder = TempFolder::new(&format!("jobs-{name}"))?;
        let job = "#!/bin/sh\necho run >> \"$(dirname \"$0\")/runs\"\nsleep 0.2\n";
        folder.write_program("report", job)?;
        std::os::unix::fs::symlink(RWLEASE, folder.join("rwlease"))?;
        Ok(Machine { folder, url: server.url() })
    }

    /// Starts a line of the page, as cron or systemd would.
    fn shell(&self, line: &str) -> Command {
        let mut command = hearing("sh");
        let path = format!("{}:/usr/bin:/bin", self.folder.display());
        command.args(["-c", line]).env("PATH", path).env("RWLEASE_URL", &self.url);
        command.current_dir(&self.folder).stdin(std::process::Stdio::null());
        command
    }

    fn runs(&self) -> usize {
        let runs = std::fs::read_to_string(self.folder.join("runs"));
        runs.map_or(0, |runs| runs.lines().count())
    }
}

/// The text behind the first line of the page that begins so.
fn of_page(start: &str) -> &'static str {
    let line = PAGE.lines().find_map(|line| line.strip_prefix(start));
    line.expect("the page has the line").trim_start()
}

/// The code block of the page that begins with this line and has that one.
fn block(has: &str) -> &'static str {
    PAGE.split("```")
        .find(|block| block.starts_with("ini\n") && block.contains(has))
        .expect("the page has the block")
        .trim_start_matches("ini\n")
}

async fn runs_once(line: &str, name: &str) -> Result {
    let server = StandaloneServer::start().await?;
    let (one, other) = (Machine::new(&server, &format!("{name}-1"))?, Machine::new(&server, name)?);
    let machines = [&one, &other];
    let starts = machines.iter().flat_map(|machine| [machine, machine]).enumerate();
    let all: Vec<Ran> = try_join_all(starts.map(|(at, machine)| async move {
        sleep(Duration::from_millis(100) * at as u32).await;
        let line = line.replace("/usr/local/bin", &machine.folder.display().to_string());
        ran(machine.shell(&line)).await
    }))
    .await?;
    for ran in &all {
        assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (Some(0), "", ""), "{line}");
    }
    assert_eq!(one.runs() + other.runs(), 1, "{line}");
    let lock = Client::connect([server.url()]).await?.rwlock("report")?;
    let left = lock.status().await?.writer.expect("it is taken").lease_remaining;
    assert!(left > Duration::from_secs(49 * 60) && left <= Duration::from_secs(3_000), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn cron_line_of_the_page_runs_the_job_once() -> Result {
    runs_once(of_page("0 * * * *"), "cron").await
}

#[tokio::test]
async fn systemd_service_of_the_page_runs_the_job_once() -> Result {
    runs_once(of_page("ExecStart="), "systemd").await
}

/// Where systemd is installed, it also checks the units.
#[tokio::test]
async fn systemd_units_of_the_page_are_valid() -> Result {
    let (server, _) = alone().await?;
    let machine = Machine::new(&server, "units")?;
    let place = machine.folder.display().to_string();
    let service = block("[Service]").replace("/usr/local/bin", &place);
    machine.folder.write("report.service", service)?;
    machine.folder.write("report.timer", block("[Timer]"))?;
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        println!("systemd is not installed: its units are not checked");
        return Ok(());
    }
    let verify = "systemd-analyze verify --man=no report.service report.timer";
    let verified = ran(machine.shell(verify)).await?;
    let is_about_units = verified.err.lines().any(|line| line.contains("report."));
    assert!(!is_about_units, "{verified:?}");
    let calendar = of_page("OnCalendar=");
    ran(machine.shell(&format!("systemd-analyze calendar {calendar}"))).await?.expect_status(0);
    Ok(())
}

#[tokio::test]
async fn run_at_least_on_two_machines_runs_once_per_period() -> Result {
    const PERIOD: Duration = Duration::from_secs(2);
    let (server, _) = alone().await?;
    let (one, other) = (Machine::new(&server, "first")?, Machine::new(&server, "second")?);
    let line = "rwlease run --at-least 1s --ok-if-held periodic -- ./report";
    let periods = async |machine: &Machine, delay| -> Result {
        sleep(delay).await;
        let mut ticks = tokio::time::interval(PERIOD);
        for _ in 0..4 {
            ticks.tick().await;
            ran(machine.shell(line)).await?.expect_err_lines(0, 0);
        }
        Ok(())
    };
    let half = Duration::from_millis(500);
    tokio::try_join!(periods(&one, Duration::ZERO), periods(&other, half))?;
    assert_eq!(one.runs() + other.runs(), 4);
    Ok(())
}

#[tokio::test]
async fn run_at_least_keeps_the_lock_of_a_failed_or_killed_job() -> Result {
    let (_server, tool) = alone().await?;
    let at_least = |name: &str, script: &str| {
        let args = ["run", "--at-least", "60s", "--lease", "3s", name, "--", "sh", "-c", script];
        args.map(str::to_owned)
    };
    for (script, status) in [
        ("exit 7", Some(7)),
        ("kill -KILL $$", Some(137)),
        ("kill -KILL $PPID; exec sleep 60", None),
    ] {
        let name = format!("job {status:?}");
        let args = at_least(&name, script);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let ran = tool.run(&args).await?;
        assert_eq!((ran.status, ran.err.as_str()), (status, ""), "{script}");
        let left = tool.status(&name).await?["writer"]["lease_remaining"].as_f64();
        assert!(left.is_some_and(|left| left > 50.0 && left <= 60.0), "{script}: {left:?}");
    }
    Ok(())
}

/// The launched process has the status of the command, and reports that it could not become it.
#[tokio::test]
async fn run_at_least_of_a_command_that_cannot_run_frees_the_lock() -> Result {
    let (_server, tool) = alone().await?;
    let folder = TempFolder::new("cannot-run")?;
    let script = folder.write_program("script", "#!/no/such/interpreter\n")?;
    let folder = folder.display().to_string();
    for (command, status) in [("/no/such", 127), (&script, 127), (&folder, 126)] {
        let ran = tool.run(&["run", "--at-least", "60s", "x", "--", command]).await?;
        assert_eq!((ran.status, ran.err.lines().count()), (Some(status), 1), "{ran:?}");
        assert!(ran.err.contains("the lock is released"), "{ran:?}");
        let writer = tool.status("x").await?["writer"].clone();
        assert!(writer.is_null(), "{command}: {writer}");
    }
    tool.exits(&["run", "--at-least", "60s", "x", "--", "sh", "-c", "exit 127"], 127).await?;
    assert!(tool.status("x").await?["writer"].is_object(), "the command has run");
    Ok(())
}

/// A run of a job whose acquire the server has executed, without a reply. No call gets through to
/// the server until the proxy is healed.
async fn in_doubt(server: &StandaloneServer, limit: &str) -> Result<(Proxy, Running)> {
    // The server must know the scripts: the trap is for the first call.
    Tool::new([server.url()]).exits(&["run", "other", "--", "true"], 0).await?;
    let proxy = Proxy::start(server).await?;
    proxy.replies(ProxyFlow::Slow(Duration::from_millis(300))); // no second try comes before the cut
    let executed = proxy.trap("rwlease:{doubtful}", CutPoint::AfterIt);
    let options = ["run", "--at-least", "60s", "--lease", "3s", "--ok-if-held"];
    let job = ["--timeout", limit, "{doubtful}", "--", "true"];
    let run = Tool::new([proxy.url()]).start(&[&options[..], &job].concat())?;
    timeout(LONG, executed).await?.map_err(|_| Error::new("no acquire was sent"))?;
    proxy.close();
    Ok((proxy, run))
}

#[tokio::test]
async fn run_at_least_in_doubt_frees_the_lock_when_the_servers_are_back() -> Result {
    let (server, tool) = alone().await?;
    let (proxy, run) = in_doubt(&server, "5s").await?;
    let left = tool.status("{doubtful}").await?["writer"]["lease_remaining"].as_f64();
    assert!(left.is_some_and(|left| left > 50.0), "it is taken: {left:?}");
    sleep(Duration::from_secs(7)).await;
    proxy.heal();
    let ran = run.ended().await?;
    assert!(matches!(ran.status, Some(69 | 75)) && ran.err.lines().count() == 1, "{ran:?}");
    let writer = tool.status("{doubtful}").await?["writer"].clone();
    assert!(writer.is_null(), "other machines run the job: {writer}");
    Ok(())
}

#[tokio::test]
async fn run_at_least_in_doubt_says_until_when_the_lock_may_stay_taken() -> Result {
    let (server, _) = alone().await?;
    let (_proxy, run) = in_doubt(&server, "5s").await?;
    let ran = run.ended().await?.expect_err_lines(69, 2);
    ran.expect_err(&["`{doubtful}`", "it may stay taken until 20"]);
    Ok(())
}

#[tokio::test]
async fn run_at_least_in_doubt_ends_at_a_second_signal() -> Result {
    let (server, _) = alone().await?;
    let (_proxy, run) = in_doubt(&server, "1m").await?;
    for _ in 0..2 {
        run.signal(Signal::TERM)?;
        sleep(Duration::from_secs(1)).await;
    }
    run.ended().await?.expect_err_lines(143, 1).expect_err(&["it may stay taken until 20"]);
    Ok(())
}

#[tokio::test]
async fn run_of_a_command_that_cannot_run_says_released_only_when_it_is() -> Result {
    let server = StandaloneServer::start().await?;
    let is_acquired = AtomicBool::new(false);
    // The text of the acquire is the last that it answers. After the release it is silent: a later
    // reply would be taken for that of the release.
    let front = Fake::before(&server, move |heard| {
        let is_lock_call = heard.words.iter().any(|word| word == "rwlease:x");
        match is_lock_call && is_acquired.load(Ordering::SeqCst) {
            true => vec![ServerAct::Pause(Duration::MAX)],
            false => {
                is_acquired.fetch_or(is_lock_call && heard.is("EVAL"), Ordering::SeqCst);
                ServerAct::forward(heard)
            }
        }
    })
    .await?;
    let folder = TempFolder::new("cannot-run-in-doubt")?;
    let script = folder.write_program("script", "#!/no/such/interpreter\n")?;
    let tool = Tool::new([front.url()]);
    let ran = tool.run(&["run", "--quiet", "--lease", "2s", "x", "--", &script]).await?;
    let ran = ran.expect_err_lines(127, 1);
    ran.expect_err(&["no such command", "the lock may stay taken until 20"]);
    assert!(!ran.err.contains("the lock is released"), "{ran:?}");
    Ok(())
}

#[tokio::test]
async fn run_ok_if_held_waits_for_a_timeout_and_is_silent() -> Result {
    let (server, tool) = alone().await?;
    let guard = Client::connect([server.url()]).await?.rwlock("a")?.write().await?;
    for args in [&["--timeout", "1s"][..], &[]] {
        let run = [&["run", "--ok-if-held"], args, &["a", "--", "false"]].concat();
        let ran = tool.run(&run).await?;
        assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (Some(0), "", ""));
    }
    let _ = guard.release().await?;
    let run = ["run", "--ok-if-held", "a", "--", "sh", "-c", "exit 75"];
    assert_eq!(tool.run(&run).await?.status, Some(75), "the status of the command stays");
    let no_time = ["run", "--ok-if-held", "--timeout", "1ms", "free", "--", "sh", "-c", "exit 7"];
    let ran = tool.run(&no_time).await?;
    assert_ne!(ran.status, Some(0), "nobody holds it: {ran:?}");
    let silent = Tool::new(["redis://127.0.0.1:1"]);
    assert_eq!(silent.run(&run).await?.status, Some(69), "no server is no holder");
    Ok(())
}

#[tokio::test]
async fn run_at_least_with_another_kind_of_lock_is_a_usage_error() -> Result {
    let (_server, tool) = alone().await?;
    for other in ["--read", "--permits=1/2", "--transfer", "--accept-transfer"] {
        let ran = tool.run(&["run", "--at-least", "1s", other, "a", "--", "true"]).await?;
        assert_eq!(ran.status, Some(64), "{other}: {ran:?}");
    }
    tool.run(&["run", "--at-least", "1ms", "a", "--", "true"]).await?.expect_err_lines(64, 1);
    Ok(())
}
