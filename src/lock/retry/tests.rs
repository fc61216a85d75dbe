use super::*;
use crate::clock::SystemClock;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn retry_pauses_grow_up_to_the_longest() {
    let retry = RetryPolicy::exponential(ms(10), ms(100)).jitter(0.5);
    let pauses: Vec<_> = (1..7).map(|made| retry.pause(made, 0.0)).collect();
    assert_eq!(pauses, [ms(10), ms(20), ms(40), ms(80), ms(100), ms(100)]);
    assert_eq!(retry.pause(1, 1.0), ms(5));
    assert_eq!(retry.pause(u32::MAX, 0.0), ms(100));
    let steady = RetryPolicy::fixed(ms(70)).jitter(0.0);
    assert_eq!((steady.pause(1, 1.0), steady.pause(9, 1.0)), (ms(70), ms(70)));
}

#[test]
fn retry_with_settings_out_of_range_clamps_them() {
    let retry =
        RetryPolicy::exponential(Duration::ZERO, Duration::ZERO).jitter(7.0).max_attempts(0);
    assert_eq!(retry.pause(1, 0.0), SHORTEST);
    assert_eq!((retry.jitter, retry.tries), (1.0, Some(1)));
    assert_eq!(retry.jitter(f64::NAN).jitter, DEFAULT_JITTER);
    let longest = RetryPolicy::fixed(Duration::MAX).jitter(0.0);
    assert_eq!(longest.pause(1, 0.0), Duration::MAX);
    assert_eq!(longest.pause(u32::MAX, 1.0), Duration::MAX);
}

#[tokio::test]
async fn tries_end_by_their_number_or_their_time() {
    let retry = RetryPolicy::fixed(ms(1)).max_attempts(3).timeout(ms(60_000));
    let mut tries = retry.begin(SystemClock.now(), Some(ms(90_000)));
    assert_eq!(
        tries.answer_by(LocalInstant::default().saturating_add(ms(5))),
        LocalInstant::default().saturating_add(ms(5))
    );
    tries.pause(&SystemClock).await.unwrap();
    tries.pause(&SystemClock).await.unwrap();
    let error = tries.pause(&SystemClock).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AttemptsExhausted);

    let retry = RetryPolicy::fixed(ms(60_000));
    let now = SystemClock.now();
    let mut tries = retry.begin(now, Some(ms(5)));
    assert_eq!(tries.answer_by(now.saturating_add(ms(60_000))), now.saturating_add(ms(5)));
    assert!(!tries.was_cut_short(now, now.saturating_add(ms(5))), "no server has answered yet");
    assert_eq!(tries.pause(&SystemClock).await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(tries.was_cut_short(now, now.saturating_add(ms(5))));
    assert!(!tries.was_cut_short(now, now.saturating_add(ms(4))), "there was time left");
    let mut long = retry.begin(now, Some(ms(600)));
    long.made = 1;
    assert!(!long.was_cut_short(now, now.saturating_add(ms(600))), "it had time enough");
    assert!(long.was_cut_short(now.saturating_add(ms(590)), now.saturating_add(ms(600))));
}
