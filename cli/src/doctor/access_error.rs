//! Why no server lets the doctor in.

use rwlease::{Builder, ErrorKind};

use crate::args::ServerArgs;
use crate::exit::{CliError, REFUSED, UNAVAILABLE, error_chain, hint_for};

/// Fails as the other commands do: the client of locks has hints that the doctor's own connections
/// lack. `own` is what those say.
pub async fn access_error(servers: &ServerArgs, own: String) -> CliError {
    let error = match servers.builder().map(Builder::connect) {
        Ok(connecting) => match connecting.await {
            Ok(_) => return CliError::new(UNAVAILABLE, format!("{own}; try again")),
            Err(error) => error,
        },
        Err(failure) => return failure,
    };
    match error.kind() {
        // There the other commands name the doctor.
        ErrorKind::Refused => {
            let message = error_chain(&error);
            let advice = "check the user, its password, its rights, and the certificates";
            let advice = hint_for(&message).unwrap_or(advice);
            CliError::new(REFUSED, format!("{message}; {advice}"))
        }
        _ => error.into(),
    }
}
