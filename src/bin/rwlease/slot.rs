//! `rwlease slot`: arithmetic, no server is asked.

use std::io::Write;

use rwlease::Slot;

use crate::exit::{Exit, Failure};

pub fn slot(prefix: &str, names: &[String]) -> Result<Exit, Failure> {
    let mut out = anstream::stdout().lock();
    for name in names {
        writeln!(out, "{:>5}  {name}", Slot::of(format!("{prefix}{name}")))?;
    }
    Ok(Exit::DONE)
}
