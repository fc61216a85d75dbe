//! The command: a process group of its own, so that it and what it starts can be signalled together.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::process::{self, Child};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::sleep;

use super::terminal::Terminal;
use crate::signals;

/// The longest time to wait for the last of a group that was killed.
const DYING: Duration = Duration::from_millis(500);

pub struct Command {
    child: Child,
    group: Pid,
    terminal: Option<Terminal>,
    /// Told when a child stops or ends.
    children: unix::Signal,
    told_to_end: Option<Instant>,
}

pub enum Event {
    Ended(ExitStatus),
    /// By this signal; it may go on.
    Stopped(Signal),
}

impl Command {
    /// `token` is put into its environment by that name.
    pub fn start(words: &[OsString], name: &str, token: u64) -> io::Result<Command> {
        let children = unix::signal(SignalKind::child())?;
        let terminal = Terminal::of_this_process();
        let child = process::Command::new(&words[0])
            .args(&words[1..])
            .env(name, token.to_string())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = Pid::from_raw(child.id().unwrap_or_default() as i32);
        Ok(Command {
            child,
            group,
            terminal,
            children,
            told_to_end: None,
        })
    }

    /// What happens to it next. Can be dropped.
    pub async fn event(&mut self) -> io::Result<Event> {
        let Command {
            child, group, children, ..
        } = self;
        let stopped = async {
            loop {
                children.recv().await;
                let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
                if let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(*group), flags) {
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

    /// To all of the group. That it has ended meanwhile is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    pub fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT); // one that was stopped must hear it, too
        self.told_to_end = Some(Instant::now());
    }

    /// How long ago it was told to end, if it was.
    pub fn told_to_end(&self) -> Option<Duration> {
        self.told_to_end.map(|told| told.elapsed())
    }

    /// Whether anything of the group is left.
    pub fn has_members(&self) -> bool {
        killpg(self.group, None).is_ok()
    }

    /// Kills all of the group; gives the command's exit status if it had ended before.
    pub async fn kill(&mut self) -> io::Result<Option<ExitStatus>> {
        let before = self.child.try_wait()?;
        self.signal(Signal::SIGKILL);
        self.child.wait().await?;
        // What it has started dies by itself, and a little later; somebody may have to see to the remains.
        let until = Instant::now() + DYING;
        while self.has_members() && Instant::now() < until {
            sleep(DYING / 250).await;
        }
        self.take_terminal_back();
        Ok(before)
    }

    /// It wants to use the terminal, and may if this process could. False if not.
    pub fn lend_terminal(&mut self) -> bool {
        let lent = self.terminal.as_mut().is_some_and(|terminal| terminal.lend(self.group));
        if lent {
            self.signal(Signal::SIGCONT);
        }
        lent
    }

    /// Stops this process, and all that its shell knows as the same job, as Ctrl-Z would: the shell is to see it. Ends when the shell lets it go on.
    pub fn stop_with_it(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            let _ = killpg(nix::unistd::getpgrp(), signals::STOP);
        }
    }

    /// Lets it go on. If it wants the terminal, it will say so.
    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }
}
