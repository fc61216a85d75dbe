//! A URL as errors show it: without its password.

use std::fmt;
use std::net::Ipv6Addr;

const REDACTED: &str = "***";

/// A text that is meant to be a URL, with all hidden that may be a password. What is no URL can
/// have one anywhere, so this hides more than a URL's own.
pub(crate) struct RedactedUrl<'a>(pub(crate) &'a str);

impl fmt::Display for RedactedUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = scheme(self.0);
        let (named, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        // A sign before an `@` may be one of the password, which then ends nowhere for certain.
        if query.contains('@') {
            let name = named.split_once(':').map(|(name, _)| name);
            let name = name.filter(|name| !name.contains('@')).map(|name| format!("{name}:"));
            return write!(f, "`{scheme}{}{REDACTED}`", name.unwrap_or_default().escape_debug());
        }
        let named = match named.rsplit_once('@') {
            Some((user, place)) => match user.split_once(':') {
                Some((name, _)) => format!("{name}:{REDACTED}@{place}"),
                None => format!("{REDACTED}@{place}"),
            },
            None if is_host_list(named) => named.to_owned(),
            // The server may be missing, and a user and a password be there.
            None => format!("{}:{REDACTED}", named.split(':').next().unwrap_or_default()),
        };
        let query = query.get(..1).map(|sign| format!("{sign}{REDACTED}")).unwrap_or_default();
        let shown = format!("{scheme}{named}{query}");
        write!(f, "`{}`", shown.escape_debug())
    }
}

/// The scheme with its `://`, if there is one, and the rest.
fn scheme(url: &str) -> (&str, &str) {
    let is_of_scheme = |character: char| character.is_ascii_alphanumeric() || character == '+';
    match url.find("://").filter(|end| url[..*end].chars().all(is_of_scheme)) {
        Some(end) => url.split_at(end + "://".len()),
        None => ("", url),
    }
}

/// Whether every colon is that of a port or of an IPv6 address.
fn is_host_list(named: &str) -> bool {
    let servers = named.split('/').next().unwrap_or_default();
    let is_ipv6 = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
    };
    servers.split(',').all(|server| match server.rsplit_once(':') {
        _ if is_ipv6(server) => true,
        Some((host, port)) => {
            let is_host = !host.is_empty() && !host.contains(':') || is_ipv6(host);
            is_host && (port.is_empty() || port.parse::<u16>().is_ok())
        }
        None => true,
    })
}

#[cfg(test)]
mod tests;
