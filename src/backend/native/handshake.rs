//! The first commands on a connection, in one round trip.

use rwlease_core::resp::{Command, ReplyShape, RespValue, ServerError};

use crate::backend::dialer::Dialer;
use crate::backend::handshake_error::{hello_refused, select_refused};
use crate::backend::native::NativeConnection;
use crate::backend::{ConnectionError, Credentials, LIB_NAME, LIB_VERSION};

/// The user of a password without a user name.
const DEFAULT_USER: &str = "default";

/// Starts RESP3, which separates the server's pushes from replies, authenticates, and names the
/// client.
pub(super) async fn handshake(
    connection: &NativeConnection,
    dialer: &Dialer,
    credentials: Option<&Credentials>,
) -> Result<(), ConnectionError> {
    let mut commands = vec![hello(credentials)];
    if dialer.database != 0 {
        let select = Command::new().arg("SELECT").arg(dialer.database.to_string());
        commands.push(select.expecting(ReplyShape::Text));
    }
    // These must succeed. The names are only informative, and a user may lack the right.
    let needed = commands.len();
    let client = || Command::new().arg("CLIENT");
    commands.extend([
        client().arg("SETINFO").arg("LIB-NAME").arg(LIB_NAME),
        client().arg("SETINFO").arg("LIB-VER").arg(LIB_VERSION),
    ]);
    commands.extend(dialer.client_name.as_ref().map(|name| client().arg("SETNAME").arg(name)));
    let renews = dialer.rotates_credentials();
    let failed = |failure| not_begun(failure, renews);
    // The first refusal is the reason, even if the server closes the connection behind it.
    for (number, told) in connection.send_each(&commands).map_err(failed)?.enumerate().take(needed)
    {
        match (number, told.await.map_err(|_| ConnectionError::closed())?.map_err(failed)?) {
            (0, RespValue::Error(error)) => return Err(hello_refused(&error, renews)),
            (_, RespValue::Error(error)) => return Err(select_refused(&error, dialer.database)),
            _ => {}
        }
    }
    Ok(())
}

/// The failure of a connection that has ended. The server may have server_error why before it read
/// anything.
fn not_begun(failure: ConnectionError, renews_credentials: bool) -> ConnectionError {
    let server_error =
        failure.source.as_ref().and_then(|source| source.downcast_ref::<ServerError>());
    match server_error {
        Some(error) => hello_refused(error, renews_credentials),
        None => ConnectionError { maybe_sent: false, ..failure },
    }
}

fn hello(credentials: Option<&Credentials>) -> Command {
    let hello = Command::new().arg("HELLO").arg("3").expecting(ReplyShape::List);
    match credentials.map(Credentials::parts) {
        None => hello,
        Some((user, password)) => hello.arg("AUTH").arg(user.unwrap_or(DEFAULT_USER)).arg(password),
    }
}
