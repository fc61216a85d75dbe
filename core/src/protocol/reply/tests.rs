use super::*;

#[test]
fn reply_as_text_and_as_list_are_the_same() {
    let list = [
        RespValue::String("lock".into()),
        RespValue::Int(1700),
        RespValue::Int(1),
        RespValue::Int(5),
    ];
    for reply in [RespValue::String("lock 1700 1 5".into()), RespValue::Array(list.into())] {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply).unwrap();
        assert_eq!(envelope, Envelope { server_now: 1700, has_more_work: true });
        assert_eq!(*status, *b"lock");
        assert!(!rest.is_empty());
        assert_eq!(rest.number().unwrap(), 5);
        assert!(rest.is_empty());
        assert!(rest.number().is_err(), "that was all");
    }
}

#[test]
fn elements_open_of_malformed_reply_returns_garbled() {
    for text in ["", "granted", "granted 17", "granted x 0", "granted 17 -1", "granted  17 0"] {
        let opened = ReplyReader::parse_header(RespValue::String(text.into()));
        assert!(matches!(opened, Err(ReplyError::Malformed(_))), "{text:?}");
    }
    let words =
        RespValue::Array(vec![RespValue::String("lock".into()), RespValue::String("17".into())]);
    for reply in [RespValue::Nil, RespValue::Int(1), RespValue::Array(vec![]), words] {
        assert!(matches!(ReplyReader::parse_header(reply), Err(ReplyError::Malformed(_))));
    }
}
