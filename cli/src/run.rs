//! `rwlease run`: takes the lock, runs the command, releases the lock.

mod command;
mod deadlines;
mod group;
mod hand_on;
mod held;
pub mod launch;
mod loss;
mod program;
mod supervision;
mod terminal;
mod wait_limit;
mod waiting;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use rwlease::{ErrorKind, Locks, Released};
use tokio::time::sleep;

use crate::args::{self, Servers};
use crate::exit::{CANNOT_RUN, Exit, Failure, LOST, NOT_FOUND, tell, with_reasons};
use crate::signals::{self, Signals};
use deadlines::Deadlines;
use held::{Held, Wanted};
use loss::Watch;
use supervision::{Ended, run_under};
use wait_limit::WaitLimit;

/// How long a process that was told to end tries to leave the queue.
const LEAVING: Duration = Duration::from_millis(800);

/// How long it still waits for the answer to a release, or for the reason of a loss.
const GIVING_BACK: Duration = Duration::from_millis(200);

/// Passes the fencing token to the command.
const TOKEN: &str = "RWLEASE_TOKEN";

/// Passes the id by which `rwlease status` names this holder.
const ID: &str = "RWLEASE_ID";

pub async fn run(servers: &Servers, args: args::Run) -> Result<Exit, Failure> {
    let deadlines = Deadlines::new(args.lease, args.grace)?;
    let ticket = args.take_up.then(|| hand_on::ticket_of(&args.name)).transpose()?;
    if !args.hand_on {
        program::check(&args.command[0])?;
    }
    // Handled from here on, so that no signal can end this process while it holds the lock.
    let mut signals = Signals::passed_on()?;
    let wait_limit = WaitLimit::of(&args);
    let locks = tokio::select! {
        exit = told_to_end(&mut signals) => return Ok(exit),
        locks = wait_limit.within(servers.connect()) => locks?,
    };
    let wanted = Wanted::of(&locks, &args)?;
    let held = match ticket {
        Some(ticket) => hand_on::take_up(&locks, &ticket, &args, &wait_limit, &mut signals).await?,
        None => wait_for(&locks, &wanted, &args, &wait_limit, &deadlines, &mut signals).await?,
    };
    let environment = servers.environment();
    if args.hand_on {
        return hand_on::run(&locks, held, &args, &wait_limit, environment, &mut signals).await;
    }
    let mut watch = Watch::new(held.lease());
    let outcome = run_under(&mut watch, &args, environment, &deadlines, &mut signals).await;
    watch.left();
    let clues = watch.clues().await;
    let given_back = give_back(&args.name, held, &mut signals).await;
    let is_gone = given_back == GivenBack::TooLate;
    // Also checked for a process that was stopped and did not see the command end: the command may
    // have ended after the lease.
    match outcome? {
        Ended::ByItself(status) if !is_gone => {
            if let GivenBack::Uncertain(why) = given_back {
                tell(&why);
            }
            Ok(exit_of(status))
        }
        ended => {
            // Without replicas that must confirm it, a renewal that was not answered in time says
            // that the servers did not answer.
            let answers = async || args.replicas > 0 && waiting::is_answered(&wanted).await;
            let why = clues.reason(is_gone, answers).await;
            locks.shutdown(GIVING_BACK).await;
            Err(lost(&args.name, &why, ended))
        }
    }
}

/// Waits for the lock. A failure or a signal leaves no place in the queue.
async fn wait_for(
    locks: &Locks,
    wanted: &Wanted,
    args: &args::Run,
    wait_limit: &WaitLimit,
    deadlines: &Deadlines,
    signals: &mut Signals,
) -> Result<Held, Failure> {
    let ask = async || loop {
        let held = Held::ask(locks, wanted, args, wait_limit.left()?).await?;
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
            Err(error) => return Err(Failure::from(error)),
        }
    };
    let shown = waiting::shown(locks.client_id(), wanted, args.quiet, ask());
    let outcome = tokio::select! {
        exit = told_to_end(signals) => Err(exit.into()),
        held = wait_limit.within(shown) => held,
    };
    let outcome = outcome.and_then(|held| wait_limit.left().map(|_| held));
    if outcome.is_err() {
        locks.shutdown(LEAVING).await;
    }
    outcome
}

/// Resolves at the first signal that asks this process to end.
async fn told_to_end(signals: &mut Signals) -> Exit {
    loop {
        match signals.next().await {
            // Stops like any process. The place in the queue is kept for some seconds.
            Signal::SIGTSTP => drop(raise(signals::STOP)),
            signal if signals::ends(signal) => return Exit::by_signal(signal as i32),
            _ => {}
        }
    }
}

/// How the release ended.
#[derive(PartialEq, Eq)]
enum GivenBack {
    Surely,
    /// The lease had ended.
    TooLate,
    /// Unknown; the lease will end. Holds the reason.
    Uncertain(String),
}

/// Releases the lock after the command has ended. A signal ends the wait for the servers, because
/// the lease frees the lock, and so does the end of the lease.
async fn give_back(name: &str, held: Held, signals: &mut Signals) -> GivenBack {
    let left = held.lease().remaining();
    if left.is_zero() {
        drop(held); // the servers may have it still, and are told in the background
        return GivenBack::TooLate;
    }
    let uncertain = |why| GivenBack::Uncertain(format!("lock `{name}`: {why}; its lease ends it"));
    let told = async {
        told_to_end(signals).await;
        sleep(GIVING_BACK).await;
    };
    let released = tokio::select! {
        released = held.release() => released,
        () = told => return uncertain("a signal cut its release short"),
        () = sleep(left) => Ok(Released::Unknown),
    };
    match released {
        Ok(Released::AlreadyLost) => GivenBack::TooLate,
        Ok(Released::Unknown) => uncertain("the servers did not answer its release"),
        Ok(_) => GivenBack::Surely,
        Err(error) => GivenBack::Uncertain(with_reasons(&error)),
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit(code as u8),
        (None, signal) => Exit::by_signal(signal.unwrap_or_default()),
    }
}

fn cannot_run(command: &str, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(
            NOT_FOUND,
            format!("{command}: there is no such command; the lock is released"),
        ),
        _ => Failure::new(CANNOT_RUN, format!("{command}: {error}; the lock is released")),
    }
}

fn lost(name: &str, why: &str, ended: Ended) -> Failure {
    let command = match ended {
        Ended::ByItself(status) => {
            format!("the command ended by itself ({status}), maybe after others got the lock")
        }
        Ended::InGrace => "the command ended after SIGTERM".to_owned(),
        Ended::Killed => "the command was killed".to_owned(),
        Ended::GoesOn(who) => format!("{who} could not be stopped and goes on without the lock"),
    };
    let advice = "check how much of its work is done before you run it again";
    Failure::new(LOST, format!("lock `{name}`: the lease was lost: {why}; {command}; {advice}"))
}
