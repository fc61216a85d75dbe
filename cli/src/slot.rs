//! `rwlease slot`: computes slots without a server.

use std::io::Write;

use rwlease::Slot;

use crate::exit::{CliError, ExitStatus};
use crate::format;

pub fn slot(prefix: &str, names: &[String]) -> Result<ExitStatus, CliError> {
    let mut out = anstream::stdout().lock();
    for name in names {
        let slot = Slot::of(format!("{prefix}{name}"));
        writeln!(out, "{slot:>5}  {}", format::escape_controls(name))?;
    }
    out.flush()?;
    Ok(ExitStatus::DONE)
}
