//! Numbers as the server reads them.

use crate::reply::ErrorReply;

/// Reads an integer in its one canonical form: no sign `+`, no leading zero, no space.
pub(crate) fn parse(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let canonical = match digits {
        b"0" => bytes.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    canonical.then(|| std::str::from_utf8(bytes).ok()?.parse().ok()).flatten()
}

/// Reads an integer argument.
pub(crate) fn parse_argument(bytes: &[u8]) -> Result<i64, ErrorReply> {
    parse(bytes).ok_or(ErrorReply::NOT_AN_INTEGER)
}

/// Truncates a Lua number to the integer that a client gets. A number that fits no integer becomes
/// the least one.
pub(crate) fn truncate(number: f64) -> i64 {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if (-BEYOND..BEYOND).contains(&number) { number as i64 } else { i64::MIN }
}
