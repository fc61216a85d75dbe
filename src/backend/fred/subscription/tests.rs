use super::*;

#[test]
fn ssubscribe_rejected_keeps_the_later_subscription_of_the_channel() {
    let (mut joined, channel) = (SubscribedChannels::default(), Bytes::from("one"));
    let first = joined.add(&channel, false);
    let second = joined.add(&channel, true);
    assert!(!joined.refused(&channel, first));
    assert!(joined.channels[&channel].asking);
    assert!(joined.refused(&channel, second));
    assert!(!joined.refused(&channel, second), "it was left");
}

#[test]
fn subscriptions_asked_again_in_batches_cover_each_channel_once() {
    let joined: BTreeMap<Bytes, ()> =
        (0..2 * RESUBSCRIBE_BATCH + 1).map(|number| (format!("{number:05}").into(), ())).collect();
    let (mut last, mut asked) = (Bytes::new(), Vec::new());
    for expected in [RESUBSCRIBE_BATCH, RESUBSCRIBE_BATCH, 1] {
        let turn = next_batch(&joined, &last);
        assert_eq!(turn.len(), expected);
        last = turn.last().cloned().unwrap();
        asked.extend(turn);
    }
    assert!(asked.iter().eq(joined.keys()));
    assert!(next_batch(&joined, &last).is_empty());
}
