//! Supervises the command while the lock is held: passes signals on, and stops it before the lease
//! ends.

use std::ffi::OsString;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::command::{CommandEvent, Orphan, SupervisedCommand};
use super::deadlines::{DeadlineAction, Deadlines};
use super::loss::LeaseMonitor;
use super::{ID, TOKEN, group, spawn_error};
use crate::args::RunArgs;
use crate::exit::{CliError, print_error};
use crate::signals::{self, Signals};

/// How often to check whether the rest of the command's group is gone.
const LOOK: Duration = Duration::from_millis(20);

/// How the command ended.
pub enum CommandEnd {
    ByItself(ExitStatus),
    /// It ended while the lease was being lost: within the grace, or by SIGKILL.
    InGrace,
    Killed,
    /// These processes of it could not be stopped.
    GoesOn(String),
}

/// Starts the command and supervises it until it has ended.
pub async fn run_under(
    watch: &mut LeaseMonitor<'_>,
    args: &RunArgs,
    mut environment: Vec<(&'static str, OsString)>,
    deadlines: &Deadlines,
    signals: &mut Signals,
) -> Result<CommandEnd, CliError> {
    let lease = watch.lease;
    environment.push((TOKEN, lease.token().to_string().into()));
    environment.push((ID, lease.id().into()));
    let started = SupervisedCommand::start(&args.command, &environment, Orphan::Dies).await;
    let mut command =
        started.map_err(|error| spawn_error(&args.command[0].to_string_lossy(), &error))?;
    loop {
        tell_of_foreign(&args.name, &mut command);
        let step = deadlines.step(watch.remaining(), command.terminated_at());
        let pause = match step {
            DeadlineAction::Wait(pause) => pause,
            DeadlineAction::Terminate => {
                command.terminate();
                watch.probe();
                continue;
            }
            DeadlineAction::Kill => {
                return Ok(match command.kill().await? {
                    _ if command.is_alive() => outlived(&args.name, &mut command, signals).await?,
                    Some(_) if command.terminated_at().is_some() => CommandEnd::InGrace,
                    Some(status) => CommandEnd::ByItself(status),
                    None => CommandEnd::Killed,
                });
            }
        };
        tokio::select! {
            biased;
            event = command.next_event() => match event? {
                CommandEvent::Ended(_) if command.terminated_at().is_some() => {
                    return end_of_all(watch, deadlines, &mut command).await;
                }
                CommandEvent::Ended(status) => return Ok(CommandEnd::ByItself(status)),
                CommandEvent::Stopped(signal) => stopped(&mut command, signal, || lease.is_held()),
            },
            signal = signals.next() => pass_on(&args.name, &mut command, signal),
            () = lease.lost() => {}
            () = sleep(pause) => {}
        }
    }
}

/// The command has ended after it was told to. The processes that it started were told as well;
/// they have the rest of the grace, and must not outlive the lease.
async fn end_of_all(
    watch: &mut LeaseMonitor<'_>,
    deadlines: &Deadlines,
    command: &mut SupervisedCommand,
) -> Result<CommandEnd, CliError> {
    while command.is_alive() {
        match deadlines.step(watch.remaining(), command.terminated_at()) {
            DeadlineAction::Kill => {
                command.kill().await?;
                return Ok(match command.is_alive() {
                    true => CommandEnd::GoesOn(group::named(&command.living())),
                    false => CommandEnd::Killed,
                });
            }
            DeadlineAction::Wait(pause) => sleep(pause.min(LOOK)).await,
            DeadlineAction::Terminate => sleep(LOOK).await,
        }
    }
    Ok(CommandEnd::InGrace)
}

/// SIGKILL has not ended all processes of the command. While the first of them lives, so does this
/// process, unless a signal ends it.
async fn outlived(
    name: &str,
    command: &mut SupervisedCommand,
    signals: &mut Signals,
) -> Result<CommandEnd, CliError> {
    let who = group::named(&command.living());
    if command.has_ended()? {
        return Ok(CommandEnd::GoesOn(who));
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
                true => return Ok(CommandEnd::GoesOn(who)),
                false => pass_on(name, command, signal),
            },
        }
    }
}

pub fn pass_on(name: &str, command: &mut SupervisedCommand, signal: Signal) {
    if !command.signal(signal) && signals::is_terminating(signal) {
        print_error(&format!(
            "lock `{name}`: {signal} did not reach the command, which runs as another user; send it as that user"
        ));
    }
}

/// Says so if the command runs as a user whose processes this one cannot stop.
fn tell_of_foreign(name: &str, command: &mut SupervisedCommand) {
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
pub fn stopped(command: &mut SupervisedCommand, signal: Signal, may_go_on: impl Fn() -> bool) {
    match signal {
        Signal::SIGTTIN | Signal::SIGTTOU if command.lend_terminal() => {}
        Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP => {
            command.stop_self();
            // This process continues here, maybe much later, when the lock may be lost.
            if may_go_on() {
                command.resume();
            }
        }
        _ => {} // somebody stopped this command alone
    }
}
