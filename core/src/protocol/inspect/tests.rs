use super::*;

fn text(text: &'static str) -> RespValue {
    RespValue::String(text.into())
}

fn lock(elements: Vec<RespValue>) -> RespValue {
    RespValue::Array(
        [text("lock"), RespValue::Int(1_000), RespValue::Int(0)]
            .into_iter()
            .chain(elements)
            .collect(),
    )
}

#[test]
fn a_page_is_read() {
    let view = InspectRequest::read(lock(vec![
        RespValue::Int(7),
        text("c00000000015000000000000000007abcdefghijklmnopqr"),
        RespValue::Int(1),
        RespValue::Int(2),
        RespValue::Array(vec![text("upgrades"), text("u - - 0 900 10000 30000 1000 f - x 700")]),
        RespValue::Int(3),
        RespValue::Array(vec![text("reader"), text("g000000000160000000000000000060")]),
        RespValue::Array(vec![text("waits"), text("w - next 5 900 10000 30000 1000 f - x 800")]),
        RespValue::Array(vec![]),
    ]))
    .unwrap();
    let record = HolderRecord { deadline: 1_500, token: 7, cached: true };
    assert_eq!(view.writer, Some(("abcdefghijklmnopqr".into(), record)));
    assert_eq!((view.reader_count, view.waiter_count, view.revoked_up_to), (1, 2, 3));
    let upgrader = view.upgrader.unwrap();
    assert_eq!((upgrader.id.as_str(), upgrader.joined_at), ("upgrades", 700));
    assert_eq!(view.readers[0].0, "reader");
    assert_eq!(view.readers[0].1, HolderRecord { deadline: 1_600, token: 6, cached: false });
    let entry = &view.waiting_writers[0];
    assert_eq!((entry.next.as_deref(), entry.ticket, entry.joined_at), (Some("next"), 5, 800));
}

#[test]
fn inspect_read_of_absent_lock_is_empty_and_of_garbage_is_error() {
    let absent = RespValue::Array(vec![text("not_found"), RespValue::Int(9), RespValue::Int(0)]);
    let view = InspectRequest::read(absent).unwrap();
    assert_eq!((view.server_now, view.token, view.writer), (9, 0, None));
    assert!(record("h123").is_err());
    assert!(record("hxxxxxxxxxxxxx0000000000000007").is_err());
    assert!(record("h+000000000015+000000000000007").is_err());
    assert!(entry("o", "w - - +5 900 10000 30000 1000 f - x 800").is_err());
    assert!(entry("o", "w - - 1 2 3").is_err());
}
