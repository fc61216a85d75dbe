use super::*;

#[test]
fn a_push_names_owners_tokens_and_deadlines() {
    let Some(PushMessage::Grants(push)) = PushMessage::read(b"1700 1 abc 12 1800 def 13 1900")
    else {
        panic!("grants");
    };
    assert_eq!((push.server_now, push.has_more_work), (1700, true));
    assert_eq!(push.grants[1], ("def".into(), Grant::new(13, 1900)));
}

#[test]
fn push_read_of_recall_returns_acquisition_id_and_mode() {
    let recall = |mode| Some(PushMessage::Recall { id: "abc".into(), mode });
    assert_eq!(PushMessage::read(b"1700 r abc"), recall(LockMode::Read));
    assert_eq!(PushMessage::read(b"1700 w abc"), recall(LockMode::Write));
    assert_eq!(PushMessage::read(b"1700 w"), None);
}

#[test]
fn an_end_names_the_acquisition_and_its_token() {
    let ended = PushMessage::ForceReleased { id: "abc".into(), token: 12 };
    assert_eq!(PushMessage::read(b"1700 f abc 12"), Some(ended));
    // A client that does not know this message must not take it for a grant.
    assert_eq!(GrantMessage::read("1700 f abc 12"), None);
}

#[test]
fn push_read_of_malformed_payload_returns_none() {
    for payload in [
        "",
        "x 0",
        "1700",
        "1700 0 abc",
        "1700 0 abc 1",
        "1700 0 abc x 1",
        "1700 0 abc 1 -1",
        "1700 0 abc 1 +1",
        "1700 0 abc +1 1",
        "+1700 0 abc 1 1",
        "1700 f abc",
        "1700 f abc x",
        "1700 f abc +1",
    ] {
        assert_eq!(PushMessage::read(payload.as_bytes()), None, "{payload}");
    }
    assert_eq!(PushMessage::read(&[0xff, b' ']), None);
}
