use super::*;

#[test]
fn known_slots() {
    // From the cluster specification and from `CLUSTER KEYSLOT`.
    for (key, slot) in
        [("123456789", 12739), ("foo", 12182), ("bar", 5061), ("", 0), ("somekey", 11058)]
    {
        assert_eq!(Slot::of(key).get(), slot, "{key}");
    }
    for (key, slot) in [
        (&b"{\0}"[..], 0),
        (b"\0{a}\0", 15495),
        (b"{\r\n}x", 5910),
        (b"a{\xff\xfe}b", 3374),
        (b"\xff{\xff}\xff", 7920),
        ("schlüssel:{€}".as_bytes(), 1997),
    ] {
        assert_eq!(Slot::of(key).get(), slot, "{}", key.escape_ascii());
    }
}

#[test]
fn only_the_first_tag_that_is_not_empty_counts() {
    for (key, hashed) in [
        ("{}a", "{}a"),
        ("{{a}}b", "{a"),
        ("a{}{b}", "a{}{b}"),
        ("foo{bar", "foo{bar"),
        ("a{b}{c}", "b"),
        ("}a{b}", "b"),
        ("a}b{", "a}b{"),
        ("", ""),
        ("{}", "{}"),
        ("{user1000}.following", "user1000"),
    ] {
        assert_eq!(hashed_part(key.as_bytes()), hashed.as_bytes(), "{key}");
    }
}

#[test]
fn every_number_is_a_slot_or_none() {
    for number in 0..=u16::MAX {
        assert_eq!(Slot::new(number).map(Slot::get), (number < 16_384).then_some(number));
    }
    assert_eq!(Slot::all().count(), 16_384);
}

#[test]
fn every_slot_has_a_tag_of_its_own() {
    for slot in Slot::all() {
        let tag = slot.hash_tag();
        assert!((1..=4).contains(&tag.len()), "{slot}: {tag:?}");
        assert!(tag.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{slot}: {tag:?}");
        assert_eq!(Slot::of(tag), slot);
        assert_eq!(Slot::of(format!("{{{tag}}}anything")), slot);
    }
}

#[test]
fn tag_for_slot_is_the_first_in_the_documented_order() {
    let alphabet: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').collect();
    let mut all: Vec<String> = vec![String::new()];
    let mut seen = vec![false; 16_384];
    for _length in 1..=3 {
        all = all
            .iter()
            .flat_map(|head| alphabet.iter().map(move |tail| format!("{head}{tail}")))
            .collect();
        for tag in &all {
            let slot = Slot::of(tag);
            if !std::mem::replace(&mut seen[slot.index()], true) {
                assert_eq!(slot.hash_tag(), tag);
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen), "three characters are enough for every slot");
}

#[test]
fn keys_of_two_slots_are_named() {
    assert_eq!(Slot::of_all(["{a}1", "{a}2", "a"]), Ok(Slot::of("a")));
    assert_eq!(Slot::of_all::<&str>([]), Ok(Slot::of("")));
    let error = Slot::of_all(["{a}1", "{a}2", "b\n", "c"]).unwrap_err();
    assert_eq!(error.keys(), [&b"{a}1"[..], b"b\n"]);
    assert_eq!(error.slots(), [Slot::of("a"), Slot::of("b\n")]);
    assert_eq!(
        error.to_string(),
        r#"the keys "{a}1" (slot 15495) and "b\n" (slot 3074) are in different slots; give them one hash tag"#
    );
}
