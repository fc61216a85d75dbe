use super::*;

fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

#[test]
fn clock_bound_before_the_first_reply_is_unknown() {
    let bound = ClockBounds::default();
    assert_eq!(bound.not_before(1, at(1)), None);
    assert_eq!(bound.max_server_ms(at(1)), None);
    assert!(bound.is_consistent());
}

#[test]
fn clock_bound_after_first_reply_is_within_its_round_trip() {
    let mut bound = ClockBounds::default();
    bound.observe(at(100), at(140), 1_000_000);
    // It read 1,000,000 to 1,000,000.999 between 100 and 140.
    assert_eq!(bound.not_before(1_000_500, at(140)), Some(at(594)));
    assert_eq!(bound.max_server_ms(at(600)), Some(1_000_501));
}

#[test]
fn answers_narrow_it_down() {
    let mut bound = ClockBounds::default();
    bound.observe(at(100), at(140), 1_000_000); // the offset is 99 ms to 140 ms below
    bound.observe(at(200), at(201), 1_000_070);
    assert_eq!(bound.not_before(1_001_000, at(400)), Some(at(1124)));
    assert!(bound.is_consistent());
    // A slower answer does not widen the bounds again.
    bound.observe(at(300), at(400), 1_000_250);
    assert_eq!(bound.not_before(1_001_000, at(400)), Some(at(1124)));
}

#[test]
fn clock_bound_is_never_later_than_the_server_time() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..1000 {
        let offset = random.u64(1_000..1_000_000); // the server's µs at local 0
        let mut bound = ClockBounds::default();
        let mut now = 0;
        for _ in 0..20 {
            let sent = now + random.u64(0..50_000);
            let served = sent + random.u64(0..20_000);
            now = served + random.u64(0..20_000);
            let moment = |micros| LocalInstant::from_duration(Duration::from_micros(micros));
            bound.observe(moment(sent), moment(now), (served + offset) / 1000);
            assert!(bound.is_consistent());
            let deadline_ms = (now + offset) / 1000 + random.u64(1..5000);
            let truly = moment(deadline_ms * 1000 - offset);
            assert!(bound.not_before(deadline_ms, moment(now)).unwrap() <= truly);
            assert!(bound.max_server_ms(truly).unwrap() >= deadline_ms);
        }
    }
}

#[test]
fn clock_bound_of_an_older_reply_allows_for_drift() {
    let mut bound = ClockBounds::default();
    bound.observe(at(0), at(0), 1_000_000);
    // The server's clock is fast by 500 parts in a million, so after nine seconds it reads this
    // at 8999.5.
    assert!(bound.not_before(1_009_004, at(8_999)).unwrap() <= at(8_999));
}

#[test]
fn clock_bound_not_before_ignores_replies_past_the_drift_limit() {
    let mut bound = ClockBounds::default();
    bound.observe(at(3), at(3), 1_000_003);
    assert_eq!(bound.not_before(1_009_004, at(10_000)), Some(at(8_998)));
    assert_eq!(bound.not_before(1_009_004, at(10_004)), None);
    assert!(bound.max_server_ms(at(10_004)).is_some(), "a limit is better than none");
    // A second generation that says less is used alone as soon as the first one is too old.
    bound.observe(at(6_000), at(6_100), 1_006_090);
    assert_eq!(bound.not_before(1_009_004, at(9_000)), Some(at(8_998)));
    assert_eq!(bound.not_before(1_009_004, at(11_000)), Some(at(8_908)));
    assert_eq!(bound.not_before(1_009_004, at(16_100)), None);
    // A call that was sent long ago can have read the clock as long ago.
    let mut slow = ClockBounds::default();
    slow.observe(at(20_000), at(20_001), 1_020_000);
    slow.observe(at(8_000), at(20_002), 1_008_000);
    assert_eq!(slow.not_before(1_021_000, at(20_002)), None);
}

#[test]
fn a_clock_that_was_set_is_noticed_and_believed_after_a_while() {
    let mut bound = ClockBounds::default();
    bound.observe(at(100), at(101), 1_000_000);
    bound.observe(at(200), at(201), 1_030_000);
    assert!(!bound.is_consistent());
    assert_eq!(bound.not_before(1_040_000, at(201)), None);
    assert_eq!(bound.max_server_ms(at(200)), Some(1_030_001), "the newest answer counts");
    bound.observe(at(5_300), at(5_301), 1_035_100);
    assert!(!bound.is_consistent(), "the generation before still counts");
    bound.observe(at(10_400), at(10_401), 1_040_200);
    assert!(bound.is_consistent());
    assert_eq!(bound.not_before(1_041_000, at(10_401)), Some(at(11_194)));
}

#[test]
fn clock_bound_after_a_long_silence_uses_only_the_new_reply() {
    let mut bound = ClockBounds::default();
    bound.observe(at(100), at(100), 1_000_000);
    bound.observe(at(3_600_100), at(3_600_150), 4_599_800);
    assert!(bound.is_consistent());
    assert_eq!(bound.not_before(4_599_900, at(3_600_150)), Some(at(3_600_194)));
}

#[test]
fn clock_bound_with_extreme_times_does_not_overflow() {
    let mut bound = ClockBounds::default();
    bound.observe(at(0), at(0), u64::MAX);
    bound.observe(at(u64::MAX / 2), at(u64::MAX / 2), 0);
    let _ = (
        bound.not_before(u64::MAX, at(u64::MAX)),
        bound.max_server_ms(at(u64::MAX / 2)),
        bound.is_consistent(),
    );
}
