//! Numbers as decimal digits, without a text in between.

/// A number in decimal digits.
pub(crate) struct Decimal {
    digits: [u8; Decimal::LONGEST],
    first: usize,
}

impl Decimal {
    /// The most digits.
    pub(crate) const LONGEST: usize = 20;

    pub(crate) fn of(number: u64) -> Decimal {
        let mut decimal = Decimal { digits: [b'0'; Decimal::LONGEST], first: Decimal::LONGEST };
        let mut rest = number;
        loop {
            decimal.first -= 1;
            decimal.digits[decimal.first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return decimal;
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.first..]
    }
}

/// The number that these digits are.
pub(crate) fn number_of(digits: &[u8]) -> Option<u64> {
    match digits.len() {
        0 => None,
        // They cannot be too many.
        1..Decimal::LONGEST => digits.iter().try_fold(0, |number: u64, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
        }),
        _ => str::from_utf8(digits).ok()?.parse().ok().filter(|_| digits[0] != b'+'),
    }
}

#[cfg(test)]
mod tests {
    use super::{Decimal, number_of};

    #[test]
    fn numbers_are_digits_alone() {
        for number in [0, 9, 10, 1_735_689_632_527, u64::MAX] {
            assert_eq!(number_of(Decimal::of(number).as_bytes()), Some(number));
        }
        for other in ["", "-1", "+1", " 1", "1 ", "0x1", "18446744073709551616", "1.5"] {
            assert_eq!(number_of(other.as_bytes()), None, "{other:?}");
        }
    }
}
