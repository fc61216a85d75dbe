//! The terminal. Only one process group may read from it, and the shell gave it to this process.
//!
//! The command has its own group, so the system stops it when it uses the terminal. Then the
//! terminal is lent to it, as a shell does. A command that never uses the terminal leaves it to the
//! other parts of a pipeline.

use std::fs::{File, OpenOptions};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

pub struct Terminal {
    device: File,
    lent: bool,
}

impl Terminal {
    /// `None` if there is no terminal.
    pub fn of_this_process() -> Option<Terminal> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { device, lent: false })
    }

    /// Returns false if this process does not have the terminal.
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

    /// SIGTTOU stops a background process that does this, unless the process blocks that signal.
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
