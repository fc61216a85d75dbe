//! `rwlease slot`: computes slots without a server.

use std::io::Write;

use rwlease::Slot;

use crate::exit::{Exit, Failure};
use crate::show;

pub fn slot(prefix: &str, names: &[String]) -> Result<Exit, Failure> {
    let mut out = anstream::stdout().lock();
    for name in names {
        let slot = Slot::of(format!("{prefix}{name}"));
        writeln!(out, "{slot:>5}  {}", show::plain(name))?;
    }
    out.flush()?;
    Ok(Exit::DONE)
}
