use std::error::Error as StdError;
use std::pin::Pin;

/// A user's name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// Returns the credentials of a named user.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Credentials { username: Some(username.into()), password: password.into() }
    }

    /// Returns the password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Credentials { username: None, password: password.into() }
    }

    pub(crate) fn parts(&self) -> (Option<&str>, &str) {
        (self.username.as_deref(), &self.password)
    }
}

debug_fields!(|credentials| Credentials { username: credentials.username, .. });

/// The future that [`CredentialsProvider::credentials`] returns.
pub type CredentialsFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send + 'a>>;

/// Provides the credentials for each new connection, so that they can change while a client runs.
///
/// It is called each time a connection is opened. Open connections are not affected: a server keeps
/// a connection authenticated when the password is replaced.
pub trait CredentialsProvider: Send + Sync + 'static {
    /// Returns the current credentials. The time that this takes counts as time to connect. If it
    /// panics, only this connection fails, and the event `rwlease.callback` says so.
    fn credentials(&self) -> CredentialsFuture<'_>;

    /// Whether a later call may return other credentials. Default: true.
    ///
    /// If true, a server that rejects the credentials (`WRONGPASS`, `NOAUTH`) is dialled again
    /// after a pause, with fresh credentials, until the deadline of the call. So a password may be
    /// changed at the server first. If it is false, the call fails at once, as
    /// [`Rejected`](crate::ErrorKind::Rejected).
    fn can_change(&self) -> bool {
        true
    }
}

/// Credentials that stay the same.
impl CredentialsProvider for Credentials {
    fn credentials(&self) -> CredentialsFuture<'_> {
        Box::pin(async { Ok(self.clone()) })
    }

    fn can_change(&self) -> bool {
        false
    }
}
