use super::*;

fn address(host: &str, port: u16) -> Address {
    Address { host: host.into(), port }
}

fn asked() -> Address {
    address("asked", 7000)
}

#[test]
fn a_moved_slot_has_a_new_owner_at_once() {
    let mut map = SlotMap::single(asked());
    let slot = Slot::of("x");
    assert!(map.set_master(slot, &address("new", 1)));
    assert!(!map.set_master(slot, &address("new", 1)), "no news");
    assert_eq!(map.master_of(slot), Some(&address("new", 1)));
    assert_eq!(map.master_of(Slot::of("y")), Some(&asked()));
    assert!(!map.has_same_masters(&SlotMap::single(asked())));
    assert!(map.set_master(slot, &asked()));
    assert!(
        map.has_same_masters(&SlotMap::single(asked())),
        "nodes that own nothing do not matter"
    );
    assert!(SlotMap::empty().is_empty());
    assert_eq!(SlotMap::empty().master_of(slot), None);
}
