//! The first commands on a connection, in one round trip.

use std::sync::Arc;

use crate::node::dialer::Dialer;
use crate::node::native::Connection;
use crate::node::{
    Command, Credentials, LIB_NAME, LIB_VERSION, NodeError, Reply, ServerError,
    is_about_credentials,
};

/// The user of a password without a user name.
const DEFAULT_USER: &str = "default";

/// Starts RESP3, which separates the server's pushes from replies, authenticates, and names the
/// client.
pub(super) async fn begin(
    connection: &Connection,
    dialer: &Dialer,
    credentials: Option<Credentials>,
) -> Result<(), NodeError> {
    let mut commands = vec![hello(credentials.as_ref())];
    if dialer.database != 0 {
        commands.push(Command::new().word("SELECT").word(dialer.database.to_string()));
    }
    // These must succeed. The names are only informative, and a user may lack the right.
    let needed = commands.len();
    let client = || Command::new().word("CLIENT");
    commands.extend([
        client().word("SETINFO").word("LIB-NAME").word(LIB_NAME),
        client().word("SETINFO").word("LIB-VER").word(LIB_VERSION),
    ]);
    commands.extend(dialer.client_name.as_ref().map(|name| client().word("SETNAME").word(name)));
    let replies = connection.exchange(&commands).await;
    let replies = replies.map_err(|failure| NodeError { maybe_sent: false, ..failure })?;
    let refusal = replies.into_iter().take(needed).find_map(|reply| match reply {
        Reply::Error(error) => Some(error),
        _ => None,
    });
    refusal.map_or(Ok(()), |error| Err(refused(error, dialer.renews_credentials())))
}

fn hello(credentials: Option<&Credentials>) -> Command {
    let hello = Command::new().word("HELLO").word("3");
    match credentials.map(Credentials::parts) {
        None => hello,
        Some((user, password)) => {
            hello.word("AUTH").word(user.unwrap_or(DEFAULT_USER)).word(password)
        }
    }
}

fn refused(error: ServerError, renews_credentials: bool) -> NodeError {
    let permanent = match &*error.code {
        code if is_about_credentials(code) => !renews_credentials,
        "NOPERM" | "NOPROTO" => true,
        // A server before 6.0.
        _ => error.detail.starts_with("unknown command"),
    };
    NodeError {
        permanent,
        source: Some(Arc::new(error.clone())),
        ..NodeError::unsent(error.to_string())
    }
    .without_arguments()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_no_retry_can_mend() {
        let failure = |code: &str, detail: &str, renews| {
            refused(ServerError { code: code.into(), detail: detail.into() }, renews)
        };
        assert_eq!(failure("WRONGPASS", "no such user", false).message, "WRONGPASS no such user");
        assert!(failure("WRONGPASS", "x", false).permanent);
        assert!(!failure("WRONGPASS", "x", true).permanent);
        assert!(failure("NOAUTH", "x", false).permanent);
        assert!(failure("ERR", "unknown command `HELLO`", true).permanent);
        assert!(!failure("LOADING", "x", false).permanent);
        assert!(!failure("ERR", "max number of clients reached", false).permanent);
    }
}
