use super::*;

#[test]
fn next_poll_of_waiter_further_back_is_later() {
    let poll = PollConfig {
        poll_interval: Duration::from_millis(250),
        waiter_ttl: Duration::from_secs(9),
        claim_timeout: Duration::from_secs(1),
    };
    assert_eq!(poll.poll_delay(0, 0.0), Duration::from_millis(250));
    assert_eq!(poll.poll_delay(0, 1.0), Duration::from_millis(200));
    assert_eq!(poll.poll_delay(3, 0.0), Duration::from_secs(1));
    assert_eq!(poll.poll_delay(u64::MAX, 0.0), Duration::from_secs(3));
    assert_eq!(poll.staggered_delay(0, 0.0), Duration::ZERO);
    assert_eq!(poll.staggered_delay(0, 1.0), Duration::ZERO);
    assert_eq!(poll.staggered_delay(7, 0.0), 7 * STAGGER);
    assert_eq!(poll.staggered_delay(7, 1.0), 6 * STAGGER);
    assert_eq!(poll.staggered_delay(u64::MAX, 0.0), Duration::from_secs(3));
    assert_eq!(poll.claim_timeout(true, 50), Duration::from_secs(1));
    assert_eq!(poll.claim_timeout(false, 0), Duration::from_secs(1));
    assert_eq!(poll.claim_timeout(false, 50), Duration::from_secs(6));
}
