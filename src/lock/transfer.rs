use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use rwlease_core::decimal::parse_u64;
use rwlease_core::protocol::{AcquisitionId, LockMode, MAX_NAME_LEN};

use crate::client::transfer::{TransferredLease, begin_transfer};
use crate::error::{Error, Result};
use crate::fencing_token::FencingToken;
use crate::lock::guard::Hold;
#[cfg(doc)]
use crate::lock::guard::{MutexGuard, ReadGuard, WriteGuard};

/// The prefix of the text, with its version.
const MARK: &str = "rwlease-transfer-1";

/// A held lock on its way to another client.
///
/// [`WriteGuard::into_transfer`], [`ReadGuard::into_transfer`] and [`MutexGuard::into_transfer`]
/// make it from a guard. [`Client::accept_transfer`](crate::Client::accept_transfer) makes a guard
/// from it, in any process.
///
/// `to_string` writes it as text, and `parse` reads it: one line of printable ASCII without spaces,
/// which fits into an environment variable or a header. The text has the lock's name, the mode, the
/// acquisition's [id](crate::Lease::id), the [token](FencingToken) and the deadline.
///
/// A process with the text and access to the servers can accept the lock, so keep the text as
/// secret as the data that the lock protects. `Debug` leaves the id out; `Display` is the whole
/// text.
///
/// Nothing renews or releases the lease of a transfer, and dropping it does nothing. If no client
/// accepts it, the lock is free when the lease ends, at [`deadline`](Self::deadline).
#[must_use = "the lock stays taken until its lease ends, unless a client accepts the transfer"]
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseTransfer {
    pub(crate) name: String,
    pub(crate) lease: TransferredLease,
}

impl LeaseTransfer {
    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the lock is held for reading or for writing.
    pub fn mode(&self) -> LockMode {
        self.lease.mode
    }

    /// Returns the fencing token. It stays the same when the lock is accepted.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::of_grant(self.lease.token)
    }

    /// Returns when the lease ends, by the clock of the lock's server. The transfer must be
    /// accepted before. The server judges that; the clock here does not matter.
    pub fn deadline(&self) -> SystemTime {
        let since_1970 = Duration::from_millis(self.lease.deadline);
        SystemTime::UNIX_EPOCH.checked_add(since_1970).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

impl fmt::Display for LeaseTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TransferredLease { mode, id, token, deadline } = &self.lease;
        let mode = mode.letter();
        write!(f, "{MARK}:{mode}:{}:{token}:{deadline}:", id.as_str())?;
        for byte in self.name.bytes() {
            match byte {
                b'!'..=b'~' if byte != b'%' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for LeaseTransfer {
    type Err = Error;

    /// Parses the text of a transfer.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for any other text. The message does not
    /// contain it.
    fn from_str(text: &str) -> Result<LeaseTransfer> {
        read(text)
            .ok_or_else(|| Error::invalid("the text is not a lease transfer; pass it on unchanged"))
    }
}

fn read(text: &str) -> Option<LeaseTransfer> {
    let mut parts = text.splitn(6, ':');
    let mut next = || parts.next();
    if next()? != MARK {
        return None;
    }
    let mode = match next()? {
        "r" => LockMode::Read,
        "w" => LockMode::Write,
        _ => return None,
    };
    let id = AcquisitionId::parse(next()?)?;
    let token =
        parse_u64(next()?.as_bytes()).and_then(|token| FencingToken::try_from(token).ok())?;
    let deadline = parse_u64(next()?.as_bytes()).filter(|ms| *ms <= LAST_MS)?;
    let name = name_of(next()?)?;
    Some(LeaseTransfer { name, lease: TransferredLease { mode, id, token: token.get(), deadline } })
}

/// The latest time of the protocol.
const LAST_MS: u64 = 9_999_999_999_999;

fn name_of(text: &str) -> Option<String> {
    let mut name = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'%' => hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?,
            b'!'..=b'~' => byte,
            _ => return None,
        });
    }
    let name = String::from_utf8(name).ok()?;
    (1..=MAX_NAME_LEN).contains(&name.len()).then_some(name)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

debug_fields!(|transfer| LeaseTransfer {
    name: transfer.name,
    mode: transfer.lease.mode,
    token: transfer.lease.token,
    ..
});

impl Hold {
    pub(crate) async fn into_transfer(self) -> Result<LeaseTransfer> {
        // Pending changes come first: nobody would make them later.
        self.0.unencumbered().await?;
        let lease = begin_transfer(&self.0.client, &self.0.acquisition).await?;
        Ok(LeaseTransfer { name: self.0.name().to_owned(), lease })
    }
}

#[cfg(test)]
mod tests;
