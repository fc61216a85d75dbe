//! Supervises the command while the lock is held: passes signals on, and stops it before the lease
//! ends.

use std::ffi::OsString;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use rwlease::{Lease, LeaseState};
use tokio::time::sleep;

use super::command::{CommandEvent, Orphan, SupervisedCommand};
use super::deadlines::{DeadlineAction, Deadlines};
use super::loss::LeaseMonitor;
use super::{ID, TOKEN, group, spawn_error};
use crate::args::RunArgs;
use crate::exit::{CliError, LOST};
use crate::format;
use crate::messages::print_error;
use crate::signals::{self, Signals};

/// How often to check whether the rest of the command's group is gone.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// How the command ended.
pub enum CommandEnd {
    NotRun(CliError),
    ByItself(ExitStatus),
    /// It ended while the lease was being lost: within the grace, or by SIGKILL.
    WithinGrace,
    Killed,
    /// The named processes of the command could not be stopped.
    StillRunning(String),
}

/// Starts the command and supervises it until it has ended.
pub async fn run_under(
    monitor: &mut LeaseMonitor<'_>,
    args: &RunArgs,
    mut environment: Vec<(&'static str, OsString)>,
    deadlines: &Deadlines,
    signals: &mut Signals,
) -> Result<CommandEnd, CliError> {
    let lease = monitor.lease;
    // The display of a wait can have stood still, at a terminal that was stopped.
    if !matches!(deadlines.step(monitor.remaining(), None), DeadlineAction::Wait(_)) {
        let why = "the lease was nearly over before the command was started; try again";
        return Ok(CommandEnd::NotRun(CliError::new(LOST, format!("lock `{}`: {why}", args.name))));
    }
    environment.push((TOKEN, lease.fencing_token().map_or(0, u64::from).to_string().into()));
    environment.push((ID, lease.id().into()));
    let started = SupervisedCommand::start(&args.command, &environment, Orphan::Dies).await;
    let mut command = match started {
        Ok(command) => command,
        Err(error) => return Ok(CommandEnd::NotRun(spawn_error(&args.command[0], &error))),
    };
    let mut is_risk_printed = false;
    loop {
        warn_of_foreign(&args.name, &mut command);
        is_risk_printed &= lease.state() != LeaseState::Held;
        let step = deadlines.step(monitor.remaining(), command.terminated_at());
        let pause = match step {
            DeadlineAction::Wait(pause) => pause,
            DeadlineAction::Terminate => {
                command.terminate();
                monitor.probe();
                continue;
            }
            DeadlineAction::Kill => {
                return Ok(match command.kill().await? {
                    _ if command.is_alive() => {
                        wait_for_unkillable(&args.name, &mut command, signals).await?
                    }
                    Some(_) if command.terminated_at().is_some() => CommandEnd::WithinGrace,
                    Some(status) => CommandEnd::ByItself(status),
                    None => CommandEnd::Killed,
                });
            }
        };
        tokio::select! {
            biased;
            event = command.next_event() => match event? {
                CommandEvent::Ended(_) if command.terminated_at().is_some() => {
                    return wait_for_group(monitor, deadlines, &mut command).await;
                }
                CommandEvent::Ended(status) => {
                    return Ok(match command.launch_error() {
                        Some(error) => CommandEnd::NotRun(spawn_error(&args.command[0], &error)),
                        None => CommandEnd::ByItself(status),
                    });
                }
                CommandEvent::Stopped(signal) => on_stopped(&mut command, signal, || lease.is_held()),
            },
            signal = signals.next() => forward_signal(&args.name, &mut command, signal),
            () = lease.ended() => {}
            () = lease.at_risk(), if !is_risk_printed => {
                is_risk_printed = true;
                print_risk(&args.name, lease);
            }
            () = sleep(pause) => {}
        }
    }
}

/// Prints that the lease is not being renewed, if it has not ended by now.
fn print_risk(name: &str, lease: &Lease) {
    let left = lease.remaining();
    if !left.is_zero() {
        print_error(&format!(
            "lock `{name}`: no renewal of the lease succeeds; unless one does, it ends in {}",
            format::duration(left)
        ));
    }
}

/// The command ended after SIGTERM. The processes that it started were told as well; they have the
/// rest of the grace, and must not outlive the lease.
async fn wait_for_group(
    monitor: &mut LeaseMonitor<'_>,
    deadlines: &Deadlines,
    command: &mut SupervisedCommand,
) -> Result<CommandEnd, CliError> {
    while command.is_alive() {
        match deadlines.step(monitor.remaining(), command.terminated_at()) {
            DeadlineAction::Kill => {
                command.kill().await?;
                return Ok(match command.is_alive() {
                    true => CommandEnd::StillRunning(group::named(&command.living())),
                    false => CommandEnd::Killed,
                });
            }
            DeadlineAction::Wait(pause) => sleep(pause.min(EXIT_CHECK_INTERVAL)).await,
            DeadlineAction::Terminate => sleep(EXIT_CHECK_INTERVAL).await,
        }
    }
    Ok(CommandEnd::WithinGrace)
}

/// SIGKILL has not ended all processes of the command. While the first of them lives, so does this
/// process, unless a signal ends it.
async fn wait_for_unkillable(
    name: &str,
    command: &mut SupervisedCommand,
    signals: &mut Signals,
) -> Result<CommandEnd, CliError> {
    let who = group::named(&command.living());
    if command.has_ended()? {
        return Ok(CommandEnd::StillRunning(who));
    }
    print_error(&format!(
        "lock `{name}`: the lease is lost, but {who} cannot be stopped, and goes on without the lock; stop it as its user"
    ));
    loop {
        tokio::select! {
            event = command.next_event() => match event? {
                CommandEvent::Ended(status) => return Ok(CommandEnd::ByItself(status)),
                CommandEvent::Stopped(_) => {}
            },
            signal = signals.next() => match signals::is_terminating(signal) {
                true => return Ok(CommandEnd::StillRunning(who)),
                false => forward_signal(name, command, signal),
            },
        }
    }
}

pub fn forward_signal(name: &str, command: &mut SupervisedCommand, signal: Signal) {
    if !command.signal(signal) && signals::is_terminating(signal) {
        print_error(&format!(
            "lock `{name}`: {signal} did not reach the command, which runs as another user; send it as that user"
        ));
    }
}

/// Prints a warning if a process of the command runs as a user whose processes `rwlease` cannot
/// stop.
fn warn_of_foreign(name: &str, command: &mut SupervisedCommand) {
    let foreign = command.found_foreign();
    if !foreign.is_empty() {
        let who = group::named(&foreign);
        print_error(&format!(
            "lock `{name}`: {who} runs as another user: signals do not reach it, and it would go on after a \
             lost lease; run `rwlease` itself as that user"
        ));
    }
}

/// The command was stopped because it needs the terminal, or by Ctrl-Z.
pub fn on_stopped(command: &mut SupervisedCommand, signal: Signal, may_resume: impl Fn() -> bool) {
    match signal {
        Signal::SIGTTIN | Signal::SIGTTOU if command.lend_terminal() => {}
        Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP => {
            command.stop_self();
            // This process continues here, maybe much later, when the lock may be lost.
            if may_resume() {
                command.resume();
            }
        }
        _ => {} // somebody stopped this command alone
    }
}
