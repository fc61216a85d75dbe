//! `rwlease doctor`: what would break a lock here?

mod checks;
mod clock;
mod finding;
mod identity;
mod locked_out;
mod probe;
mod rights;
mod sentinels;
mod trial;
mod who;

use std::io::Write;

use crate::args::Servers;
use crate::exit::{Exit, Failure, WRONG};
use crate::show;
use finding::Level;

pub async fn doctor(servers: &Servers) -> Result<Exit, Failure> {
    servers.check()?;
    let deployment = probe::look(servers).await?;
    let mut findings = checks::all(&deployment);
    findings.extend(identity::all(&deployment));
    findings.extend(sentinels::all(&deployment));
    findings.extend(trial::all(servers, &deployment).await);
    findings.sort_by_key(|finding| finding.level);
    let mut out = anstream::stdout().lock();
    let findings = finding::together(findings);
    for finding in &findings {
        writeln!(out, "{finding}")?;
    }
    let of = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (wrong, warnings) = (of(Level::Wrong), of(Level::Warning));
    let warnings_counted = show::count(warnings as u64, "warning", "warnings");
    writeln!(out, "{wrong} wrong, {warnings_counted}")?;
    out.flush()?;
    Ok(if wrong > 0 { Exit(WRONG) } else { Exit::DONE })
}
