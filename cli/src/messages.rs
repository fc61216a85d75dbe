//! Lines on standard error.
//!
//! A write to standard error can block: the pipe is full (`2>&1 | less`), or the terminal is
//! stopped by Ctrl-S. While a lease is held, no such write may delay a renewal, SIGTERM or SIGKILL.
//! So a thread of its own prints the lines then, and nothing waits for it before the process ends.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::format;

/// The longest queue. Later lines are dropped while nobody reads.
const MAX_LINES: usize = 64;

/// How long the end of the process waits for lines that are not written yet.
const END_TIMEOUT: Duration = Duration::from_millis(500);

static PRINTER: OnceLock<Arc<Printer>> = OnceLock::new();

#[derive(Default)]
struct Printer {
    lines: Mutex<Lines>,
    /// Notified when a line was added or written.
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    queue: VecDeque<String>,
    is_writing: bool,
}

/// Prints one line on standard error. A failure to write it is ignored.
pub fn print_error(message: &str) {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format::escape_controls(&line);
    match PRINTER.get() {
        Some(printer) => printer.add(line),
        None => write(&line),
    }
}

/// From now on, a thread of its own prints the lines.
pub fn print_in_background() -> io::Result<()> {
    let printer: Arc<Printer> = Arc::default();
    let lines = printer.clone();
    thread::Builder::new().name("messages".to_owned()).spawn(move || lines.run())?;
    PRINTER.get_or_init(|| printer);
    Ok(())
}

/// Waits for a moment until all lines are written. For the end of the process.
pub fn finish() {
    if let Some(printer) = PRINTER.get() {
        let is_busy = |lines: &mut Lines| lines.is_writing || !lines.queue.is_empty();
        drop(printer.changed.wait_timeout_while(printer.lines(), END_TIMEOUT, is_busy));
    }
}

impl Printer {
    fn add(&self, line: String) {
        let mut lines = self.lines();
        if lines.queue.len() < MAX_LINES {
            lines.queue.push_back(line);
            self.changed.notify_all();
        }
    }

    fn run(&self) {
        // With `stty tostop`, SIGTTOU would stop the whole process if it is in the background. If
        // the thread blocks the signal, the terminal takes the line.
        let _ = SigSet::from(Signal::SIGTTOU).thread_block();
        let mut lines = self.lines();
        loop {
            match lines.queue.pop_front() {
                Some(line) => {
                    lines.is_writing = true;
                    drop(lines);
                    write(&line);
                    lines = self.lines();
                    lines.is_writing = false;
                    self.changed.notify_all();
                }
                None => {
                    lines = self.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(line: &str) {
    let style = anstyle::Style::new().bold();
    let _ = writeln!(anstream::stderr(), "{style}rwlease:{style:#} {line}");
}
