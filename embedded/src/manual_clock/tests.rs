use std::sync::Arc;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn an_advance_wakes_every_sleeper_whose_time_has_come() {
    let clock = Arc::new(ManualClock::frozen());
    let sleep = |hours| tokio::spawn(clock.sleep_until(LocalInstant::from_duration(HOUR * hours)));
    let (first, second, third) = (sleep(1), sleep(2), sleep(3));
    tokio::task::yield_now().await;
    clock.advance(HOUR * 2);
    first.await.unwrap();
    second.await.unwrap();
    tokio::task::yield_now().await;
    assert!(!third.is_finished());
    assert_eq!(clock.now(), LocalInstant::from_duration(HOUR * 2));
    clock.advance(HOUR);
    third.await.unwrap();
}

#[tokio::test]
async fn the_clock_says_when_the_next_one_wakes() {
    let clock = ManualClock::frozen();
    assert_eq!(clock.next_wake(), None);
    let late = clock.sleep_until(LocalInstant::from_duration(HOUR * 2));
    let soon = clock.sleep_until(LocalInstant::from_duration(HOUR));
    let both = futures::future::select(late, soon);
    let waits = futures::future::select(both, futures::future::ready(()));
    let left = waits.await;
    assert_eq!(clock.next_wake(), Some(LocalInstant::from_duration(HOUR)));
    drop(left);
    assert_eq!(clock.next_wake(), None, "who is gone does not sleep");
}

#[tokio::test]
async fn an_advance_before_the_first_poll_counts() {
    let clock = ManualClock::frozen();
    let sleep = clock.sleep_until(LocalInstant::from_duration(HOUR));
    clock.advance(HOUR);
    sleep.await;
}

#[tokio::test(start_paused = true)]
async fn a_running_clock_follows_tokio_and_the_hand() {
    let clock = ManualClock::following_tokio();
    clock.sleep_until(LocalInstant::from_duration(HOUR)).await; // tokio's paused time moves itself
    assert_eq!(clock.now(), LocalInstant::from_duration(HOUR));
    clock.advance(HOUR);
    assert_eq!(clock.now(), LocalInstant::from_duration(HOUR * 2));
    clock.sleep_until(LocalInstant::from_duration(HOUR * 2)).await;
}
