//! `rwlease run`: takes the lock, runs the command, releases the lock.

mod command;
mod deadlines;
mod group;
mod held;
pub mod launch;
mod loss;
mod program;
mod supervision;
mod terminal;
mod transfer;
mod wait_display;
mod wait_limit;

use std::os::unix::process::ExitStatusExt;
use std::process;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use rwlease::{ErrorKind, Locks, Released};
use tokio::time::sleep;

use crate::args::{self, ServerArgs};
use crate::exit::{CANNOT_RUN, CliError, ExitStatus, LOST, NOT_FOUND, error_chain, print_error};
use crate::signals::{self, Signals};
use deadlines::Deadlines;
use held::{HeldGuard, LockTarget};
use loss::LeaseMonitor;
use supervision::{CommandEnd, run_under};
use wait_limit::WaitLimit;

/// How long a process that was told to end tries to leave the queue.
const QUEUE_EXIT_TIMEOUT: Duration = Duration::from_millis(800);

/// How long it still waits for the answer to a release, or for the reason of a loss.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(200);

/// Passes the fencing token to the command.
const TOKEN: &str = "RWLEASE_TOKEN";

/// Passes the id by which `rwlease status` names this holder.
const ID: &str = "RWLEASE_ID";

pub async fn run(servers: &ServerArgs, args: args::RunArgs) -> Result<ExitStatus, CliError> {
    let deadlines = Deadlines::new(args.lease, args.grace)?;
    let ticket = args.take_up.then(|| transfer::transfer_from_env(&args.name)).transpose()?;
    if !args.hand_on {
        program::check(&args.command[0])?;
    }
    // Handled from here on, so that no signal can end this process while it holds the lock.
    let mut signals = Signals::forwarded()?;
    let wait_limit = WaitLimit::of(&args);
    let locks = tokio::select! {
        exit = wait_termination_signal(&mut signals) => return Ok(exit),
        locks = wait_limit.within(servers.connect()) => locks?,
    };
    let wanted = LockTarget::of(&locks, &args)?;
    let held = match ticket {
        Some(ticket) => {
            transfer::accept_transfer(&locks, &ticket, &args, &wait_limit, &mut signals).await?
        }
        None => acquire(&locks, &wanted, &args, &wait_limit, &deadlines, &mut signals).await?,
    };
    let environment = servers.environment();
    if args.hand_on {
        return transfer::run(&locks, held, &args, &wait_limit, environment, &mut signals).await;
    }
    let mut watch = LeaseMonitor::new(held.lease());
    let outcome = run_under(&mut watch, &args, environment, &deadlines, &mut signals).await;
    watch.remaining();
    let clues = watch.clues().await;
    let given_back = release(&args.name, held, &mut signals).await;
    let is_gone = given_back == ReleaseReport::LeaseLost;
    // Also checked for a process that was stopped and did not see the command end: the command may
    // have ended after the lease.
    match outcome? {
        CommandEnd::ByItself(status) if !is_gone => {
            if let ReleaseReport::Unknown(why) = given_back {
                print_error(&why);
            }
            Ok(exit_of(status))
        }
        ended => {
            // Without replicas that must confirm it, a renewal that was not answered in time says
            // that the servers did not answer.
            let answers = async || args.replicas > 0 && wait_display::is_answered(&wanted).await;
            let why = clues.reason(is_gone, answers).await;
            locks.shutdown(RELEASE_TIMEOUT).await;
            Err(lease_lost_error(&args.name, &why, ended))
        }
    }
}

/// Waits for the lock. A failure or a signal leaves no place in the queue.
async fn acquire(
    locks: &Locks,
    wanted: &LockTarget,
    args: &args::RunArgs,
    wait_limit: &WaitLimit,
    deadlines: &Deadlines,
    signals: &mut Signals,
) -> Result<HeldGuard, CliError> {
    let ask = async || loop {
        let held = HeldGuard::acquire(locks, wanted, args, wait_limit.left()?).await?;
        // A pushed grant is short until it is claimed. The command must start with a whole lease.
        if !deadlines.are_near(held.lease().remaining()) {
            return Ok(held);
        }
        match held.lease().renew().await {
            Ok(()) => return Ok(held),
            // On a slow machine the lease can have ended by then, and somebody may have revoked it.
            // The command has not started, so acquire again.
            Err(error) if matches!(error.kind(), ErrorKind::Lost | ErrorKind::Revoked) => {
                drop(held.release().await);
            }
            Err(error) => return Err(CliError::from(error)),
        }
    };
    let shown = wait_display::with_wait_display(locks.client_id(), wanted, args.quiet, ask());
    let outcome = tokio::select! {
        exit = wait_termination_signal(signals) => Err(exit.into()),
        held = wait_limit.within(shown) => held,
    };
    let outcome = outcome.and_then(|held| wait_limit.left().map(|_| held));
    if outcome.is_err() {
        locks.shutdown(QUEUE_EXIT_TIMEOUT).await;
    }
    outcome
}

/// Resolves at the first signal that asks this process to end.
async fn wait_termination_signal(signals: &mut Signals) -> ExitStatus {
    loop {
        match signals.next().await {
            // Stops like any process. The place in the queue is kept for some seconds.
            Signal::SIGTSTP => drop(raise(signals::STOP_SELF)),
            signal if signals::is_terminating(signal) => {
                return ExitStatus::by_signal(signal as i32);
            }
            _ => {}
        }
    }
}

/// How the release ended.
#[derive(PartialEq, Eq)]
enum ReleaseReport {
    Released,
    /// The lease had ended.
    LeaseLost,
    /// Unknown; the lease will end. Holds the reason.
    Unknown(String),
}

/// Releases the lock after the command has ended. A signal ends the wait for the servers, because
/// the lease frees the lock, and so does the end of the lease.
async fn release(name: &str, held: HeldGuard, signals: &mut Signals) -> ReleaseReport {
    let left = held.lease().remaining();
    if left.is_zero() {
        drop(held); // the servers may have it still, and are told in the background
        return ReleaseReport::LeaseLost;
    }
    let uncertain =
        |why| ReleaseReport::Unknown(format!("lock `{name}`: {why}; its lease ends it"));
    let told = async {
        wait_termination_signal(signals).await;
        sleep(RELEASE_TIMEOUT).await;
    };
    let released = tokio::select! {
        released = held.release() => released,
        () = told => return uncertain("a signal cut its release short"),
        () = sleep(left) => Ok(Released::Unknown),
    };
    match released {
        Ok(Released::AlreadyLost) => ReleaseReport::LeaseLost,
        Ok(Released::Unknown) => uncertain("the servers did not answer its release"),
        Ok(_) => ReleaseReport::Released,
        Err(error) => ReleaseReport::Unknown(error_chain(&error)),
    }
}

fn exit_of(status: process::ExitStatus) -> ExitStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitStatus(code as u8),
        (None, signal) => ExitStatus::by_signal(signal.unwrap_or_default()),
    }
}

fn spawn_error(command: &str, error: &std::io::Error) -> CliError {
    match error.kind() {
        std::io::ErrorKind::NotFound => CliError::new(
            NOT_FOUND,
            format!("{command}: there is no such command; the lock is released"),
        ),
        _ => CliError::new(CANNOT_RUN, format!("{command}: {error}; the lock is released")),
    }
}

fn lease_lost_error(name: &str, why: &str, ended: CommandEnd) -> CliError {
    let command = match ended {
        CommandEnd::ByItself(status) => {
            format!("the command ended by itself ({status}), maybe after others got the lock")
        }
        CommandEnd::InGrace => "the command ended after SIGTERM".to_owned(),
        CommandEnd::Killed => "the command was killed".to_owned(),
        CommandEnd::GoesOn(who) => {
            format!("{who} could not be stopped and goes on without the lock")
        }
    };
    let advice = "check how much of its work is done before you run it again";
    CliError::new(LOST, format!("lock `{name}`: the lease was lost: {why}; {command}; {advice}"))
}
