use super::*;

const fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

const R: Duration = Duration::from_secs(1);

#[test]
fn the_second_request_within_a_second_is_cached() {
    let mut policy = CachePolicy::default();
    assert!(!policy.should_cache(at(0), R));
    policy.record_release(at(100));
    assert!(policy.should_cache(at(1_100), R) && !policy.should_cache(at(1_101), R));
}

fn use_plainly(policy: &mut CachePolicy, uses: u32) {
    (0..uses).for_each(|_| policy.record_uncached_use(at(0)));
}

#[test]
fn cache_penalty_ends_after_nine_plain_uses_or_ten_seconds() {
    let mut policy = CachePolicy::default();
    policy.record_recall(1, Duration::from_millis(1), at(0));
    use_plainly(&mut policy, 8);
    assert!(policy.is_penalized(at(1_000)));
    use_plainly(&mut policy, 1);
    assert!(!policy.is_penalized(at(1_000)));
    policy.record_recall(1, Duration::from_millis(1), at(2_000));
    assert!(policy.is_penalized(at(11_999)) && !policy.is_penalized(at(12_000)));
}

#[test]
fn cache_penalty_grows_with_each_miss_and_is_reset_by_many_uses() {
    let mut policy = CachePolicy::default();
    let took = Duration::from_millis(1);
    policy.record_release(at(0));
    policy.record_recall(3, took, at(0));
    use_plainly(&mut policy, 9);
    assert!(policy.is_penalized(at(8)) && !policy.is_penalized(at(9)));
    policy.record_recall(3, took, at(10));
    use_plainly(&mut policy, 18);
    assert!(policy.is_penalized(at(27)) && !policy.should_cache(at(27), R));
    assert!(policy.should_cache(at(28), R));
    policy.record_recall(4, took, at(30));
    assert!(!policy.is_penalized(at(30)), "neither a miss nor forgiven");
    policy.record_recall(16, took, at(30));
    policy.record_recall(0, took, at(40));
    use_plainly(&mut policy, 9);
    assert!(!policy.is_penalized(at(49)), "it was forgiven");
    for _ in 0..60 {
        policy.record_recall(0, took, at(50));
    }
    assert!(policy.is_penalized(at(10_049)) && !policy.is_penalized(at(10_050)));
    policy.record_recall(0, Duration::ZERO, at(20_000));
}

#[test]
fn cache_penalty_of_a_drained_lease_is_that_of_the_whole_recall() {
    let mut policy = CachePolicy::default();
    assert!(policy.record_recall(1, Duration::from_millis(1), at(0)).is_some());
    use_plainly(&mut policy, 9);
    assert!(!policy.is_penalized(at(9)));
    assert_eq!(policy.record_drained(Duration::from_millis(100), at(100)).as_millis(), 900);
    assert!(policy.is_penalized(at(999)) && !policy.is_penalized(at(1_000)), "no second miss");
    policy.record_recall(1, Duration::from_millis(1), at(2_000));
    use_plainly(&mut policy, 18);
    assert!(policy.is_penalized(at(2_017)) && !policy.is_penalized(at(2_018)), "the second miss");
}
