//! `rwlease list`.

use std::io::Write;

use crate::args::ServerArgs;
use crate::exit::{CliError, ExitStatus};
use crate::format;

pub async fn list(servers: &ServerArgs, start: &str) -> Result<ExitStatus, CliError> {
    let locks = servers.connect().await?;
    let mut out = anstream::stdout().lock();
    let mut listing = locks.list(start);
    while let Some(names) = listing.next_page().await? {
        for name in names {
            writeln!(out, "{}", format::escape_controls(&name))?;
        }
    }
    out.flush()?;
    Ok(ExitStatus::DONE)
}
