use super::*;

#[test]
fn an_owner_id_says_its_client_and_count() {
    let client = ClientId::from_random([0, 1, 2, 3, 61, 62, 63, 64, 255, 9, 10]);
    let other = ClientId::from_random([1; 11]);
    for count in [0, 1, 63, 64, 4_000_000, (1 << 42) - 1] {
        let id = client.acquisition(count);
        assert_eq!(id.as_str().len(), 18);
        assert_eq!(AcquisitionId::counter_of(id.as_str(), &client), Some(count));
        assert_eq!(AcquisitionId::counter_of(id.as_str(), &other), None);
        assert_eq!(AcquisitionId::parse(id.as_str()), Some(id));
    }
    assert_ne!(client.acquisition(1), client.acquisition(2));
    assert_eq!(AcquisitionId::counter_of("", &client), None);
    for other in ["", "01234567890123456", "0123456789012345678", "0123456789012345 7"] {
        assert_eq!(AcquisitionId::parse(other), None);
    }
}

#[test]
fn a_channel_is_of_the_slot() {
    let client = ClientId::from_random([7; 11]);
    for slot in [Slot::of(b"a"), Slot::of(b"rwlease:order:{42}")] {
        assert_eq!(Slot::of(client.channel(slot)), slot);
    }
}
