//! Conversion between numbers and decimal digits, without a `String`.

/// A number in decimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; Decimal::MAX_DIGITS],
    first: usize,
}

impl Decimal {
    /// The number of digits of the largest `u64`.
    pub const MAX_DIGITS: usize = 20;

    pub fn from_u64(number: u64) -> Decimal {
        let mut decimal =
            Decimal { digits: [b'0'; Decimal::MAX_DIGITS], first: Decimal::MAX_DIGITS };
        let mut rest = number;
        // Two digits at a time: half as many divisions.
        while rest >= 100 {
            let pair = (rest % 100) as u8;
            rest /= 100;
            decimal.first -= 2;
            decimal.digits[decimal.first] = b'0' + pair / 10;
            decimal.digits[decimal.first + 1] = b'0' + pair % 10;
        }
        if rest >= 10 {
            decimal.first -= 1;
            decimal.digits[decimal.first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        decimal.first -= 1;
        decimal.digits[decimal.first] = b'0' + rest as u8;
        decimal
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.first..]
    }
}

/// Parses digits as a number.
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    match digits.len() {
        0 => None,
        // So few digits cannot overflow.
        1..Decimal::MAX_DIGITS => digits.iter().try_fold(0, |number: u64, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
        }),
        _ => str::from_utf8(digits).ok()?.parse().ok().filter(|_| digits[0] != b'+'),
    }
}

/// Parses the number at the start of a text, up to a space or the end. Also returns its number of
/// digits.
pub fn parse_leading_u64(text: &[u8]) -> Option<(u64, usize)> {
    let mut number: u64 = 0;
    for (at, byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        match digit {
            // So few digits cannot overflow.
            0..=9 if at < Decimal::MAX_DIGITS - 1 => number = number * 10 + u64::from(digit),
            0..=9 => {
                let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
                return parse_u64(&text[..end]).map(|number| (number, end));
            }
            _ => return (*byte == b' ' && at > 0).then_some((number, at)),
        }
    }
    (!text.is_empty()).then_some((number, text.len()))
}

#[cfg(test)]
mod tests;
