//! A command that runs as another user, and so cannot be signalled.
//!
//! The tests need root, to run `rwlease` as a user without rights, and a program that becomes root.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};

use rustix::process::{Signal, geteuid, kill_process};
use rwlease::Client;
use tokio::process::Command;

use crate::fixture::{self, RWLEASE, alone, hearing, is_alive, pid};
use testkit::{Result, TempFolder};

/// The user `nobody`.
const NOBODY: &str = "65534";

/// A folder with `rwlease`, and with `become`, which changes its user.
struct Programs(TempFolder);

impl Programs {
    /// None if this process is not that of root, which is said.
    fn make(test: &str) -> Result<Option<Programs>> {
        if !geteuid().is_root() {
            writeln!(std::io::stderr(), "users::{test}: not run, it needs root")?;
            return Ok(None);
        }
        let folder = TempFolder::new(&format!("users-{test}"))?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        for (name, from, mode) in
            [("rwlease", RWLEASE, 0o755), ("become", "/usr/bin/setpriv", 0o4755)]
        {
            let file = folder.join(name);
            fs::copy(from, &file)?;
            chown(&file, Some(0), Some(0))?;
            fs::set_permissions(&file, Permissions::from_mode(mode))?;
        }
        Ok(Some(Programs(folder)))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// `rwlease run` as nobody.
    fn run(&self, server: &str, args: &[&str]) -> Command {
        let mut command = hearing("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        command.args([&self.path("rwlease"), "run"]).args(args).env("RWLEASE_URL", server);
        command.kill_on_drop(true);
        command
    }
}

/// A shell that becomes root, says its id, and sleeps.
fn as_root(become_root: &str) -> String {
    format!("exec {become_root} --reuid 0 --regid 0 --clear-groups sh -c 'echo $$; exec sleep 600'")
}

#[tokio::test]
async fn run_of_a_command_of_another_user_says_that_it_cannot_stop_it() -> Result {
    let Some(programs) = Programs::make("unstoppable")? else { return Ok(()) };
    let (server, tool) = alone().await?;
    let script = as_root(&programs.path("become"));
    let command = programs.run(&server.url(), &["--lease", "2s", "a", "--", "sh", "-c", &script]);
    let mut run = fixture::start(command)?;
    let sleeper = run.line().await?;

    let told = run.err_line().await?;
    let named = format!("process {sleeper} (`sleep`) runs as another user");
    assert!(told.contains(&named) && told.contains("run `rwlease` itself as that user"), "{told}");
    run.signal(Signal::TERM)?;
    let told = run.err_line().await?;
    assert!(told.contains("SIGTERM did not reach the command"), "{told}");

    tool.run(&["revoke", "a"]).await?;
    let next = Client::connect([server.url()]).await?.rwlock("a")?.write().await?;
    assert!(is_alive(&sleeper), "nobody can stop it");
    let told = run.err_line().await?;
    assert!(told.contains("the lease is lost") && told.contains("cannot be stopped"), "{told}");

    kill_process(pid(sleeper.parse()?)?, Signal::KILL)?;
    let told = run.err_line().await?;
    assert!(told.contains("it was revoked") && told.contains("ended by itself"), "{told}");
    assert_eq!(run.ended().await?.status, Some(79));
    let _ = next.release().await?;
    Ok(())
}

#[tokio::test]
async fn run_whose_script_started_a_process_of_another_user_names_it() -> Result {
    let Some(programs) = Programs::make("part")? else { return Ok(()) };
    let (server, tool) = alone().await?;
    let script =
        format!("sh -c \"{}\" & wait", as_root(&programs.path("become")).replace('$', "\\$"));
    let command = programs.run(&server.url(), &["--lease", "2s", "a", "--", "sh", "-c", &script]);
    let mut run = fixture::start(command)?;
    let sleeper = run.line().await?;
    tool.run(&["revoke", "a"]).await?;
    let named = format!("process {sleeper} (`sleep`) could not be stopped and goes on");
    while !run.err_line().await?.contains(&named) {}
    assert!(is_alive(&sleeper), "nobody can stop it");
    kill_process(pid(sleeper.parse()?)?, Signal::KILL)?;
    assert_eq!(run.ended().await?.status, Some(79));
    Ok(())
}

#[tokio::test]
async fn run_of_a_set_uid_program_of_another_user_is_rejected() -> Result {
    let Some(programs) = Programs::make("refused")? else { return Ok(()) };
    let path = programs.path("become");
    let ran = fixture::ran(programs.run("127.0.0.1:1", &["a", "--", &path, "true"])).await?;
    ran.expect_status(126).expect_err(&["with the rights of another user (id 0)"]);
    Ok(())
}
