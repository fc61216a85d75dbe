use super::{Decimal, parse_leading_u64, parse_u64};

#[test]
fn number_of_reads_decimal_and_returns_none_for_invalid_text() {
    for number in [0, 9, 10, 1_735_689_632_527, u64::MAX] {
        assert_eq!(parse_u64(Decimal::from_u64(number).as_bytes()), Some(number));
    }
    for other in ["", "-1", "+1", " 1", "1 ", "0x1", "18446744073709551616", "1.5"] {
        assert_eq!(parse_u64(other.as_bytes()), None, "{other:?}");
    }
}

#[test]
fn a_number_ends_at_a_space_or_with_the_text() {
    for number in [0, 9, 10, 1_735_689_632_527, 9_999_999_999_999_999_999, u64::MAX] {
        let digits = Decimal::from_u64(number).as_bytes().len();
        for rest in ["", " ", " 5", " x"] {
            let text = format!("{number}{rest}");
            assert_eq!(parse_leading_u64(text.as_bytes()), Some((number, digits)), "{text:?}");
        }
    }
    for other in ["", " ", " 1", "-1", "+1", "1x", "1.5 2", "18446744073709551616 1", "1\r"] {
        assert_eq!(parse_leading_u64(other.as_bytes()), None, "{other:?}");
    }
}
