//! Who a client says it is when it connects.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;

/// A user's name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// The credentials of a named user.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Credentials { username: Some(username.into()), password: password.into() }
    }

    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Credentials { username: None, password: password.into() }
    }

    pub(crate) fn parts(&self) -> (Option<&str>, &str) {
        (self.username.as_deref(), &self.password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// What a [`CredentialsProvider`] gives.
pub type CredentialsFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send + 'a>>;

/// Gives the credentials for each new connection, so that they can change while a client runs.
///
/// It is called each time a connection is opened. A connection that is open stays as it is: servers
/// keep it also when its password is replaced.
pub trait CredentialsProvider: Send + Sync + 'static {
    /// The credentials as they are now. The time this takes is part of the time to connect.
    fn credentials(&self) -> CredentialsFuture<'_>;

    /// Whether it may give others when it is called again. Then a server that does not accept what
    /// it gave (`WRONGPASS`, `NOAUTH`) is dialled again, after a pause, with what it gives by then,
    /// for as long as the call has time: so a password may be changed at the server first. Where it
    /// is false, the call fails at once, as [`Refused`](crate::ErrorKind::Refused). Default: true.
    fn may_change(&self) -> bool {
        true
    }
}

/// Credentials that stay the same.
impl CredentialsProvider for Credentials {
    fn credentials(&self) -> CredentialsFuture<'_> {
        Box::pin(async { Ok(self.clone()) })
    }

    fn may_change(&self) -> bool {
        false
    }
}
