use super::*;

#[test]
fn acquire_millis_of_any_duration_are_rounded_up_to_at_least_one() {
    let durations = [Duration::ZERO, Duration::from_micros(999), Duration::from_micros(2_999)];
    assert_eq!(durations.map(to_millis), [1, 1, 3]);
    assert_eq!(to_millis(Duration::MAX), u64::MAX);
}
