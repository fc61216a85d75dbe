use super::*;

fn read(words: &str) -> Result<FencedReply, ReplyError> {
    FencedReply::read(RespValue::String(words.to_owned().into())).map(|(_, body)| body)
}

fn read_list(items: Vec<RespValue>) -> Result<FencedReply, ReplyError> {
    let head = |status: &'static str| [RespValue::String(status.into()), RespValue::Int(5)];
    let mut list = Vec::from(head("value"));
    list.push(RespValue::Int(0));
    list.extend(items);
    FencedReply::read(RespValue::Array(list)).map(|(_, body)| body)
}

#[test]
fn fenced_reply_of_each_status_is_read() {
    assert_eq!(read("written 5 0").unwrap(), FencedReply::Written);
    assert_eq!(read("stale 5 0 7").unwrap(), FencedReply::Stale { stored: 7 });
    let by = "abcdefghijk0000001".to_owned();
    assert_eq!(read(&format!("taken_over 5 0 {by}")).unwrap(), FencedReply::TakenOver { by });
    assert_eq!(read("not_found 5 0").unwrap(), FencedReply::NotFound);
    let value = RespValue::String(Bytes::from_static(b"a b\0\xff"));
    let list = read_list(vec![RespValue::Int(9), value]).unwrap();
    assert_eq!(list, FencedReply::Value(Bytes::from_static(b"a b\0\xff"), 9));
}

#[test]
fn fenced_reply_without_its_parts_or_of_another_script_is_malformed() {
    assert!(read("stale 5 0").is_err());
    assert!(read("granted 5 0").is_err());
    assert!(read_list(vec![RespValue::Int(9)]).is_err());
}
