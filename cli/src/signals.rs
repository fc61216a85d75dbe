//! The signals that this process handles: it forwards them to the command, or shuts down.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{self, SignalKind};

/// Signals for the command: all that can be handled, apart from those that report a fault of this
/// process itself, its children and its job. (Ctrl-Z sends SIGTSTP.)
const FORWARDED: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGABRT,
    Signal::SIGALRM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGIO,
    Signal::SIGPROF,
    Signal::SIGURG,
    Signal::SIGVTALRM,
    Signal::SIGWINCH,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    Signal::SIGTSTP,
    #[cfg(target_os = "linux")]
    Signal::SIGPWR,
];

/// Signals that ask a process to end.
const TERMINATING: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGABRT,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    #[cfg(target_os = "linux")]
    Signal::SIGPWR,
];

/// Stops this process where its shell sees it and can resume it, as Ctrl-Z does to processes that
/// do not handle SIGTSTP. Without such a shell (`ssh -t`, containers) this signal does nothing: the
/// system checks that for SIGTTOU, but not for SIGSTOP, and this process handles SIGTSTP itself.
pub const STOP_SELF: Signal = Signal::SIGTTOU;

pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub fn forwarded() -> io::Result<Signals> {
        Signals::listen(FORWARDED)
    }

    pub fn terminating() -> io::Result<Signals> {
        Signals::listen(TERMINATING)
    }

    /// Signals that were ignored when this process started (by `nohup`) stay ignored, here and in
    /// the command. Blocked ones likewise stay blocked. SIGPIPE is the exception: before `main`
    /// begins, the standard library ignores it and keeps no record of what was before. It sets the
    /// default in each process that it starts.
    fn listen(signals: &[Signal]) -> io::Result<Signals> {
        let ignored = ignored();
        let heard = signals.iter().filter(|&&signal| ignored & (1 << (signal as u32 - 1)) == 0);
        let streams =
            heard.map(|&signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?)));
        streams.collect::<io::Result<_>>().map(Signals)
    }

    /// The next signal. Cancel safe.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Unblocks SIGCHLD, which notifies this process when a command is stopped. Call it before other
/// threads start, because threads inherit the mask of blocked signals.
pub fn unblock_children() {
    let _ = SigSet::from(Signal::SIGCHLD).thread_unblock();
}

/// Returns true if the signal asks a process to end.
pub fn is_terminating(signal: Signal) -> bool {
    TERMINATING.contains(&signal)
}

/// The set of ignored signals, if the system reports it.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
