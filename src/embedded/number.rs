//! Numbers as the server reads them.

use super::reply::ErrorReply;

/// Reads an integer in its one canonical form: no sign `+`, no leading zero, no space.
pub(super) fn parse(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let canonical = match digits {
        b"0" => bytes.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    canonical.then(|| std::str::from_utf8(bytes).ok()?.parse().ok()).flatten()
}

/// Reads an integer argument.
pub(super) fn parse_argument(bytes: &[u8]) -> Result<i64, ErrorReply> {
    parse(bytes).ok_or(ErrorReply::NOT_AN_INTEGER)
}

/// Truncates a Lua number to the integer that a client gets. A number that fits no integer becomes
/// the least one.
pub(super) fn truncate(number: f64) -> i64 {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if (-BEYOND..BEYOND).contains(&number) { number as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_are_read() {
        for (text, number) in [
            ("0", 0),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(number), "{text}");
        }
        for text in
            ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "1e3", "٣"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_cut_toward_zero() {
        for (number, integer) in [(3.99, 3), (-3.99, -3), (1e300, i64::MIN), (f64::NAN, i64::MIN)] {
            assert_eq!(truncate(number), integer);
        }
    }
}
