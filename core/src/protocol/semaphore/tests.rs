use super::*;

fn text(text: &'static str) -> RespValue {
    RespValue::String(text.into())
}

#[test]
fn a_page_is_read() {
    let view = InspectSemaphoreRequest::read(RespValue::Array(vec![
        text("semaphore"),
        RespValue::Int(1_000),
        RespValue::Int(0),
        RespValue::Int(7),
        RespValue::Int(10),
        RespValue::Int(3),
        RespValue::Int(1),
        RespValue::Int(1),
        RespValue::Array(vec![text("holder"), text("h000000000150000000000000000070 3")]),
        RespValue::Array(vec![text("waits"), text("p - - 5 900 10000 30000 1000 8 - x 800")]),
    ]))
    .unwrap();
    assert_eq!((view.token, view.limit, view.permits_in_use), (7, 10, 3));
    let record = HolderRecord { deadline: 1_500, token: 7, cached: false };
    assert_eq!(view.holders, [("holder".to_owned(), record, 3)]);
    assert_eq!((view.waiting[0].ticket, view.waiting[0].permits), (5, 8));
}

#[test]
fn semaphore_read_of_malformed_reply_returns_error() {
    assert!(holder("holder", "h000000000150000000000000000070").is_err());
    assert!(SetLimitRequest::read(text("limit_mismatch 17 0 4294967296")).is_err());
    assert!(SetLimitRequest::read(text("kept 17 0")).is_err());
    assert!(ReleasePermitsRequest::read(text("set 17 0")).is_err());
    assert!(InspectSemaphoreRequest::read(text("lock 17 0")).is_err());
}
