//! URLs of servers and of sentinels. Errors show no password.

use rwlease::testing::{ParsedUrl, parse_sentinel, parse_url, redact_url};

/// A part of a password that is in no other part of a URL by accident.
const SECRET: &str = "Zq7-sEcReT-7qZ";

/// The first byte says what the others are: a URL, or parts of a URL with credentials.
pub fn check(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    match kind % 3 {
        0 => check_any_url(&text),
        1 => check_credentials(&text),
        _ => check_redacted(&text),
    }
}

fn check_any_url(text: &str) {
    let _ = redact_url(text);
    if let Some(url) = parse_url(text) {
        assert_eq!(parse_url(&encode(&url)), Some(url.clone()), "{text:?}");
        check_password_is_hidden(&url);
    }
    if let Some(sentinel) = parse_sentinel(text) {
        let url = parse_url(&format!("redis+sentinel://{sentinel}/m"));
        assert_eq!(url.map(|url| url.addresses), Some(vec![sentinel]));
    }
}

/// A user and a password of any characters reach the server.
fn check_credentials(text: &str) {
    let (user, password) = text.split_once('\n').unwrap_or(("", text));
    let credentials = (Some(user.to_owned()).filter(|user| !user.is_empty()), password.to_owned());
    let url = format!("redis://{}:{}@a:1", escape(user), escape(password));
    assert_eq!(parse_url(&url).and_then(|url| url.credentials), Some(credentials));
}

/// A password is hidden in a URL whose user has not encoded any part of it.
fn check_redacted(text: &str) {
    let mut parts = text.splitn(4, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let url = format!("redis://{}:{}{SECRET}{}@{}", part(), part(), part(), part());
    let shown = redact_url(&url);
    assert!(!shown.contains(SECRET), "{url:?} is shown as {shown}");
}

/// Two passwords look the same.
fn check_password_is_hidden(url: &ParsedUrl) {
    let Some((user, _)) = &url.credentials else { return };
    let with = |password: &str| {
        let credentials = Some((user.clone(), password.to_owned()));
        redact_url(&encode(&ParsedUrl { credentials, ..url.clone() }))
    };
    assert_eq!(with("one"), with("another@:/?#"));
}

fn encode(url: &ParsedUrl) -> String {
    let tls = if url.tls { "rediss" } else { "redis" };
    let suffix = url.master.as_ref().map_or("", |_| "+sentinel");
    let user = url.credentials.as_ref().map_or(String::new(), |(user, password)| {
        format!("{}:{}@", escape(user.as_deref().unwrap_or_default()), escape(password))
    });
    let addresses: Vec<String> = url.addresses.iter().map(ToString::to_string).collect();
    let master = url.master.as_ref().map(|master| format!("/{}", escape(master)));
    let (addresses, master) = (addresses.join(","), master.unwrap_or_default());
    format!("{tls}{suffix}://{user}{addresses}{master}/{}", url.database)
}

fn escape(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    text.bytes().map(escape).collect()
}
