use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn retry_pause_doubles_up_to_the_longest() {
    let backoff = Backoff::new(ms(20), ms(1_000));
    let whole: Vec<_> = (0..8).map(|before| backoff.without_jitter(before)).collect();
    assert_eq!(whole, [20, 40, 80, 160, 320, 640, 1_000, 1_000].map(ms));
    assert_eq!(backoff.without_jitter(u32::MAX), ms(1_000));
    assert_eq!(Backoff::new(ms(70), ms(7)).without_jitter(0), ms(7));
}

#[test]
fn no_retry_pause_is_too_long_to_compute() {
    let longest = Backoff::new(Duration::MAX, Duration::MAX);
    assert_eq!([0, 1, u32::MAX].map(|before| longest.without_jitter(before)), [Duration::MAX; 3]);
    assert_eq!(scale(Duration::MAX, 1.0), Duration::MAX);
    assert!(longest.delay(u32::MAX) >= scale(Duration::MAX, DEFAULT_JITTER));
    assert_eq!(Backoff::new(Duration::ZERO, ms(9)).delay(u32::MAX), Duration::ZERO);
}

#[test]
fn a_part_of_each_pause_is_random() {
    assert_eq!([0.0, 0.25, 1.0].map(|part| scale(ms(80), part)), [0, 20, 80].map(ms));
    let pauses: Vec<_> = (0..100).map(|_| with_jitter(ms(80))).collect();
    assert!(pauses.iter().all(|pause| (ms(40)..=ms(80)).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
}
