//! Why no server lets the doctor in.

use rwlease::{ClientBuilder, ErrorKind};

use crate::args::ServerArgs;
use crate::exit::{CliError, REFUSED, UNAVAILABLE, with_advice};

/// Fails as the other commands do: the client of locks has hints that the doctor's own connections
/// lack. `own` is what those say.
pub async fn access_error(servers: &ServerArgs, own: String) -> CliError {
    let error = match servers.builder().map(ClientBuilder::connect) {
        Ok(connecting) => match connecting.await {
            Ok(_) => return CliError::new(UNAVAILABLE, format!("{own}; try again")),
            Err(error) => error,
        },
        Err(failure) => return failure,
    };
    match error.kind() {
        // There the other commands name the doctor.
        ErrorKind::Rejected => {
            let advice = "check the user, its password, its rights, and the certificates";
            CliError::new(REFUSED, with_advice(&error, advice))
        }
        _ => error.into(),
    }
}
