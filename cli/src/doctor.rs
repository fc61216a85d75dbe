//! `rwlease doctor`: what would break a lock here?

mod access_error;
mod checks;
mod clock_offset;
mod finding;
mod identity;
mod probe;
mod rights;
mod sentinels;
mod server_identity;
mod trial_lock;

use std::io::Write;

use crate::args::ServerArgs;
use crate::exit::{CHECK_FAILED, CliError, ExitStatus};
use crate::format;
use finding::Severity;

pub async fn doctor(servers: &ServerArgs) -> Result<ExitStatus, CliError> {
    servers.check()?;
    if servers.wait_for_servers.is_some() {
        // Why there is no client for locks is for the checks to say.
        let _ = servers.connect().await;
    }
    let deployment = probe::probe_deployment(servers).await?;
    let mut findings = checks::all(&deployment);
    findings.extend(identity::all(&deployment));
    findings.extend(sentinels::all(&deployment));
    findings.extend(trial_lock::all(servers, &deployment).await);
    findings.sort_by_key(|finding| finding.severity);
    let mut out = anstream::stdout().lock();
    let findings = finding::merge_equal(findings);
    for finding in &findings {
        writeln!(out, "{finding}")?;
    }
    let of = |level| findings.iter().filter(|finding| finding.severity == level).count();
    let (wrong, warnings) = (of(Severity::Error), of(Severity::Warning));
    let warnings_counted = format::with_noun(warnings as u64, "warning", "warnings");
    writeln!(out, "{wrong} wrong, {warnings_counted}")?;
    out.flush()?;
    Ok(if wrong > 0 { ExitStatus(CHECK_FAILED) } else { ExitStatus::DONE })
}
