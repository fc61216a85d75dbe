//! What it means that a server refuses the first commands on a connection.

use std::sync::Arc;

use crate::backend::{ConnectionError, ServerError, is_auth_error};

/// Below this length, the place of a hidden password would give it away.
const MIN_HIDDEN: usize = 4;

/// The failure to say `HELLO`, which authenticates as well.
pub(crate) fn hello_refused(error: &ServerError, renews_credentials: bool) -> ConnectionError {
    let (message, permanent) = match &*error.code {
        code if is_auth_error(code) => {
            (format!("authentication failed: {error}"), !renews_credentials)
        }
        // A server before 6.0, or a proxy.
        "NOPROTO" => (no_resp3(error), true),
        _ if error.message.starts_with("unknown command") => (no_resp3(error), true),
        code => (error.to_string(), matches!(code, "NOPERM" | "DENIED")),
    };
    refused(error, message, permanent)
}

/// The failure to select the database.
pub(crate) fn select_refused(error: &ServerError, database: i64) -> ConnectionError {
    let message = match error.message.contains("cluster mode") {
        true => format!("database {database}: a cluster has only database 0 ({error})"),
        false => format!("database {database}: {error}"),
    };
    let is_invalid = error.code == "ERR";
    let permanent = is_invalid || error.code == "NOPERM";
    ConnectionError { is_invalid, ..refused(error, message, permanent) }
}

fn no_resp3(error: &ServerError) -> String {
    format!("the server does not speak RESP3, which Redis from 6.0 on and Valkey do: {error}")
}

fn refused(error: &ServerError, message: String, permanent: bool) -> ConnectionError {
    ConnectionError {
        is_permanent: permanent,
        source: Some(Arc::new(error.clone())),
        ..ConnectionError::not_sent(message)
    }
    .redact_arguments()
}

impl ConnectionError {
    /// Hides the password, in case a server or a proxy repeats it.
    pub(crate) fn without_password(self, password: &str) -> ConnectionError {
        let has_it = |text: &str| !password.is_empty() && text.contains(password);
        let source = self.source.filter(|source| !has_it(&format!("{source:?} {source}")));
        let message = match has_it(&self.message) {
            false => self.message,
            true if password.len() < MIN_HIDDEN => "the server repeated the password".into(),
            true => self.message.replace(password, "***"),
        };
        ConnectionError { message, source, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(line: &str, renews: bool) -> ConnectionError {
        hello_refused(&ServerError::parse(line), renews)
    }

    #[test]
    fn hello_refused_is_permanent_unless_it_can_pass() {
        let wrong = hello("WRONGPASS no such user", false);
        assert_eq!(wrong.message, "authentication failed: WRONGPASS no such user");
        assert!(wrong.is_permanent && !hello("WRONGPASS x", true).is_permanent);
        assert!(hello("NOAUTH x", false).is_permanent);
        for line in ["ERR unknown command `HELLO`", "NOPROTO unsupported protocol version"] {
            let failure = hello(line, true);
            assert!(failure.is_permanent && failure.message.contains("RESP3"), "{failure}");
        }
        assert!(hello("DENIED Redis is running in protected mode", false).is_permanent);
        assert!(!hello("LOADING x", false).is_permanent);
        let full = hello("ERR max number of clients reached", false);
        assert_eq!(full.message, "ERR max number of clients reached");
        assert!(!full.is_permanent);
    }

    #[test]
    fn select_refused_is_a_wrong_setting() {
        let refused = |line| select_refused(&ServerError::parse(line), 1);
        let of_cluster = refused("ERR SELECT is not allowed in cluster mode");
        assert!(of_cluster.message.contains("only database 0") && of_cluster.is_invalid);
        assert!(refused("ERR DB index is out of range").is_invalid);
        let lacking = refused("NOPERM x");
        assert!(lacking.is_permanent && !lacking.is_invalid);
        assert!(!refused("LOADING x").is_permanent);
    }

    #[test]
    fn handshake_error_without_password_masks_it_everywhere() {
        let said = ServerError::parse("ERR unknown user or password bob/hunter2");
        let failure = hello_refused(&said, false).without_password("hunter2");
        assert_eq!(failure.message, "ERR unknown user or password bob/***");
        assert!(failure.source.is_none());
        let kept = hello_refused(&said, false).without_password("other");
        assert!(kept.source.is_some() && kept.message.contains("hunter2"));
        assert!(hello_refused(&said, false).without_password("").source.is_some());
        let short = hello_refused(&said, false).without_password("bob");
        assert_eq!(short.message, "the server repeated the password");
    }
}
