use super::*;

#[test]
fn clock_difference_after_a_slow_reply_may_be_zero() {
    let (quick, slow) = (ClockOffset::new(1_000, 0, 10), ClockOffset::new(1_900, 0, 2_000));
    assert_eq!(distance(quick, slow).0, Duration::ZERO);
    let (least, most) = distance(ClockOffset::new(1_000, 0, 10), ClockOffset::new(5_000, 0, 20));
    assert_eq!((least.as_micros(), most.as_micros()), (3_980, 4_010));
    assert_eq!(
        slow.intersect(ClockOffset::new(1_900, 500, 600)),
        ClockOffset { least: 1_300, most: 1_400 }
    );
}
