//! A held lock as text, for another client to take up.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use crate::client::transfer::{TransferredLease, begin_transfer};
use crate::decimal::parse_u64;
use crate::error::{Error, Result};
use crate::lock::guard::{Hold, ReadGuard, WriteGuard};
use crate::protocol::{AcquisitionId, LockMode, MAX_NAME_LEN};

/// The prefix of a ticket, with its version.
const MARK: &str = "rwlease-ticket-1";

/// A held lock on its way to another client. [`WriteGuard::into_ticket`] and
/// [`ReadGuard::into_ticket`] make it from a guard. [`Locks::take_up`](crate::Locks::take_up) makes
/// a guard from it, in this process or another.
///
/// `to_string` writes it as text, and `parse` reads it: one line of printable ASCII without spaces,
/// which fits into an environment variable or a header. The text has the lock's name, the mode, the
/// acquisition's [id](crate::Lease::id), the [token](crate::Lease::token) and the deadline.
///
/// Whoever has the text and access to the servers can take the lock up, so keep it as secret as
/// what the lock protects. `Debug` leaves the id out; `Display` is the whole text.
///
/// Nothing renews or releases the lease of a ticket, and dropping the ticket does nothing. If
/// nobody takes it up, the lock is free when the lease ends, at [`deadline`](Self::deadline).
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) name: String,
    pub(crate) lease: TransferredLease,
}

impl Ticket {
    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the lock is held for reading or for writing.
    pub fn mode(&self) -> LockMode {
        self.lease.mode
    }

    /// The fencing token. It stays the same when the lock is taken up.
    pub fn token(&self) -> u64 {
        self.lease.token
    }

    /// When the lease ends, by the clock of the lock's server. The ticket must be taken up before.
    /// The server judges that; the clock here does not matter.
    pub fn deadline(&self) -> SystemTime {
        let since_1970 = Duration::from_millis(self.lease.deadline);
        SystemTime::UNIX_EPOCH.checked_add(since_1970).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

impl fmt::Display for Ticket {
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

impl FromStr for Ticket {
    type Err = Error;

    /// Parses the text of a ticket.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for any other text. The message does not contain it.
    fn from_str(text: &str) -> Result<Ticket> {
        read(text).ok_or_else(|| Error::invalid("this is not the text of a ticket"))
    }
}

fn read(text: &str) -> Option<Ticket> {
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
    let token = parse_u64(next()?.as_bytes()).filter(|token| (1..=MOST_EXACT).contains(token))?;
    let deadline = parse_u64(next()?.as_bytes()).filter(|ms| *ms <= LAST_MS)?;
    let name = name_of(next()?)?;
    Some(Ticket { name, lease: TransferredLease { mode, id, token, deadline } })
}

/// The largest token and the latest time of the protocol.
const MOST_EXACT: u64 = 1 << 53;
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

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("name", &self.name)
            .field("mode", &self.lease.mode)
            .field("token", &self.lease.token)
            .finish_non_exhaustive()
    }
}

impl Hold {
    async fn into_ticket(self) -> Result<Ticket> {
        // Pending changes come first: nobody would make them later.
        self.0.unencumbered().await?;
        let lease = begin_transfer(&self.0.client, &self.0.acquisition).await?;
        Ok(Ticket { name: self.0.name().to_owned(), lease })
    }
}

macro_rules! hands_on {
    ($($guard:ty),*) => {$(
        impl $guard {
            /// Hands the held lock on: makes a [`Ticket`], with which another client of the same
            /// servers, with the same [prefix](crate::Builder::prefix), can hold the lock. The lock
            /// is not free in between.
            ///
            /// The lease is renewed to its full length, counted from now. The ticket must be [taken
            /// up](crate::Locks::take_up) in that time. This client no longer renews or releases
            /// the lease, also not at its [`shutdown`](crate::Locks::shutdown). Whatever waits for
            /// the lease to be [`lost`](crate::Lease::lost) is notified at once.
            ///
            /// Stop all work under the lock first: the token stays the same, so a store cannot tell
            /// this holder's late writes from those of the next one.
            ///
            /// One round trip. If this read has given up an upgrade and the server has not yet
            /// confirmed that, that comes first. If an attempt to acquire the lock had no answer,
            /// this waits until no server would carry the attempt out any more: two seconds after
            /// the attempt, at most three.
            ///
            /// # Errors
            ///
            /// [`Lost`](crate::ErrorKind::Lost) when the lease is lost;
            /// [`Revoked`](crate::ErrorKind::Revoked) when it was revoked;
            /// [`Unavailable`](crate::ErrorKind::Unavailable) when the server did not answer, or
            /// too few replicas confirmed. After any of them, the lock is released in the
            /// background.
            ///
            /// # Cancel safety
            ///
            /// If the future is dropped, the lock is released.
            pub async fn into_ticket(self) -> Result<Ticket> {
                self.0.into_ticket().await
            }
        }
    )*};
}

hands_on!(ReadGuard, WriteGuard);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::protocol::ClientId;

    fn ticket(name: &str) -> Ticket {
        let id = ClientId::from_random([9; 11]).acquisition(77);
        let lease = TransferredLease {
            mode: LockMode::Write,
            id,
            token: 1_700_000_000_000_000,
            deadline: 1_700_000,
        };
        Ticket { name: name.into(), lease }
    }

    #[test]
    fn a_ticket_is_read_from_its_text() {
        for name in ["a", "order:{42}", "100 %\n\0", "naïve ключ", &"x".repeat(512)] {
            for mode in [LockMode::Read, LockMode::Write] {
                let mut made = ticket(name);
                made.lease.mode = mode;
                let text = made.to_string();
                assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
                assert_eq!(text.parse::<Ticket>().unwrap(), made);
            }
        }
        assert_eq!(
            ticket("a b").to_string(),
            "rwlease-ticket-1:w:99999999999000001D:1700000000000000:1700000:a%20b"
        );
    }

    #[test]
    fn no_other_text_is_a_ticket() {
        let good = ticket("name").to_string();
        let parts: Vec<&str> = good.split(':').collect();
        let long = "x".repeat(513);
        let changes: [(usize, &[&str]); 6] = [
            (0, &["", "rwlease-ticket-2", " rwlease-ticket-1"]),
            (1, &["", "x", "W", "rw"]),
            (2, &["", "short", "99999999999000001D1", "9999999999900000 D"]),
            (3, &["", "0", "x", "-1", "9007199254740993", "99999999999999999999"]),
            (4, &["", "x", "-1", "10000000000000"]),
            (5, &["", " ", "a b", "a\n", "%", "%2", "%zz", "%2a", "%FF", "é", &long]),
        ];
        for (at, bad) in changes {
            for part in bad {
                let mut parts = parts.clone();
                parts[at] = part;
                let error = parts.join(":").parse::<Ticket>().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{part:?} at {at}");
                assert!(!error.to_string().contains("99999999999"), "{error}");
            }
            assert!(parts[..at].join(":").parse::<Ticket>().is_err());
        }
    }

    #[test]
    fn ticket_debug_shows_the_name_but_no_acquisition_id() {
        let printed = format!("{:?}", ticket("name"));
        assert!(printed.contains("name") && !printed.contains("99999999999"), "{printed}");
    }
}
