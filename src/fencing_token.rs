use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The greatest token that every number of Lua and JSON holds exactly.
const MAX_TOKEN: u64 = 1 << 53;

/// A fencing token: the number of a grant, greater than the numbers of all earlier grants of the
/// lock.
///
/// Readers that hold together may share one.
///
/// Pass it to the store that the lock protects. The store must refuse a write whose token is lower
/// than the greatest token it has seen. Then a holder that has lost the lock without noticing can
/// no longer change the store. [`FencedValue`](crate::FencedValue) is a store of this kind on the
/// lock's own servers. The repository's page `docs/fencing.md` has the statements for SQL databases
/// and for a script of your own.
///
/// Tokens of two locks cannot be compared.
///
/// ```
/// use rwlease::FencingToken;
///
/// let old: FencingToken = "1700000000000000".parse()?;
/// let new: FencingToken = "1700000000000007".parse()?;
/// assert!(old < new);
/// assert_eq!(FencingToken::try_from(new.get())?, new);
/// # Ok::<(), rwlease::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Returns the token as a number, 1 to 2^53. Every store can keep it exactly, also as a float.
    pub fn get(self) -> u64 {
        self.0
    }

    /// `None` for zero, which stands for no token on the wire.
    pub(crate) fn from_wire(token: u64) -> Option<FencingToken> {
        (token > 0).then_some(FencingToken(token))
    }

    pub(crate) fn of_grant(token: u64) -> FencingToken {
        FencingToken(token)
    }
}

impl Error {
    /// Returns the newest token that the value has seen, for a
    /// [`StaleToken`](crate::ErrorKind::StaleToken).
    pub fn stored_token(&self) -> Option<FencingToken> {
        self.stored_token_number().and_then(FencingToken::from_wire)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Error;

    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for zero and for numbers above 2^53.
    fn try_from(token: u64) -> Result<FencingToken> {
        match token {
            1..=MAX_TOKEN => Ok(FencingToken(token)),
            _ => Err(Error::invalid(format!("invalid fencing token {token}: expected 1 to 2^53"))),
        }
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    /// Parses decimal digits.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for other text, and as
    /// [`try_from`](FencingToken::try_from).
    fn from_str(text: &str) -> Result<FencingToken> {
        let invalid = |error: ParseIntError| {
            Error::invalid("invalid fencing token: expected a decimal number").with_source(error)
        };
        FencingToken::try_from(text.parse::<u64>().map_err(invalid)?)
    }
}

#[cfg(test)]
mod tests;
