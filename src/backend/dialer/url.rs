//! Parses the URLs of servers and of sentinels.

use std::net::Ipv6Addr;

use crate::backend::{Address, Credentials};

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// Marks the URL of sentinels.
const SENTINEL_SUFFIX: &str = "+sentinel";

/// The parts of a server's URL: `redis://[[user]:password@]host[:port][/database]`, or `rediss://`
/// for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(crate) address: Address,
    pub(crate) tls: bool,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: i64,
}

/// The parts of a sentinel URL:
/// `redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/master[/database]`, or
/// `rediss+sentinel://` for TLS to the sentinels and to the servers. The credentials are for the
/// servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentinelUrl {
    pub(crate) sentinels: Vec<Address>,
    pub(crate) master: String,
    pub(crate) tls: bool,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: i64,
}

/// Why a URL is invalid. (The URL itself is left out, because it may contain a password.)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UrlError(&'static str);

impl std::str::FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<ServerUrl, UrlError> {
        let UrlParts { scheme, user, authority: place, path } = parts(url)?;
        Ok(ServerUrl {
            tls: is_tls(scheme)?,
            address: address(place, DEFAULT_PORT)?,
            credentials: user.map(credentials).transpose()?.flatten(),
            database: database(path)?,
        })
    }
}

impl SentinelUrl {
    /// Returns true if the URL is meant to be one of sentinels.
    pub(crate) fn matches(url: &str) -> bool {
        url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with(SENTINEL_SUFFIX))
    }
}

impl std::str::FromStr for SentinelUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<SentinelUrl, UrlError> {
        let UrlParts { scheme, user, authority: place, path } = parts(url)?;
        let scheme =
            scheme.strip_suffix(SENTINEL_SUFFIX).ok_or(UrlError("it names no sentinels"))?;
        let (master, path) = path.split_once('/').unwrap_or((path, ""));
        let master = percent_decode(master)?;
        if master.is_empty() {
            return Err(UrlError("it does not name the master, as in `/mymaster`"));
        }
        Ok(SentinelUrl {
            tls: is_tls(scheme)?,
            sentinels: place.split(',').map(sentinel).collect::<Result<_, _>>()?,
            master,
            credentials: user.map(credentials).transpose()?.flatten(),
            database: database(path)?,
        })
    }
}

/// A sentinel: `host`, `host:port`, or the same with an IPv6 address in brackets.
pub(crate) fn sentinel(place: &str) -> Result<Address, UrlError> {
    address(place, DEFAULT_SENTINEL_PORT)
}

struct UrlParts<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    authority: &'a str,
    path: &'a str,
}

fn parts(url: &str) -> Result<UrlParts<'_>, UrlError> {
    let (scheme, rest) = url.split_once("://").ok_or(UrlError("it has no scheme"))?;
    if let Some((_, fragment)) = rest.split_once('#') {
        return Err(UrlError(match fragment {
            "insecure" => "a certificate that is not checked protects nothing",
            _ => "it has a fragment; write `#` in a user or a password as `%23`",
        }));
    }
    if rest.contains('?') {
        return Err(UrlError("it has a query; write `?` in a user or a password as `%3F`"));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    Ok(UrlParts { scheme, user, authority: place, path: path.trim_end_matches('/') })
}

fn is_tls(scheme: &str) -> Result<bool, UrlError> {
    match scheme {
        "redis" | "valkey" => Ok(false),
        "rediss" | "valkeys" if cfg!(feature = "tls") => Ok(true),
        "rediss" | "valkeys" => Err(UrlError("TLS needs the feature `tls`")),
        _ => Err(UrlError("only TCP is supported, by `redis://` or `rediss://`")),
    }
}

/// `user:password`. Clients disagree on what a user alone means: the default user, or a password.
fn credentials(user: &str) -> Result<Option<Credentials>, UrlError> {
    let Some((username, password)) = user.split_once(':') else {
        return match user {
            "" => Ok(None),
            _ => Err(UrlError(
                "a user needs a password: write `user:password@`, or `:password@` for the default \
                 user; leave the user out if the credentials are given otherwise",
            )),
        };
    };
    let password = percent_decode(password)?;
    Ok(Some(match percent_decode(username)? {
        username if username.is_empty() => Credentials::password(password),
        username => Credentials::new(username, password),
    }))
}

/// `host`, `host:port`, or the same with an IPv6 address in brackets.
fn address(place: &str, usual_port: u16) -> Result<Address, UrlError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(UrlError("a bracket is open"))?;
            let host: Ipv6Addr = host.parse().map_err(|_| UrlError("no address in brackets"))?;
            (host.to_string(), port)
        }
        None => {
            let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
            (host.to_owned(), port)
        }
    };
    if host.is_empty() || !host.chars().all(is_host_char) {
        return Err(UrlError("it has no host"));
    }
    if host == "0.0.0.0" || host == "::" {
        return Err(UrlError("nobody can be reached at a wildcard address"));
    }
    let port = match (port, port.strip_prefix(':')) {
        ("" | ":", _) => usual_port,
        (_, Some(digits)) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().map_err(|_| UrlError("no port has that number"))?
        }
        _ => return Err(UrlError("the port is no number")),
    };
    Ok(Address { host: host.into(), port })
}

fn is_host_char(character: char) -> bool {
    !character.is_whitespace() && !character.is_control() && !"<>@[\\]^|%".contains(character)
}

fn database(path: &str) -> Result<i64, UrlError> {
    match path {
        "" => Ok(0),
        digits if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().map_err(|_| UrlError("no database has that number"))
        }
        _ => Err(UrlError("the database is no number")),
    }
}

/// Decodes `%40` to `@`, and so on. A percent sign that begins no such code stands for itself.
fn percent_decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        let code = match (first, others) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match code {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &others[2..];
            }
            None => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).map_err(|_| UrlError("the credentials are not UTF-8"))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Result<ServerUrl, UrlError> {
        url.parse()
    }

    #[test]
    fn urls() {
        let plain = ServerUrl {
            address: Address { host: "127.0.0.1".into(), port: 7000 },
            tls: false,
            credentials: None,
            database: 0,
        };
        assert_eq!(server("redis://127.0.0.1:7000"), Ok(plain.clone()));
        assert_eq!(
            server("redis://:p%40ss@127.0.0.1:7000/3"),
            Ok(ServerUrl {
                credentials: Some(Credentials::password("p@ss")),
                database: 3,
                ..plain.clone()
            })
        );
        assert_eq!(
            server("redis://user:pass@127.0.0.1:7000"),
            Ok(ServerUrl { credentials: Some(Credentials::new("user", "pass")), ..plain })
        );
        let address = |url| server(url).map(|server| server.address.to_string());
        assert_eq!(address("redis://localhost").as_deref(), Ok("localhost:6379"));
        assert_eq!(address("redis://[::1]:1").as_deref(), Ok("[::1]:1"));
        assert_eq!(address("redis://[::1]").as_deref(), Ok("[::1]:6379"));
        assert_eq!(address("valkey://host:").as_deref(), Ok("host:6379"));
        assert_eq!(address("redis://host/").as_deref(), Ok("host:6379"));
        let credentials = |url: &str| server(url).unwrap().credentials;
        assert_eq!(credentials("redis://:a:b@c%@host"), Some(Credentials::password("a:b@c%")));
        assert_eq!(credentials("redis://%C3%A4:%zz%2@host"), Some(Credentials::new("ä", "%zz%2")));
        assert_eq!(credentials("redis://@host"), None);
        assert_eq!(credentials("redis://user:@host"), Some(Credentials::new("user", "")));
    }

    #[test]
    fn server_with_invalid_url_returns_error_without_password() {
        for url in [
            "",
            "localhost:7000",
            "http://localhost",
            "redis://",
            "unix:///tmp/socket",
            "redis://h/x",
            "redis://h/-1",
            "redis://h/1/2",
            "redis://h/99999999999999999999",
            "redis://0.0.0.0",
            "redis://[::]",
            "redis://[::1",
            "redis://[::1]1",
            "redis://[host]",
            "redis://h:65536",
            "redis://h:-1",
            "redis://h:1:2",
            "redis://a b",
            "redis://:%ff@h",
            "redis://h?protocol=resp3",
            "redis://h#name",
            "redis://user@h",
        ] {
            assert!(server(url).is_err(), "{url}");
        }
        assert!(
            !server("redis://user:secret@host:port").unwrap_err().to_string().contains("secret")
        );
        assert!(server("rediss://host/#insecure").is_err());
    }

    #[test]
    fn urls_of_sentinels() {
        let parse = |url: &str| url.parse::<SentinelUrl>();
        let url = parse("redis+sentinel://user:p%40ss@s1,s2:1,[::1]:2/my%20master/3").unwrap();
        let sentinels: Vec<_> = url.sentinels.iter().map(ToString::to_string).collect();
        assert_eq!(sentinels, ["s1:26379", "s2:1", "[::1]:2"]);
        assert_eq!((&*url.master, url.database, url.tls), ("my master", 3, false));
        assert_eq!(url.credentials, Some(Credentials::new("user", "p@ss")));
        assert_eq!(parse("valkey+sentinel://s/m/").map(|url| url.database), Ok(0));
        assert_eq!(
            parse("rediss+sentinel://s/m").map(|url| url.tls).ok(),
            cfg!(feature = "tls").then_some(true)
        );
        for (wrong, why) in [
            ("redis+sentinel://s", "does not name the master"),
            ("redis+sentinel://s/", "does not name the master"),
            ("redis+sentinel://s/m/x", "database"),
            ("redis+sentinel:///m", "no host"),
            ("redis+sentinel://s,/m", "no host"),
            ("redis+sentinel://s/m?db=1", "query"),
            ("redis+sentinel://s#m", "fragment"),
            ("http+sentinel://s/m", "TCP"),
            ("redis+sentinel://user@s/m", "`user:password@`"),
            ("redis://s/m", "no sentinels"),
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        assert!(SentinelUrl::matches("http+sentinel://x") && !SentinelUrl::matches("redis://x"));
    }

    #[test]
    fn tls_needs_its_feature() {
        assert_eq!(
            server("rediss://host").map(|server| server.tls).ok(),
            cfg!(feature = "tls").then_some(true)
        );
    }
}
