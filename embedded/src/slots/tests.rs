use super::*;

#[test]
fn slots_are_shared_out_as_by_the_cluster_tool() {
    let ranges = |masters| SlotTable::distribute(masters).ranges().collect::<Vec<_>>();
    assert_eq!(ranges(1), [(0..=16383, 0)]);
    assert_eq!(ranges(3), [(0..=5460, 0), (5461..=10922, 1), (10923..=16383, 2)]);
    let five =
        [(0..=3276, 0), (3277..=6553, 1), (6554..=9829, 2), (9830..=13106, 3), (13107..=16383, 4)];
    assert_eq!(ranges(5), five);
}

#[test]
fn a_slot_that_was_given_away_splits_its_range() {
    let mut slots = SlotTable::distribute(1);
    slots.assign(Slot::new(7).unwrap(), 1);
    let ranges: Vec<_> = slots.ranges().collect();
    assert_eq!(ranges, [(0..=6, 0), (7..=7, 1), (8..=16383, 0)]);
    slots.replace(1, 0);
    assert_eq!(slots.ranges().count(), 1);
}
