//! The command, in its own process group, so that signals reach it and everything that it starts.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::process::{self, Child};
use tokio::signal::unix::{self, SignalKind};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until};

use super::hand_on::TICKET;
use super::terminal::Terminal;
use crate::signals;

/// The longest wait for the last process of a killed group.
const DYING: Duration = Duration::from_millis(500);

/// When to resume a process that was stopped where no one sees it. Its parent is blocked until it
/// runs another program, and is not notified of the stop.
const UNSEEN_STOP: Duration = Duration::from_millis(500);

pub struct Command {
    child: Child,
    group: Pid,
    terminal: Option<Terminal>,
    /// Notified when a child stops or ends.
    children: unix::Signal,
    told_to_end: Option<Instant>,
    /// When it was sent a stop signal, until its stop is seen.
    told_to_stop: Option<Instant>,
}

pub enum Event {
    Ended(ExitStatus),
    /// Stopped by this signal; it may continue.
    Stopped(Signal),
}

impl Command {
    /// Starts a command with these variables in its environment, and without this process's ticket.
    pub async fn start(
        words: &[OsString],
        environment: impl IntoIterator<Item = (&'static str, String)>,
    ) -> io::Result<Command> {
        let children = unix::signal(SignalKind::child())?;
        let terminal = Terminal::of_this_process();
        let mut command = process::Command::new(&words[0]);
        command.args(&words[1..]).env_remove(TICKET).envs(environment);
        command.process_group(0).kill_on_drop(true);
        let mut spawning = spawn_blocking(move || command.spawn());
        let child = loop {
            tokio::select! {
                spawned = &mut spawning => break spawned??,
                // Ctrl-Z may have stopped it before it had its own group.
                () = sleep(UNSEEN_STOP) => let_children_go_on(),
            }
        };
        let group = Pid::from_raw(child.id().unwrap_or_default() as i32);
        Ok(Command { child, group, terminal, children, told_to_end: None, told_to_stop: None })
    }

    /// The next event of the command. Cancel safe.
    pub async fn event(&mut self) -> io::Result<Event> {
        let Command { child, group, children, told_to_stop, .. } = self;
        let stopped = async {
            loop {
                let unseen = told_to_stop.map(|told| (told + UNSEEN_STOP).into());
                tokio::select! {
                    _ = children.recv() => {}
                    () = sleep_until(unseen.unwrap_or_else(tokio::time::Instant::now)), if unseen.is_some() => {
                        *told_to_stop = None;
                        let _ = killpg(*group, Signal::SIGCONT);
                    }
                }
                let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
                if let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(*group), flags) {
                    *told_to_stop = None;
                    return signal;
                }
            }
        };
        tokio::select! {
            biased;
            status = child.wait() => {
                self.take_terminal_back();
                Ok(Event::Ended(status?))
            }
            signal = stopped => Ok(Event::Stopped(signal)),
        }
    }

    /// Signals the whole group. It is no error if the group has ended.
    pub fn signal(&mut self, signal: Signal) {
        if signal == Signal::SIGTSTP {
            self.told_to_stop = Some(Instant::now());
        }
        let _ = killpg(self.group, signal);
    }

    pub fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT); // a stopped process must receive it, too
        self.told_to_end = Some(Instant::now());
    }

    /// How long ago it was told to end, if it was.
    pub fn told_to_end(&self) -> Option<Duration> {
        self.told_to_end.map(|told| told.elapsed())
    }

    /// Returns true if any process of the group is left.
    pub fn has_members(&self) -> bool {
        killpg(self.group, None).is_ok()
    }

    /// Kills the whole group. Returns the command's exit status if it had ended before.
    pub async fn kill(&mut self) -> io::Result<Option<ExitStatus>> {
        let before = self.child.try_wait()?;
        self.signal(Signal::SIGKILL);
        self.child.wait().await?;
        // Other processes of the group die a little later, and their parents may have to reap them.
        let until = Instant::now() + DYING;
        while self.has_members() && Instant::now() < until {
            sleep(DYING / 250).await;
        }
        self.take_terminal_back();
        Ok(before)
    }

    /// Gives the terminal to the command, which needs it. Returns false if this process does not
    /// have it.
    pub fn lend_terminal(&mut self) -> bool {
        let lent = self.terminal.as_mut().is_some_and(|terminal| terminal.lend(self.group));
        if lent {
            self.signal(Signal::SIGCONT);
        }
        lent
    }

    /// Stops this process and everything in the same shell job, as Ctrl-Z would, so that the shell
    /// sees it. Returns when the shell resumes it.
    pub fn stop_with_it(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            let _ = killpg(nix::unistd::getpgrp(), signals::STOP);
        }
    }

    /// Resumes the command. If it needs the terminal, it stops again.
    pub fn go_on(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }
}

/// Resumes all children of this process. The only one is the child that is being started, whose
/// process id is not known yet.
fn let_children_go_on() {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children: String = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .collect();
    for child in children.split(' ').filter_map(|pid| pid.parse().ok()) {
        let _ = kill(Pid::from_raw(child), Signal::SIGCONT);
    }
}
