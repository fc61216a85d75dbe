//! Reads the errors by which servers answer scripts and subscriptions: redirects, and errors that
//! old servers wrap.

use rwlease_core::resp::{Address, RespValue, ServerError, server_ms};
use rwlease_core::slot::Slot;

use crate::router::address_translation::AddressTranslator;

/// Returns true if the connection must be replaced after this answer to a script on a key of
/// `slot`. Another server may have the address now, or the replies may be out of step with the
/// calls.
pub(crate) fn invalidates_connection(reply: &RespValue, slot: Slot) -> bool {
    match reply {
        RespValue::Error(error) => match code(error) {
            "READONLY" | "NOAUTH" => true,
            "MOVED" | "ASK" => Redirect::read(error).is_none_or(|redirect| redirect.slot != slot),
            _ => false,
        },
        reply => server_ms(reply).is_none(),
    }
}

/// The detail of a `MOVED` or `ASK`: `<slot> <host>:<port>`.
pub(crate) struct Redirect<'a> {
    pub(crate) slot: Slot,
    /// Host and port. An empty host means the host of the server that replied. `None` if the
    /// redirect has no address that can be dialled: the node should announce a host name and has
    /// none (`?`), or the server does not know the address of the node (port 0).
    pub(crate) place: Option<(&'a str, u16)>,
}

impl Redirect<'_> {
    pub(crate) fn read(error: &ServerError) -> Option<Redirect<'_>> {
        let mut words = error.message.split_ascii_whitespace();
        let slot = words.next()?.parse().ok().and_then(Slot::new)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let is_number = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number || words.next().is_some() {
            return None;
        }
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0);
        let is_host = host != "?" && !host.contains(char::REPLACEMENT_CHARACTER);
        Some(Redirect { slot, place: port.filter(|_| is_host).map(|port| (host, port)) })
    }
}

/// The master that a `MOVED` error names, for any slot.
pub(crate) fn moved_target(
    error: &ServerError,
    asked: &Address,
    translation: &AddressTranslator,
) -> Option<(Slot, Address)> {
    let Redirect { slot, place } = Redirect::read(error).filter(|_| error.code == "MOVED")?;
    place.map(|(host, port)| (slot, translation.address(host, port, asked)))
}

/// Servers before 7.0 wrap the error of a command in a script: `ERR Error running script (...): ...
/// -OOM command not allowed`. This returns the inner error, with the code that later versions give
/// it.
pub(crate) fn unwrap_script_error(error: ServerError) -> ServerError {
    match wrapped_error(&error) {
        Some((code, detail)) => {
            ServerError { code: code.into(), message: detail.trim_end().into() }
        }
        None => error,
    }
}

/// The code of an error, or of the error that it wraps.
pub(crate) fn code(error: &ServerError) -> &str {
    wrapped_error(error).map_or(&error.code, |(code, _)| code)
}

fn wrapped_error(error: &ServerError) -> Option<(&str, &str)> {
    let wraps = error.code == "ERR" && error.message.starts_with("Error running script");
    let inner = error.message.split(": -").nth(1).filter(|_| wraps)?;
    let is_code = |(code, _): &(&str, &str)| {
        !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    inner.split_once(' ').filter(is_code)
}

#[cfg(test)]
mod tests;
