use super::*;

const ID: &[u8; ID_LEN] = b"client-id-0000001-";

fn slot() -> Slot {
    Slot::new(3999).unwrap()
}

fn shape(statuses: &'static [&'static str], id: Option<[u8; ID_LEN]>) -> ReplyShape {
    ReplyShape::Script(ScriptShape { slot: slot(), statuses, id })
}

fn of(text: &str) -> RespValue {
    RespValue::String(text.to_owned().into())
}

fn error(text: &str) -> RespValue {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    RespValue::Error(ServerError { code: code.into(), message: detail.into() })
}

#[test]
fn a_script_reply_has_an_envelope_and_a_status_of_the_script() {
    let shape = shape(&["released", "not_found"], None);
    let list = RespValue::Array(vec![of("not_found"), RespValue::Int(1700)]);
    for reply in [of("released 0 0"), of("not_found 1700 0"), list] {
        assert_eq!(shape.check(&reply), Ok(()), "{reply:?}");
    }
    let odd_list = RespValue::Array(vec![RespValue::Int(1700), of("not_found")]);
    for reply in [
        of("renewed 1700 0 1 2"),
        of("released"),
        of("released x 0"),
        of("OK"),
        of(""),
        RespValue::Int(1),
        RespValue::Nil,
        RespValue::Array(vec![]),
        odd_list,
    ] {
        let failure = shape.check(&reply).unwrap_err().to_string();
        assert!(failure.starts_with("unexpected reply: "), "{failure}");
    }
}

#[test]
fn a_grant_names_the_acquisition_of_the_call() {
    let shape = shape(&[GRANTED, "queued"], Some(*ID));
    let id = std::str::from_utf8(ID).unwrap();
    for reply in [format!("granted 1700 0 {id} 5 9000"), "queued 1700 0 1 0 0".into()] {
        assert_eq!(shape.check(&of(&reply)), Ok(()), "{reply}");
    }
    for other in [
        "granted 1700 0 client-id-0000002- 5 9000".to_owned(),
        format!("granted 1700 0 5 {id} 9000"),
        format!("granted 1700 0 {id}x 5 9000"),
        "granted 1700 0".into(),
    ] {
        assert!(shape.check(&of(&other)).is_err(), "{other}");
    }
}

#[test]
fn a_redirect_names_the_slot_of_the_call() {
    let shape = shape(&[], None);
    for text in ["MOVED 3999 a:1", "ASK 3999 :1", "NOSCRIPT x", "OOM x", "ERR x"] {
        assert_eq!(shape.check(&error(text)), Ok(()), "{text}");
    }
    for text in ["MOVED", "MOVED 1 a:1", "ASK x", "MOVED 16384 a:1"] {
        assert!(shape.check(&error(text)).is_err(), "{text}");
    }
}

#[test]
fn reply_shape_check_accepts_only_its_type_and_errors() {
    let of_each_type = [RespValue::Int(1), of("a"), RespValue::Array(vec![])];
    let shapes = [ReplyShape::Integer, ReplyShape::Text, ReplyShape::List];
    for (at, shape) in shapes.iter().enumerate() {
        let fits = of_each_type.iter().map(|reply| shape.check(reply).is_ok());
        assert!(fits.eq((0..3).map(|other| other == at)), "{shape:?}");
        assert_eq!(shape.check(&error("ERR x")), Ok(()));
    }
    assert_eq!(ReplyShape::Any.check(&RespValue::Nil), Ok(()));
}

#[test]
fn a_long_reply_is_shown_in_part() {
    let failure = ReplyShape::Integer.check(&of(&"x".repeat(1 << 20))).unwrap_err();
    assert!(failure.to_string().len() < 700, "{failure}");
}
