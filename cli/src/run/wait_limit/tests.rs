use super::*;

#[tokio::test]
async fn limit_at_the_end_of_time_does_not_panic() {
    let seconds = (0..63).rev().map(|bit| Duration::from_secs(1 << bit));
    let nanos = (0..30).rev().map(|bit| Duration::from_nanos(1 << bit));
    let until = seconds
        .chain(nanos)
        .fold(Instant::now(), |until, step| until.checked_add(step).unwrap_or(until));
    let limit = WaitLimit { name: "a".to_owned(), timeout: None, until: Some(until) };
    assert!(limit.within(async { Ok(7) }).await.is_ok_and(|done| done == 7));
}
