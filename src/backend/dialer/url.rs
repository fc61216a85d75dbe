//! Parses the URLs of servers and of sentinels.

use std::net::Ipv6Addr;

use rwlease_core::resp::Address;

use crate::backend::Credentials;

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
        let scheme = scheme
            .strip_suffix(SENTINEL_SUFFIX)
            .ok_or(UrlError("the scheme is not of sentinels; use `redis+sentinel://`"))?;
        let (master, path) = path.split_once('/').unwrap_or((path, ""));
        let master = percent_decode(master)?;
        if master.is_empty() {
            return Err(UrlError("the master is missing; append its name, as in `/mymaster`"));
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
    let (scheme, rest) = url.split_once("://").ok_or(UrlError(
        "the scheme is missing; use `redis://`, `rediss://` or `redis+sentinel://`",
    ))?;
    if let Some((_, fragment)) = rest.split_once('#') {
        return Err(UrlError(match fragment {
            "insecure" => {
                "TLS without certificate checks is not supported; set `tls_root_certificates`"
            }
            _ => "a fragment is not supported; write `#` in a user or a password as `%23`",
        }));
    }
    if rest.contains('?') {
        return Err(UrlError(
            "a query is not supported; write `?` in a user or a password as `%3F`",
        ));
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
        // Without the feature there is no TLS, and nothing is sent without it instead.
        "rediss" | "valkeys" if cfg!(feature = "tls") => Ok(true),
        "rediss" | "valkeys" => Err(UrlError("TLS is not supported; enable the feature `tls`")),
        _ => Err(UrlError(
            "the scheme is not supported; use `redis://`, `rediss://` or `redis+sentinel://`",
        )),
    }
}

/// `user:password`. Clients disagree on what a user alone means: the default user, or a password.
fn credentials(user: &str) -> Result<Option<Credentials>, UrlError> {
    let Some((username, password)) = user.split_once(':') else {
        return match user {
            "" => Ok(None),
            _ => Err(UrlError(
                "a user without a password; write `user:password@`, or `:password@` for the default \
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
            let (host, port) =
                rest.split_once(']').ok_or(UrlError("`]` is missing after the IPv6 address"))?;
            let host: Ipv6Addr = host
                .parse()
                .map_err(|_| UrlError("the text in brackets is not an IPv6 address"))?;
            (host.to_string(), port)
        }
        None => {
            let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
            (host.to_owned(), port)
        }
    };
    if host.is_empty() || !host.chars().all(is_host_char) {
        return Err(UrlError("the host is missing or contains an invalid character"));
    }
    if host == "0.0.0.0" || host == "::" {
        return Err(UrlError("the host is a wildcard address; use the address of a server"));
    }
    let port = match (port, port.strip_prefix(':')) {
        ("" | ":", _) => usual_port,
        (_, Some(digits)) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().map_err(|_| UrlError("the port must be from 0 to 65535"))?
        }
        _ if port.contains(',') => {
            return Err(UrlError("several servers in one URL; write one URL for each server"));
        }
        _ => return Err(UrlError("the port is not a number")),
    };
    Ok(Address { host: host.into(), port })
}

fn is_host_char(character: char) -> bool {
    !character.is_whitespace() && !character.is_control() && !"<>@[\\]^|%/?#,".contains(character)
}

fn database(path: &str) -> Result<i64, UrlError> {
    match path {
        "" => Ok(0),
        digits if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().map_err(|_| UrlError("the number of the database is too large"))
        }
        _ => Err(UrlError("the database is not a number")),
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
mod tests;
