use super::*;

#[test]
fn status_of_the_largest_numbers_does_not_overflow() {
    const MAX: u64 = u64::MAX;
    for now in [0, MAX / 2, MAX - 1, MAX] {
        let waiter = WaiterRecord {
            id: "waiter".into(),
            next: None,
            ticket: MAX,
            last_poll: MAX,
            waiter_ttl: MAX,
            joined_at: MAX,
            permits: u32::MAX,
        };
        let record = HolderRecord { deadline: MAX, token: 1, cached: false };
        let view = InspectSemaphoreReply {
            now,
            holder_count: MAX,
            holders: vec![("holder".into(), record, 1)],
            waiting: vec![waiter],
            ..InspectSemaphoreReply::default()
        };
        let status = status(view, MAX, 100);
        assert_eq!(status.waiters[0].ttl_remaining, Duration::from_millis(MAX - now));
        assert_eq!(status.holders.len(), usize::from(now < MAX));
    }
}
