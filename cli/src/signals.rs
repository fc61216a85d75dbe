//! The signals that this process hears, to pass them on or to end in order.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Passed on to the command. (SIGTSTP is what Ctrl-Z sends.)
const PASSED_ON: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
];

/// What ends a process that does nothing about it.
const THAT_END: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Stops a process where its shell would see that and let it go on, as Ctrl-Z does to those that do
/// not hear it. Where there is no such shell (`ssh -t`, containers) it does nothing: the system
/// itself looks, but not so at SIGSTOP, and SIGTSTP is heard here.
pub const STOP: Signal = Signal::SIGTTOU;

pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub fn passed_on() -> io::Result<Signals> {
        Signals::heard(&PASSED_ON)
    }

    pub fn that_end() -> io::Result<Signals> {
        Signals::heard(&THAT_END)
    }

    /// Those that were ignored when this process began (by `nohup`) stay ignored, here and in the
    /// command.
    fn heard(signals: &[Signal]) -> io::Result<Signals> {
        let ignored = ignored();
        let heard = signals.iter().filter(|&&signal| ignored & (1 << (signal as u32 - 1)) == 0);
        let streams =
            heard.map(|&signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?)));
        streams.collect::<io::Result<_>>().map(Signals)
    }

    /// The next one that comes. Can be dropped.
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

/// Whether one that does nothing about this signal is ended by it.
pub fn ends(signal: Signal) -> bool {
    THAT_END.contains(&signal)
}

/// The set of ignored signals, where the system tells it.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
