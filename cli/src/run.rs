//! `rwlease run`: takes the lock, runs the command, releases the lock.

mod command;
mod deadlines;
mod group;
mod held_guard;
pub mod launch;
mod lock_target;
mod loss;
mod program;
mod supervision;
mod terminal;
mod transfer;
mod wait_display;
mod wait_limit;

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, SystemTime};
use std::{io, process};

use nix::sys::signal::{Signal, raise};
use rwlease::{Client, ErrorKind, Fsync, ReleaseOutcome};
use tokio::time::sleep;

use crate::args::{self, ServerArgs};
use crate::exit::{
    CANNOT_RUN, CliError, ExitStatus, LOST, NOT_FOUND, SYSTEM, error_chain_without_lock,
};
use crate::format;
use crate::messages::{print_error, print_in_background};
use crate::signals::{self, Signals};
use deadlines::Deadlines;
use held_guard::HeldGuard;
use lock_target::LockTarget;
use loss::LeaseMonitor;
use supervision::{CommandEnd, run_under};
use wait_limit::WaitLimit;

/// How long a process that was told to end tries to leave the queue.
const QUEUE_EXIT_TIMEOUT: Duration = Duration::from_millis(800);

/// The same with `--at-least`. A call that was not answered can have taken the lock for all of that
/// time.
const AT_LEAST_EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it still waits for the answer to a release, or for the reason of a loss.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(200);

/// Passes the fencing token to the command.
const TOKEN: &str = "RWLEASE_TOKEN";

/// Passes the id by which `rwlease status` names this holder.
const ID: &str = "RWLEASE_ID";

pub async fn run(servers: &ServerArgs, mut args: args::RunArgs) -> Result<ExitStatus, CliError> {
    if args.ok_if_held {
        args.timeout.get_or_insert(Duration::ZERO);
        args.quiet = true;
    }
    let deadlines = Deadlines::new(args.lease, args.grace)?;
    if args.fsync == Fsync::Replicas && args.min_replicas == 0 {
        return Err(CliError::usage(
            "--fsync replicas has no replicas; use --min-replicas 1 or more, or --fsync master",
        ));
    }
    let incoming =
        args.accept_transfer.then(|| transfer::transfer_from_env(&args.name)).transpose()?;
    if !args.transfer {
        program::check(&args.command[0])?;
    }
    // Handled from here on, so that no signal can end this process while it holds the lock.
    let mut signals = Signals::forwarded()?;
    print_in_background()?;
    let wait_limit = WaitLimit::of(&args);
    let locks = tokio::select! {
        exit = wait_termination_signal(&mut signals) => return Ok(exit),
        locks = wait_limit.within(servers.connect_as(args.label.as_deref())) => locks?,
    };
    let wanted = LockTarget::of(&locks, &args)?;
    let held = match incoming {
        Some(incoming) => {
            transfer::accept_transfer(&locks, &incoming, &args, &wait_limit, &mut signals).await?
        }
        None => {
            match acquire(&locks, &wanted, &args, &wait_limit, &deadlines, &mut signals).await {
                Err(busy) if args.ok_if_held && busy.is_held() => return Ok(ExitStatus::DONE),
                held => held?,
            }
        }
    };
    let environment = servers.environment();
    if args.transfer {
        return transfer::run(&locks, held, &args, &wait_limit, environment, &mut signals).await;
    }
    let mut monitor = LeaseMonitor::new(held.lease());
    let outcome = run_under(&mut monitor, &args, environment, &deadlines, &mut signals).await;
    if let Ok(CommandEnd::NotRun(_)) = outcome {
        held.cancel_at_least();
    }
    let free_at = end_at_server(monitor.remaining());
    let clues = monitor.clues().await;
    let given_back = release(held, &mut signals).await;
    let is_gone = given_back == ReleaseReport::LeaseLost;
    // Also checked for a process that was stopped and did not see the command end: the command may
    // have ended after the lease.
    match outcome? {
        CommandEnd::NotRun(failure) => {
            let ends = match given_back {
                // An attempt in doubt would take the lock again, for all of `--at-least`.
                ReleaseReport::Released => {
                    let free_at = longest_lease_end(&args);
                    leave(&locks, &args, &mut signals).await.describe(free_at)
                }
                other => other.describe(free_at),
            };
            Err(failure.and(&ends))
        }
        CommandEnd::ByItself(status) if !is_gone => {
            if let ReleaseReport::Unknown(why) = given_back {
                print_error(&format!("lock `{}`: {why}; its lease ends it", args.name));
            }
            Ok(exit_of(status))
        }
        ended => {
            // Without a confirmation, a renewal that was not answered in time says that the servers
            // did not answer.
            let is_confirmed = args.min_replicas > 0 || args.fsync != Fsync::None;
            let answers = async || is_confirmed && wait_display::is_answered(&wanted).await;
            let why = clues.reason(is_gone, answers).await;
            locks.shutdown(RELEASE_TIMEOUT).await;
            Err(lease_lost_error(&args.name, &why, ended))
        }
    }
}

/// Waits for the lock. A failure or a signal leaves no place in the queue.
async fn acquire(
    locks: &Client,
    wanted: &LockTarget,
    args: &args::RunArgs,
    wait_limit: &WaitLimit,
    deadlines: &Deadlines,
    signals: &mut Signals,
) -> Result<HeldGuard, CliError> {
    let mut granted = None; // also if a signal or the time limit drops the request
    let ask = async {
        loop {
            let held = HeldGuard::acquire(locks, wanted, args, wait_limit.left()?).await?;
            let held = granted.insert(held);
            // A pushed grant is short until it is claimed. The command must start with a whole
            // lease.
            if !deadlines.are_near(held.lease().remaining()) {
                return Ok(());
            }
            match held.lease().renew().await {
                Ok(()) => return Ok(()),
                // On a slow machine the lease can have ended by then, and somebody may have revoked
                // it. The command has not started, so acquire again.
                Err(error)
                    if matches!(error.kind(), ErrorKind::LeaseLost | ErrorKind::LeaseRevoked) =>
                {
                    if let Some(unused) = granted.take() {
                        unused.cancel_at_least();
                        drop(unused.release().await);
                    }
                }
                Err(error) => return Err(CliError::from(error)),
            }
        }
    };
    let shown = wait_display::with_wait_display(locks.client_id(), wanted, args.quiet, ask);
    let outcome = tokio::select! {
        exit = wait_termination_signal(signals) => Err(exit.into()),
        asked = wait_limit.within(shown) => asked,
    };
    let Err(failure) = outcome.and_then(|()| wait_limit.left()) else {
        let bug = "internal error: a granted request has no guard; please report this";
        return granted.ok_or_else(|| CliError::new(SYSTEM, bug));
    };
    if let Some(unused) = granted {
        unused.cancel_at_least();
    }
    let holders = match failure.is_try_later() && !args.ok_if_held {
        true => wait_display::holders(wanted).await,
        false => None,
    };
    let free_at = longest_lease_end(args);
    if let ReleaseReport::Unknown(why) = leave(locks, args, signals).await {
        let until = format::moment(free_at);
        print_error(&format!(
            "lock `{}`: {why}; it may stay taken until {until}, see `rwlease status`",
            args.name
        ));
    }
    Err(holders.into_iter().fold(failure, CliError::with_note))
}

/// When a lease that is granted now ends at the latest.
fn longest_lease_end(args: &args::RunArgs) -> SystemTime {
    end_at_server(args.at_least.unwrap_or_default().max(args.lease))
}

/// Leaves the queue, and releases what a call in doubt may have taken. A signal ends the wait for
/// the servers. The report is not `Unknown` without `--at-least`: then the lease ends soon.
async fn leave(locks: &Client, args: &args::RunArgs, signals: &mut Signals) -> ReleaseReport {
    if args.at_least.is_none() {
        locks.shutdown(QUEUE_EXIT_TIMEOUT).await;
        return ReleaseReport::Released;
    }
    tokio::select! {
        left = locks.shutdown(AT_LEAST_EXIT_TIMEOUT) => match left.is_empty() {
            true => ReleaseReport::Released,
            false => ReleaseReport::not_answered(),
        },
        report = interrupted(signals) => report,
    }
}

/// Resolves a moment after the first signal that asks this process to end.
async fn interrupted(signals: &mut Signals) -> ReleaseReport {
    wait_termination_signal(signals).await;
    sleep(RELEASE_TIMEOUT).await;
    ReleaseReport::Unknown("a signal interrupted its release".to_owned())
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

/// When a lease that ends here in that time has ended at the server: a margin later.
fn end_at_server(left: Duration) -> SystemTime {
    /// More than the library accepts.
    const MAX_LEASE: Duration = Duration::from_secs(100 * 24 * 3600);
    /// More than any default margin.
    const MARGIN: Duration = Duration::from_secs(1);
    SystemTime::now() + left.min(MAX_LEASE) + MARGIN
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

impl ReleaseReport {
    fn of(released: rwlease::Result<ReleaseOutcome>) -> ReleaseReport {
        match released {
            Ok(ReleaseOutcome::AlreadyLost) => ReleaseReport::LeaseLost,
            Ok(ReleaseOutcome::Unknown) => ReleaseReport::not_answered(),
            Ok(_) => ReleaseReport::Released,
            Err(error) => ReleaseReport::Unknown(error_chain_without_lock(&error)),
        }
    }

    fn not_answered() -> ReleaseReport {
        ReleaseReport::Unknown("the servers did not reply to its release".to_owned())
    }

    /// Says whether the lock is free. It is free at that moment in any case.
    fn describe(&self, free_at: SystemTime) -> String {
        match self {
            ReleaseReport::Released => "the lock is released".to_owned(),
            ReleaseReport::LeaseLost => "the lease of the lock has ended".to_owned(),
            ReleaseReport::Unknown(why) => {
                format!("{why}; the lock may stay taken until {}", format::moment(free_at))
            }
        }
    }
}

/// Releases the lock after the command has ended. A signal ends the wait for the servers, because
/// the lease frees the lock, and so does the end of the lease.
async fn release(held: HeldGuard, signals: &mut Signals) -> ReleaseReport {
    let left = held.lease().remaining();
    if left.is_zero() {
        drop(held); // the servers may have it still, and are told in the background
        return ReleaseReport::LeaseLost;
    }
    tokio::select! {
        released = held.release() => ReleaseReport::of(released),
        report = interrupted(signals) => report,
        () = sleep(left) => ReleaseReport::not_answered(),
    }
}

fn exit_of(status: process::ExitStatus) -> ExitStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitStatus(code as u8),
        (None, signal) => ExitStatus::by_signal(signal.unwrap_or_default()),
    }
}

fn spawn_error(command: &OsStr, error: &io::Error) -> CliError {
    let command = command.to_string_lossy();
    let (status, why) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "no such command".to_owned()),
        _ => (CANNOT_RUN, error.to_string()),
    };
    CliError::new(status, format!("cannot run {command}: {why}"))
}

fn lease_lost_error(name: &str, why: &str, ended: CommandEnd) -> CliError {
    let command = match ended {
        CommandEnd::NotRun(failure) => return failure,
        CommandEnd::ByItself(status) => {
            format!("the command ended by itself ({status}), maybe after others got the lock")
        }
        CommandEnd::WithinGrace => "the command ended after SIGTERM".to_owned(),
        CommandEnd::Killed => "the command was killed".to_owned(),
        CommandEnd::StillRunning(who) => {
            format!("{who} could not be stopped and goes on without the lock")
        }
    };
    let advice = "check how much of its work is done before you run it again";
    CliError::new(LOST, format!("lock `{name}`: the lease was lost: {why}; {command}; {advice}"))
}
