//! Numbers as the server reads and prints them.

use super::answer::{Blob, Failure};

/// Reads an integer. Only the one canonical form counts: no sign `+`, no leading zero, no space.
pub(super) fn parse(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let canonical = match digits {
        b"0" => bytes.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    canonical
        .then(|| std::str::from_utf8(bytes).ok()?.parse().ok())
        .flatten()
}

/// Reads an integer argument.
pub(super) fn argument(bytes: &[u8]) -> Result<i64, Failure> {
    parse(bytes).ok_or(Failure::NOT_AN_INTEGER)
}

/// Prints a number of Lua that is given to a command: as `%.17g` of C does.
pub(super) fn print(number: f64) -> Blob {
    /// Below this, `%.17g` of an integer is its digits.
    const DIGITS_ALONE: f64 = 1e17;

    let is_negative_zero = number == 0.0 && number.is_sign_negative();
    let text = if number.trunc() == number && number.abs() < DIGITS_ALONE && !is_negative_zero {
        (number as i64).to_string()
    } else if number.is_finite() {
        print_float(number)
    } else {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        let name = if number.is_nan() { "nan" } else { "inf" };
        format!("{sign}{name}")
    };
    Blob::from_slice(text.as_bytes())
}

/// Cuts a number of Lua to the integer that a client gets. What fits no integer becomes the least one.
pub(super) fn cut(number: f64) -> i64 {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if (-BEYOND..BEYOND).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

fn print_float(number: f64) -> String {
    const PRECISION: i32 = 17;
    let scientific = format!("{number:.*e}", PRECISION as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..PRECISION).contains(&exponent) {
        let decimals = (PRECISION - 1 - exponent) as usize;
        without_trailing_zeros(&format!("{number:.decimals$}")).to_owned()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let mantissa = without_trailing_zeros(mantissa);
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }
}

fn without_trailing_zeros(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
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
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "1e3",
            "٣",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_printed_as_by_c() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (-7.0, "-7"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (99_999_999_999_999_984.0, "99999999999999984"),
            (1e17, "1e+17"),
            (-1.5e17, "-1.5e+17"),
            (1e300, "1.0000000000000001e+300"),
            (0.1, "0.10000000000000001"),
            (1e-4, "0.0001"),
            (1e-5, "1.0000000000000001e-05"),
            (123_456.789, "123456.789"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (-f64::NAN, "-nan"),
        ] {
            assert_eq!(print(number).as_slice(), text.as_bytes(), "{number:e}");
        }
    }

    #[test]
    fn numbers_are_cut_toward_zero() {
        for (number, integer) in [(3.99, 3), (-3.99, -3), (1e300, i64::MIN), (f64::NAN, i64::MIN)] {
            assert_eq!(cut(number), integer);
        }
    }
}
