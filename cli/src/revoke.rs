//! `rwlease revoke` and `rwlease release --force`.

use std::io::Write;

use crate::args::ServerArgs;
use crate::exit::{CliError, ExitStatus};
use crate::format;
use crate::lock_kind::wrong_kind_for_lock;

/// The way to free a semaphore.
const STOP_HOLDERS: &str =
    "its permits cannot be revoked: stop its holders, which `rwlease status` shows";

pub async fn revoke(servers: &ServerArgs, name: &str) -> Result<ExitStatus, CliError> {
    let locks = servers.connect().await?;
    let revoked = match locks.rwlock(name)?.revoke().await {
        Ok(revoked) => revoked,
        Err(error) => return Err(wrong_kind_for_lock(&locks, name, error, STOP_HOLDERS).await),
    };
    let name = format::escape_controls(name);
    let mut out = anstream::stdout().lock();
    match revoked {
        None => writeln!(out, "nobody holds {name}")?,
        Some(revoked) => {
            let holders = format::holders(revoked.writer.is_some(), revoked.reader_count);
            let until = match revoked.writer {
                Some(left) => format!("in {} at the latest", format::duration(left)),
                None => "when their leases end".to_owned(),
            };
            writeln!(out, "revoked {name} from {holders}: it is free {until}")?;
        }
    }
    out.flush()?;
    Ok(ExitStatus::DONE)
}

pub async fn release(servers: &ServerArgs, name: &str) -> Result<ExitStatus, CliError> {
    let locks = servers.connect().await?;
    let released = match locks.rwlock(name)?.force_release().await {
        Ok(released) => released,
        Err(error) => return Err(wrong_kind_for_lock(&locks, name, error, STOP_HOLDERS).await),
    };
    let name = format::escape_controls(name);
    let mut out = anstream::stdout().lock();
    match released {
        None => writeln!(out, "nobody holds {name}")?,
        Some(released) => {
            let holders = format::holders(released.writer, released.reader_count);
            let token = released.fencing_token.get();
            writeln!(
                out,
                "took {name} from {holders}: tokens below {token} are stale; what the lock protects must refuse them"
            )?;
        }
    }
    out.flush()?;
    Ok(ExitStatus::DONE)
}
