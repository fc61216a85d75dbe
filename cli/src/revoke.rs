//! `rwlease revoke` and `rwlease release --force`.

use std::io::Write;

use crate::args::Servers;
use crate::exit::{Exit, Failure};
use crate::show;

pub async fn revoke(servers: &Servers, name: &str) -> Result<Exit, Failure> {
    let lock = servers.connect().await?.rwlock(name)?;
    let name = show::plain(name);
    let mut out = anstream::stdout().lock();
    match lock.revoke().await? {
        None => writeln!(out, "nobody holds {name}")?,
        Some(revoked) => {
            let holders = show::holders(revoked.writer.is_some(), revoked.readers);
            let until = match revoked.writer {
                Some(left) => format!("in {} at the latest", show::time(left)),
                None => "when their leases end".to_owned(),
            };
            writeln!(out, "revoked {name} from {holders}: it is free {until}")?;
        }
    }
    out.flush()?;
    Ok(Exit::DONE)
}

pub async fn release(servers: &Servers, name: &str) -> Result<Exit, Failure> {
    let lock = servers.connect().await?.rwlock(name)?;
    let name = show::plain(name);
    let mut out = anstream::stdout().lock();
    match lock.force_release().await? {
        None => writeln!(out, "nobody holds {name}")?,
        Some(released) => {
            let holders = show::holders(released.writer, released.readers);
            let token = released.token;
            writeln!(
                out,
                "took {name} from {holders}: tokens below {token} are stale; what the lock protects must refuse them"
            )?;
        }
    }
    out.flush()?;
    Ok(Exit::DONE)
}
