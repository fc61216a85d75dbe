//! `rwlease run`: takes the lock, runs the command, gives the lock back.

mod command;
mod deadlines;
mod hand_on;
mod held;
mod terminal;
mod waiting;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use rwlease::{ErrorKind, Lease, Locks, Released};
use tokio::time::{Instant, sleep, timeout_at};

use crate::args::{self, Servers};
use crate::exit::{CANNOT_RUN, Exit, Failure, LOST, NOT_FOUND, TRY_LATER, tell, with_reasons};
use crate::show;
use crate::signals::{self, Signals};
use command::{Command, Event};
use deadlines::{Deadlines, Step};
use held::{Held, Wanted};

/// How long one that is told to end gives the servers to hear that it no longer waits.
const LEAVING: Duration = Duration::from_secs(1);

/// And how long one that gives the lock back still waits for their answer.
const GIVING_BACK: Duration = Duration::from_millis(200);

/// How often to look whether the rest of a command is gone.
const LOOK: Duration = Duration::from_millis(20);

/// What the command finds its fencing token by.
const TOKEN: &str = "RWLEASE_TOKEN";

pub async fn run(servers: &Servers, args: args::Run) -> Result<Exit, Failure> {
    let deadlines = Deadlines::new(args.lease, args.grace)?;
    let ticket = args.take_up.then(|| hand_on::ticket_of(&args.name)).transpose()?;
    // Heard from here on, so that none can end this process while it holds.
    let mut signals = Signals::passed_on()?;
    let wait_limit = WaitLimit::of(&args);
    let locks = tokio::select! {
        exit = told_to_end(&mut signals) => return Ok(exit),
        locks = wait_limit.within(servers.connect(), NO_ANSWER) => locks?,
    };
    let wanted = Wanted::of(&locks, &args)?;
    let held = match ticket {
        Some(ticket) => hand_on::take_up(&locks, &ticket, &args, &wait_limit, &mut signals).await?,
        None => wait_for(&locks, &wanted, &args, &wait_limit, &deadlines, &mut signals).await?,
    };
    if args.hand_on {
        return hand_on::run(&locks, held, &args, &mut signals).await;
    }
    let outcome = run_under(held.lease(), &args, &deadlines, &mut signals).await;
    let was_held = held.lease().is_held();
    let given_back = give_back(&args.name, held, &mut signals).await;
    // A process that was stopped and did not see the command end has to say so too: the command
    // may have ended after the lease.
    match outcome? {
        Ended::ByItself(status) if was_held && given_back != GivenBack::TooLate => {
            if let GivenBack::Uncertain(why) = given_back {
                tell(&why);
            }
            Ok(exit_of(status))
        }
        ended => Err(lost(&args.name, ended)),
    }
}

/// The lock. A failure, be it by a signal, leaves no place in the queue.
async fn wait_for(
    locks: &Locks,
    wanted: &Wanted,
    args: &args::Run,
    wait_limit: &WaitLimit,
    deadlines: &Deadlines,
    signals: &mut Signals,
) -> Result<Held, Failure> {
    let asking = async {
        loop {
            let held = Held::ask(wanted, args).await?;
            // A grant that was handed over is short until it is claimed: the command begins with a
            // whole lease.
            if !deadlines.are_near(held.lease().remaining()) {
                return Ok(held);
            }
            match held.lease().renew().await {
                Ok(_) => return Ok(held),
                // On a machine with better things to do it can be over by then. Nothing has begun,
                // so it acquires again.
                Err(error) if error.kind() == ErrorKind::Lost => drop(held.release().await),
                Err(error) => return Err(Failure::from(error)),
            }
        }
    };
    let outcome = tokio::select! {
        exit = told_to_end(signals) => Err(exit.into()),
        held = wait_limit.within(waiting::shown(locks.client_id(), wanted, args.quiet, asking), NOT_HAD) => held,
    };
    if outcome.is_err() {
        locks.shutdown(LEAVING).await;
    }
    outcome
}

/// Ends at the first signal that would have ended a process that does not hear it.
async fn told_to_end(signals: &mut Signals) -> Exit {
    loop {
        match signals.next().await {
            // Stopped as anybody; the place in the queue is kept for some seconds.
            Signal::SIGTSTP => drop(raise(signals::STOP)),
            signal if signals::ends(signal) => return Exit::by_signal(signal as i32),
            _ => {}
        }
    }
}

/// What became of the lock after the command.
#[derive(PartialEq, Eq)]
enum GivenBack {
    Surely,
    /// The lease had ended.
    TooLate,
    /// It will have ended then.
    Uncertain(String),
}

/// The command has ended: on a signal to end, this does not wait for the servers, as the lease ends
/// the lock.
async fn give_back(name: &str, held: Held, signals: &mut Signals) -> GivenBack {
    let uncertain = |why| GivenBack::Uncertain(format!("lock `{name}`: {why}; its lease ends it"));
    let told = async {
        told_to_end(signals).await;
        sleep(GIVING_BACK).await;
    };
    let released = tokio::select! {
        released = held.release() => released,
        () = told => return uncertain("a signal cut its release short"),
    };
    match released {
        Ok(Released::AlreadyLost) => GivenBack::TooLate,
        Ok(Released::Unknown) => uncertain("the servers did not hear of its release"),
        Ok(_) => GivenBack::Surely,
        Err(error) => GivenBack::Uncertain(with_reasons(&error)),
    }
}

/// What was not there in time, and what to do.
const NO_ANSWER: &str =
    "the servers did not answer in time; see that they run and that --redis names them";
const NOT_HAD: &str = "it was not had in time; try later";

/// How long all is waited for, from connecting on.
struct WaitLimit {
    name: String,
    limit: Option<(Duration, Instant)>,
}

impl WaitLimit {
    /// Who would not wait for others at all waits for the servers nevertheless.
    fn of(args: &args::Run) -> WaitLimit {
        let limit = args.timeout.filter(|timeout| !timeout.is_zero());
        WaitLimit {
            name: args.name.clone(),
            limit: limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?))),
        }
    }

    async fn within<T>(
        &self,
        doing: impl Future<Output = Result<T, Failure>>,
        missed: &str,
    ) -> Result<T, Failure> {
        let Some((limit, until)) = self.limit else {
            return doing.await;
        };
        timeout_at(until, doing).await.unwrap_or_else(|_elapsed| {
            let (name, limit) = (&self.name, show::time(limit));
            let message =
                format!("lock `{name}`: {missed}, or give it a --timeout longer than {limit}");
            Err(Failure::new(TRY_LATER, message))
        })
    }
}

/// How a command has ended.
enum Ended {
    ByItself(ExitStatus),
    /// Since the lease was being lost: in its grace, or by SIGKILL.
    InGrace,
    Killed,
}

/// Starts the command and watches over it. It has ended when this ends.
async fn run_under(
    lease: &Lease,
    args: &args::Run,
    deadlines: &Deadlines,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let token = (TOKEN, lease.token().to_string());
    let started = Command::start(&args.command, [token]).await;
    let mut command =
        started.map_err(|error| cannot_run(&args.command[0].to_string_lossy(), &error))?;
    loop {
        let step = deadlines.step(lease.remaining(), command.told_to_end());
        let pause = match step {
            Step::GoOn(pause) => pause,
            Step::Terminate => {
                command.terminate();
                continue;
            }
            Step::Kill => {
                return Ok(match command.kill().await? {
                    Some(_) if command.told_to_end().is_some() => Ended::InGrace,
                    Some(status) => Ended::ByItself(status),
                    None => Ended::Killed,
                });
            }
        };
        tokio::select! {
            biased;
            event = command.event() => match event? {
                Event::Ended(_) if command.told_to_end().is_some() => {
                    return end_of_all(lease, deadlines, &mut command).await;
                }
                Event::Ended(status) => return Ok(Ended::ByItself(status)),
                Event::Stopped(signal) => stopped(&mut command, signal, || lease.is_held()),
            },
            signal = signals.next() => command.signal(signal),
            () = lease.lost() => {}
            () = sleep(pause) => {}
        }
    }
}

/// The command has ended since it was told to. What it has started was told as well, has the rest
/// of the grace, and must not outlive the lease.
async fn end_of_all(
    lease: &Lease,
    deadlines: &Deadlines,
    command: &mut Command,
) -> Result<Ended, Failure> {
    while command.has_members() {
        match deadlines.step(lease.remaining(), command.told_to_end()) {
            Step::Kill => {
                command.kill().await?;
                return Ok(Ended::Killed);
            }
            Step::GoOn(pause) => sleep(pause.min(LOOK)).await,
            Step::Terminate => sleep(LOOK).await,
        }
    }
    Ok(Ended::InGrace)
}

/// The command was stopped: since it wants the terminal, or somebody typed Ctrl-Z.
fn stopped(command: &mut Command, signal: Signal, may_go_on: impl Fn() -> bool) {
    match signal {
        Signal::SIGTTIN | Signal::SIGTTOU if command.lend_terminal() => {}
        Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP => {
            command.stop_with_it();
            // Back again, maybe much later: is there still a lock to go on under?
            if may_go_on() {
                command.go_on();
            }
        }
        _ => {} // somebody means this command alone
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
            format!("{command}: there is no such command; the lock was given back"),
        ),
        _ => Failure::new(CANNOT_RUN, format!("{command}: {error}; the lock was given back")),
    }
}

fn lost(name: &str, ended: Ended) -> Failure {
    let command = match ended {
        Ended::ByItself(status) => {
            format!(
                "the command ended by itself ({status}), maybe when others held the lock already"
            )
        }
        Ended::InGrace => "the command was told to end, and did".to_owned(),
        Ended::Killed => "the command was killed".to_owned(),
    };
    let advice = "see what of its work is done before it is run again";
    Failure::new(LOST, format!("lock `{name}`: the lease was lost; {command}; {advice}"))
}
