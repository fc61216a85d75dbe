use super::*;

fn asked() -> Address {
    Address { host: "asked".into(), port: 7000 }
}

fn slot() -> Slot {
    Slot::new(3999).unwrap()
}

fn error(text: &str) -> ServerError {
    ServerError::parse(text)
}

fn to(host: &str, port: u16) -> Address {
    Address { host: host.into(), port }
}

#[test]
fn reply_readonly_noauth_or_malformed_spoils_the_connection() {
    let ran = |ms| RespValue::String(format!("granted {ms} 0").into());
    let readonly =
        "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY x";
    for text in ["READONLY x", "NOAUTH x", "MOVED", "MOVED 1 a:1", "ASK x", readonly] {
        assert!(invalidates_connection(&RespValue::Error(error(text)), slot()), "{text}");
    }
    for text in ["MOVED 3999 a:1", "ASK 3999 :1", "NOSCRIPT x", "CLUSTERDOWN x", "OOM x", "ERR x"] {
        assert!(!invalidates_connection(&RespValue::Error(error(text)), slot()), "{text}");
    }
    assert!(!invalidates_connection(&ran(1700), slot()));
    for foreign in
        [RespValue::Nil, RespValue::String("OK".into()), RespValue::Array(vec![]), ran(-1)]
    {
        assert!(invalidates_connection(&foreign, slot()), "{foreign:?}");
    }
}

#[test]
fn a_refused_subscription_names_the_owner() {
    let translation = AddressTranslator::default();
    let moved = error("MOVED 3999 :6381");
    assert_eq!(moved_target(&moved, &asked(), &translation), Some((slot(), to("asked", 6381))));
    assert_eq!(moved_target(&error("ASK 3999 :6381"), &asked(), &translation), None);
    assert_eq!(moved_target(&error("MOVED x"), &asked(), &translation), None);
}
