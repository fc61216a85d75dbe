//! The terminal: only one process group may read from it, and it is this process that the shell
//! gave it to.
//!
//! The command is a group of its own, so it is stopped by the system when it reaches for the
//! terminal. Then the terminal is lent to it, as a shell does. A command that never does leaves it
//! where it is, so that the other parts of a pipeline can use it.

use std::fs::{File, OpenOptions};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

pub struct Terminal {
    device: File,
    lent: bool,
}

impl Terminal {
    /// Nothing if there is none.
    pub fn of_this_process() -> Option<Terminal> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { device, lent: false })
    }

    /// False if it is not this process's to lend.
    pub fn lend(&mut self, group: Pid) -> bool {
        let is_ours = tcgetpgrp(&self.device) == Ok(getpgrp());
        self.lent = is_ours && self.give(group);
        self.lent
    }

    pub fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            self.give(getpgrp());
        }
    }

    /// SIGTTOU stops a process that does this from the background, unless it blocks that signal.
    fn give(&self, group: Pid) -> bool {
        let blocked = SigSet::from(Signal::SIGTTOU);
        let before = SigSet::thread_get_mask();
        let given = blocked.thread_block().is_ok() && tcsetpgrp(&self.device, group).is_ok();
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
        given
    }
}
