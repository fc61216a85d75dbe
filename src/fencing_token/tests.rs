use super::*;
use crate::error::ErrorKind;

#[test]
fn fencing_token_out_of_range_is_invalid_input() {
    for text in ["0", "9007199254740993", "-1", "", "1.5", "x", "99999999999999999999"] {
        let error = text.parse::<FencingToken>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
    }
}

#[test]
fn fencing_token_text_and_number_are_the_same_token() {
    for number in [1, 1_700_000_000_000_000, MAX_TOKEN] {
        let token = FencingToken::try_from(number).unwrap();
        assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
        assert_eq!((token.get(), u64::from(token)), (number, number));
    }
    assert_eq!(FencingToken::from_wire(0), None);
}
