//! The first commands on a connection, in one round trip.

use crate::node::dialer::Dialer;
use crate::node::handshake_error::{hello_refused, select_refused};
use crate::node::native::Connection;
use crate::node::{
    Command, Credentials, LIB_NAME, LIB_VERSION, NodeError, Reply, ReplyShape, ServerError,
};

/// The user of a password without a user name.
const DEFAULT_USER: &str = "default";

/// Starts RESP3, which separates the server's pushes from replies, authenticates, and names the
/// client.
pub(super) async fn begin(
    connection: &Connection,
    dialer: &Dialer,
    credentials: Option<&Credentials>,
) -> Result<(), NodeError> {
    let mut commands = vec![hello(credentials)];
    if dialer.database != 0 {
        let select = Command::new().word("SELECT").word(dialer.database.to_string());
        commands.push(select.expecting(ReplyShape::Text));
    }
    // These must succeed. The names are only informative, and a user may lack the right.
    let needed = commands.len();
    let client = || Command::new().word("CLIENT");
    commands.extend([
        client().word("SETINFO").word("LIB-NAME").word(LIB_NAME),
        client().word("SETINFO").word("LIB-VER").word(LIB_VERSION),
    ]);
    commands.extend(dialer.client_name.as_ref().map(|name| client().word("SETNAME").word(name)));
    let renews = dialer.renews_credentials();
    let failed = |failure| not_begun(failure, renews);
    // The first refusal is the reason, even if the server closes the connection behind it.
    for (number, told) in connection.send_each(&commands).map_err(failed)?.enumerate().take(needed)
    {
        match (number, told.await.map_err(|_| NodeError::gone())?.map_err(failed)?) {
            (0, Reply::Error(error)) => return Err(hello_refused(&error, renews)),
            (_, Reply::Error(error)) => return Err(select_refused(&error, dialer.database)),
            _ => {}
        }
    }
    Ok(())
}

/// The failure of a connection that has ended. The server may have said why before it read
/// anything.
fn not_begun(failure: NodeError, renews_credentials: bool) -> NodeError {
    let said = failure.source.as_ref().and_then(|source| source.downcast_ref::<ServerError>());
    match said {
        Some(error) => hello_refused(error, renews_credentials),
        None => NodeError { maybe_sent: false, ..failure },
    }
}

fn hello(credentials: Option<&Credentials>) -> Command {
    let hello = Command::new().word("HELLO").word("3").expecting(ReplyShape::List);
    match credentials.map(Credentials::parts) {
        None => hello,
        Some((user, password)) => {
            hello.word("AUTH").word(user.unwrap_or(DEFAULT_USER)).word(password)
        }
    }
}
