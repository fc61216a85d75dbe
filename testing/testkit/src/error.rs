//! One error type for everything that can go wrong around a test: a sentence, and its location.

use std::fmt;
use std::panic::Location;

pub type Result<T = ()> = std::result::Result<T, Error>;

/// Any error converts into it by `?`, which notes the line; so it cannot be a [`std::error::Error`]
/// itself.
pub struct Error {
    message: String,
    location: &'static Location<'static>,
}

impl Error {
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Error { message: message.into(), location: Location::caller() }
    }
}

/// The messages of an error and of all its sources.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl<E: std::error::Error> From<E> for Error {
    #[track_caller]
    fn from(error: E) -> Self {
        Error::new(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a failing test prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.message, self.location.file(), self.location.line())
    }
}
