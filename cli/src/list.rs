//! `rwlease list`.

use std::io::Write;

use crate::args::Servers;
use crate::exit::{Exit, Failure};
use crate::show;

pub async fn list(servers: &Servers, start: &str) -> Result<Exit, Failure> {
    let locks = servers.connect().await?;
    let mut out = anstream::stdout().lock();
    let mut listing = locks.list(start);
    while let Some(names) = listing.next_page().await? {
        for name in names {
            writeln!(out, "{}", show::plain(&name))?;
        }
    }
    out.flush()?;
    Ok(Exit::DONE)
}
