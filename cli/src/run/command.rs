//! The command, in its own process group, so that signals reach it and everything that it starts.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::process::{self, Child};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{sleep, sleep_until};

use super::group::{Group, Member};
use super::launch::FailureReport;
use super::terminal::Terminal;
use super::transfer::TRANSFER_VAR;
use super::{launch, program};
use crate::signals;

/// The longest wait for the last process of a killed group.
const KILL_WAIT: Duration = Duration::from_millis(500);

/// The time between two checks for processes of the group that run as another user.
const FROM_LOOK_TO_LOOK: Duration = Duration::from_secs(5);

/// When to resume a process that was stopped where no one sees it. Its parent is blocked until it
/// runs another program, and is not notified of the stop.
const STOP_CHECK_DELAY: Duration = Duration::from_millis(500);

/// Variables for the command.
pub type Environment = [(&'static str, OsString)];

pub struct SupervisedCommand {
    child: Child,
    group: Group,
    terminal: Option<Terminal>,
    /// Notified when a child stops or ends.
    children: unix::Signal,
    terminated_at: Option<Instant>,
    /// When this process sent it a stop signal. `None` once it has stopped.
    stop_sent_at: Option<Instant>,
    /// When to look for processes of other users. `None` once such a process was found.
    look_at: Option<Instant>,
    /// `None` if the command was started directly.
    launch_failure: Option<FailureReport>,
}

/// Whether the command survives the death of this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Orphan {
    Dies,
    StillRunning,
}

pub enum CommandEvent {
    Ended(ExitStatus),
    /// Stopped by this signal; it may continue.
    Stopped(Signal),
}

impl SupervisedCommand {
    /// Starts a command with these variables in its environment, and without the transfer in
    /// the environment of this process.
    pub async fn start(
        words: &[OsString],
        environment: &Environment,
        orphan: Orphan,
    ) -> io::Result<SupervisedCommand> {
        let children = unix::signal(SignalKind::child())?;
        let terminal = Terminal::of_this_process();
        let launch_failure = (orphan == Orphan::Dies).then(FailureReport::new).transpose()?;
        let launched = launch::command(words, launch_failure.as_ref());
        let started = start(launched, environment).await;
        let child = match started {
            Err(error) => match program::by_shell(words, &error) {
                Some(script) => start(script, environment).await?,
                None => return Err(error),
            },
            child => child?,
        };
        let group = Group(Pid::from_raw(child.id().unwrap_or_default() as i32));
        Ok(SupervisedCommand {
            child,
            group,
            terminal,
            children,
            terminated_at: None,
            stop_sent_at: None,
            look_at: Some(Instant::now()),
            launch_failure,
        })
    }

    /// Returns why the ended process was not able to run the command. `None` if it ran it.
    pub fn launch_error(&mut self) -> Option<io::Error> {
        self.launch_failure.take()?.error()
    }

    /// The next event of the command. Cancel safe.
    pub async fn next_event(&mut self) -> io::Result<CommandEvent> {
        let SupervisedCommand { child, group, children, stop_sent_at: told_to_stop, .. } = self;
        let stopped = async {
            loop {
                let unseen = told_to_stop.map(|told| (told + STOP_CHECK_DELAY).into());
                tokio::select! {
                    _ = children.recv() => reap_orphans(group.0),
                    () = sleep_until(unseen.unwrap_or_else(tokio::time::Instant::now)), if unseen.is_some() => {
                        *told_to_stop = None;
                        let _ = killpg(group.0, Signal::SIGCONT);
                    }
                }
                let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
                if let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(group.0), flags) {
                    *told_to_stop = None;
                    return signal;
                }
            }
        };
        tokio::select! {
            biased;
            status = child.wait() => {
                self.take_terminal_back();
                Ok(CommandEvent::Ended(status?))
            }
            signal = stopped => Ok(CommandEvent::Stopped(signal)),
        }
    }

    /// Signals the whole group. It is no error if the group has ended. Returns false if no process
    /// of the group may be signalled.
    pub fn signal(&mut self, signal: Signal) -> bool {
        if signal == Signal::SIGTSTP {
            self.stop_sent_at = Some(Instant::now());
        }
        killpg(self.group.0, signal) != Err(Errno::EPERM)
    }

    pub fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT); // a stopped process must receive it, too
        self.terminated_at = Some(Instant::now());
    }

    /// Returns the time since SIGTERM, or `None` if it was not sent.
    pub fn terminated_at(&self) -> Option<Duration> {
        self.terminated_at.map(|told| told.elapsed())
    }

    /// Returns true if any process of the group is alive.
    pub fn is_alive(&self) -> bool {
        self.group.is_alive()
    }

    /// Returns true if the command itself has ended, even if other processes of its group live.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// The living processes of the group.
    pub fn living(&self) -> Vec<Member> {
        self.group.living()
    }

    /// Processes of the group that cannot be stopped, because they run as another user. They are
    /// returned once.
    pub fn found_foreign(&mut self) -> Vec<Member> {
        let Some(look_at) = self.look_at else { return Vec::new() };
        if Instant::now() < look_at && !self.group.is_foreign() {
            return Vec::new();
        }
        let foreign = self.group.foreign();
        self.look_at = foreign.is_empty().then(|| Instant::now() + FROM_LOOK_TO_LOOK);
        foreign
    }

    /// Kills the whole group, and waits for a moment until it is dead. Returns the command's exit
    /// status if it had ended before.
    pub async fn kill(&mut self) -> io::Result<Option<ExitStatus>> {
        let before = self.child.try_wait()?;
        self.signal(Signal::SIGKILL);
        let until = Instant::now() + KILL_WAIT;
        while self.child.try_wait()?.is_none() || self.is_alive() {
            if Instant::now() > until {
                break;
            }
            sleep(KILL_WAIT / 250).await;
        }
        self.take_terminal_back();
        Ok(before)
    }

    /// Lends the terminal to the command. Returns false if this process does not have it.
    pub fn lend_terminal(&mut self) -> bool {
        let lent = self.terminal.as_mut().is_some_and(|terminal| terminal.lend(self.group.0));
        if lent {
            self.signal(Signal::SIGCONT);
        }
        lent
    }

    /// Stops this process and everything in the same shell job, as Ctrl-Z would, so that the shell
    /// sees it. Returns when the shell resumes it.
    pub fn stop_self(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            let _ = killpg(nix::unistd::getpgrp(), signals::STOP_SELF);
        }
    }

    /// Resumes the command. If it needs the terminal, it stops again.
    pub fn resume(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }
}

/// Starts the process in a group of its own.
async fn start(command: std::process::Command, environment: &Environment) -> io::Result<Child> {
    let mut command = process::Command::from(command);
    command.env_remove(TRANSFER_VAR).envs(environment.iter().cloned());
    command.process_group(0).kill_on_drop(true);
    let mut spawning = launch::spawn(command)?;
    loop {
        tokio::select! {
            spawned = &mut spawning => return spawned.map_err(io::Error::other)?,
            // Ctrl-Z may have stopped it before it had its own group.
            () = sleep(STOP_CHECK_DELAY) => resume_children(),
        }
    }
}

/// Reaps the children that this process has not started: as PID 1 of a container it is the parent
/// of every process whose own parent has ended. Stops at the command, which `Child` reaps.
fn reap_orphans(command: Pid) {
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    while let Ok(status) = waitid(Id::All, ended | WaitPidFlag::WNOWAIT)
        && let Some(child) = status.pid().filter(|child| *child != command)
    {
        let _ = waitid(Id::Pid(child), ended);
    }
}

/// Resumes all children of this process. The only one is the child that is being started, whose
/// process id is not known yet.
fn resume_children() {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children: String = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .collect();
    for child in children.split(' ').filter_map(|pid| pid.parse().ok()) {
        let _ = kill(Pid::from_raw(child), Signal::SIGCONT);
    }
}
