use std::pin::pin;

use super::*;

#[tokio::test]
async fn a_cancelled_wait_says_so() {
    let never = std::future::pending::<Result<()>>();
    let cancelled = Cancel::on(std::future::ready(())).or(pin!(Some(never))).await.unwrap_err();
    assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
    let done = Cancel::on(std::future::pending()).or(pin!(Some(async { Ok(7) }))).await;
    assert_eq!(done.unwrap(), 7);
    assert_eq!(Cancel::default().or(pin!(Some(async { Ok(7) }))).await.unwrap(), 7);
}

#[test]
fn timeout_of_zero_names_the_requests_that_do_not_wait() {
    let error = check_timeout(Some(Duration::ZERO)).unwrap_err();
    for method in ["`try_write`", "`try_read`"] {
        assert!(error.to_string().contains(method), "{error}");
    }
}
