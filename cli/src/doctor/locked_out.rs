//! Why no server lets the doctor in.

use rwlease::{Builder, ErrorKind};

use crate::args::Servers;
use crate::exit::{Failure, REFUSED, UNAVAILABLE, advice_on, with_reasons};

/// Fails as the other commands do: the client of locks has hints that the doctor's own connections
/// lack. `own` is what those say.
pub async fn locked_out(servers: &Servers, own: String) -> Failure {
    let error = match servers.builder().map(Builder::connect) {
        Ok(connecting) => match connecting.await {
            Ok(_) => return Failure::new(UNAVAILABLE, format!("{own}; try again")),
            Err(error) => error,
        },
        Err(failure) => return failure,
    };
    match error.kind() {
        // There the other commands name the doctor.
        ErrorKind::Refused => {
            let message = with_reasons(&error);
            let advice = "check the user, its password, its rights, and the certificates";
            let advice = advice_on(&message).unwrap_or(advice);
            Failure::new(REFUSED, format!("{message}; {advice}"))
        }
        _ => error.into(),
    }
}
