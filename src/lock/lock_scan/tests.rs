use super::*;

#[test]
fn a_pattern_takes_the_prefix_literally() {
    assert_eq!(starting_with("a*[b]?\\"), b"a\\*\\[b\\]\\?\\\\*");
    assert_eq!(starting_with(""), b"*");
}

#[test]
fn a_step_is_read() {
    let text = |text: &'static str| RespValue::String(text.into());
    let reply = RespValue::Array(vec![text("17"), RespValue::Array(vec![text("a"), text("b")])]);
    assert_eq!(step(reply).unwrap(), ("17".into(), vec!["a".into(), "b".into()]));
    for reply in [
        RespValue::Nil,
        RespValue::Array(vec![text("0")]),
        RespValue::Array(vec![RespValue::Int(0), RespValue::Array(vec![])]),
    ] {
        assert_eq!(step(reply).unwrap_err().kind(), ErrorKind::UnsupportedVersion);
    }
}
