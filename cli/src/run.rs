//! `rwlease run`: takes the lock, runs the command, releases the lock.

mod command;
mod deadlines;
mod hand_on;
mod held;
mod loss;
mod terminal;
mod waiting;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use rwlease::{ErrorKind, Locks, Released};
use tokio::time::{Instant, sleep, timeout_at};

use crate::args::{self, Servers};
use crate::exit::{CANNOT_RUN, Exit, Failure, LOST, NOT_FOUND, UNAVAILABLE, tell, with_reasons};
use crate::show;
use crate::signals::{self, Signals};
use command::{Command, Event};
use deadlines::{Deadlines, Step};
use held::{Held, Wanted};
use loss::Watch;

/// How long a process that was told to end tries to leave the queue.
const LEAVING: Duration = Duration::from_secs(1);

/// How long it still waits for the answer to a release.
const GIVING_BACK: Duration = Duration::from_millis(200);

/// How often to check whether the rest of the command's group is gone.
const LOOK: Duration = Duration::from_millis(20);

/// How long a wait whose time is up still takes to find what is wrong with the servers.
const LAST_WORDS: Duration = Duration::from_secs(1);

const NO_ANSWER: &str =
    "the servers did not answer in time; check that they run and that --redis names them";

/// Passes the fencing token to the command.
const TOKEN: &str = "RWLEASE_TOKEN";

/// Passes the id by which `rwlease status` names this holder.
const ID: &str = "RWLEASE_ID";

pub async fn run(servers: &Servers, args: args::Run) -> Result<Exit, Failure> {
    let deadlines = Deadlines::new(args.lease, args.grace)?;
    let ticket = args.take_up.then(|| hand_on::ticket_of(&args.name)).transpose()?;
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
    if args.hand_on {
        return hand_on::run(&locks, held, &args, &mut signals).await;
    }
    let mut watch = Watch::new(held.lease());
    let outcome = run_under(&mut watch, &args, &deadlines, &mut signals).await;
    let was_held = !watch.left().is_zero();
    let clues = watch.clues();
    let given_back = give_back(&args.name, held, &mut signals).await;
    let is_gone = given_back == GivenBack::TooLate;
    // Also checked for a process that was stopped and did not see the command end: the command may
    // have ended after the lease.
    match outcome? {
        Ended::ByItself(status) if was_held && !is_gone => {
            if let GivenBack::Uncertain(why) = given_back {
                tell(&why);
            }
            Ok(exit_of(status))
        }
        ended => Err(lost(&args.name, &clues.reason(is_gone).await, ended)),
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
    let ask = async |limit| loop {
        let held = Held::ask(locks, wanted, args, limit).await?;
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
    let waiting = async {
        let asking = ask(args.timeout.filter(Duration::is_zero));
        let shown = waiting::shown(locks.client_id(), wanted, args.quiet, asking);
        match wait_limit.until(shown).await {
            Some(outcome) => outcome,
            // This cannot tell others that hold the lock from servers that cannot grant it, but a
            // short request can.
            None => ask(Some(LAST_WORDS)).await,
        }
    };
    let outcome = tokio::select! {
        exit = told_to_end(signals) => Err(exit.into()),
        held = waiting => held,
    };
    if outcome.is_err() {
        locks.shutdown(LEAVING).await;
    }
    outcome
}

/// Resolves at the first signal that ends a process by default.
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
/// the lease frees the lock.
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
        Ok(Released::Unknown) => uncertain("the servers did not answer its release"),
        Ok(_) => GivenBack::Surely,
        Err(error) => GivenBack::Uncertain(with_reasons(&error)),
    }
}

/// The limit for the whole wait, connecting included.
struct WaitLimit {
    name: String,
    limit: Option<(Duration, Instant)>,
}

impl WaitLimit {
    /// A timeout of 0 is no limit here: it makes a try, whose calls have limits of their own.
    fn of(args: &args::Run) -> WaitLimit {
        let limit = args.timeout.filter(|timeout| !timeout.is_zero());
        WaitLimit {
            name: args.name.clone(),
            limit: limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?))),
        }
    }

    /// `None` if the time is up before.
    async fn until<T>(&self, doing: impl Future<Output = T>) -> Option<T> {
        match self.limit {
            Some((_, until)) => timeout_at(until, doing).await.ok(),
            None => Some(doing.await),
        }
    }

    /// Limits the wait for the servers' answers.
    async fn within<T>(
        &self,
        doing: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.until(doing).await.unwrap_or_else(|| {
            let limit = self.limit.map(|(limit, _)| show::time(limit)).unwrap_or_default();
            let advice = format!("or use a --timeout longer than {limit}");
            let message = format!("lock `{}`: {NO_ANSWER}, {advice}", self.name);
            Err(Failure::new(UNAVAILABLE, message))
        })
    }
}

/// How the command ended.
enum Ended {
    ByItself(ExitStatus),
    /// It ended while the lease was being lost: within the grace, or by SIGKILL.
    InGrace,
    Killed,
}

/// Starts the command and supervises it until it has ended.
async fn run_under(
    watch: &mut Watch<'_>,
    args: &args::Run,
    deadlines: &Deadlines,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let lease = watch.lease;
    let environment = [(TOKEN, lease.token().to_string()), (ID, lease.id().to_owned())];
    let started = Command::start(&args.command, environment).await;
    let mut command =
        started.map_err(|error| cannot_run(&args.command[0].to_string_lossy(), &error))?;
    loop {
        let step = deadlines.step(watch.left(), command.told_to_end());
        let pause = match step {
            Step::GoOn(pause) => pause,
            Step::Terminate => {
                command.terminate();
                watch.ask();
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
                    return end_of_all(watch, deadlines, &mut command).await;
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

/// The command has ended after it was told to. The processes that it started were told as well;
/// they have the rest of the grace, and must not outlive the lease.
async fn end_of_all(
    watch: &mut Watch<'_>,
    deadlines: &Deadlines,
    command: &mut Command,
) -> Result<Ended, Failure> {
    while command.has_members() {
        match deadlines.step(watch.left(), command.told_to_end()) {
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

/// The command was stopped because it needs the terminal, or by Ctrl-Z.
fn stopped(command: &mut Command, signal: Signal, may_go_on: impl Fn() -> bool) {
    match signal {
        Signal::SIGTTIN | Signal::SIGTTOU if command.lend_terminal() => {}
        Signal::SIGTTIN | Signal::SIGTTOU | Signal::SIGTSTP => {
            command.stop_with_it();
            // This process continues here, maybe much later, when the lock may be lost.
            if may_go_on() {
                command.go_on();
            }
        }
        _ => {} // somebody stopped this command alone
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
            format!("{command}: there is no such command; the lock was released"),
        ),
        _ => Failure::new(CANNOT_RUN, format!("{command}: {error}; the lock was released")),
    }
}

fn lost(name: &str, why: &str, ended: Ended) -> Failure {
    let command = match ended {
        Ended::ByItself(status) => {
            format!("the command ended by itself ({status}), maybe after others got the lock")
        }
        Ended::InGrace => "the command ended after SIGTERM".to_owned(),
        Ended::Killed => "the command was killed".to_owned(),
    };
    let advice = "check how much of its work is done before you run it again";
    Failure::new(LOST, format!("lock `{name}`: the lease was lost: {why}; {command}; {advice}"))
}
