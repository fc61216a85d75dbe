use super::*;

fn blob(text: &str) -> Blob {
    Blob::from_slice(text.as_bytes())
}

fn text(value: &str, expires: Option<u64>) -> Option<StoredKey> {
    let value = StoredValue::Text(blob(value));
    Some(StoredKey { value, expires_at: expires })
}

#[test]
fn a_key_is_gone_after_its_last_millisecond() {
    let mut store = Keyspace::default();
    store.set(b"k", text("v", Some(10)));
    store.begin(10);
    assert!(store.contains(b"k"));
    store.begin(11);
    assert!(!store.contains(b"k"));
}

#[test]
fn writes_are_undone_whole_and_in_order() {
    let mut store = Keyspace::default();
    store.set_field(b"h", b"a", b"1").unwrap();
    store.set(b"t", text("v", None));
    store.end();
    let first = store.entries.clone();

    store.set_field(b"h", b"a", b"2").unwrap();
    store.set_field(b"h", b"b", b"3").unwrap();
    store.set_expiry(b"h", 77);
    store.set(b"t", None);
    store.end();
    let second = store.entries.clone();

    store.remove_field(b"h", b"a").unwrap();
    store.remove_field(b"h", b"b").unwrap();
    store.end();
    store.end(); // a command that changed nothing is no write

    store.undo(1);
    assert_eq!(store.entries, second);
    store.undo(1);
    assert_eq!(store.entries, first);
    store.undo(5);
    assert!(store.entries.is_empty());
}

#[test]
fn a_key_whose_time_was_over_comes_back_when_that_is_undone() {
    let mut store = Keyspace::default();
    store.set(b"k", text("v", Some(10)));
    store.commit();
    store.begin(11);
    assert!(!store.contains(b"k"));
    store.end();
    store.undo(1);
    store.begin(10);
    assert!(store.contains(b"k"));
}

#[test]
fn store_undo_of_confirmed_write_keeps_the_key() {
    let mut store = Keyspace::default();
    store.set(b"k", text("v", None));
    store.end();
    store.commit();
    store.undo(1);
    assert!(store.contains(b"k"));
}

#[test]
fn keys_go_when_their_time_is_over_whatever_it_was_before() {
    let mut store = Keyspace::default();
    for key in [b"short".as_slice(), b"long", b"ever"] {
        store.set(key, text("v", Some(10)));
    }
    store.set_expiry(b"long", 20);
    store.set(b"ever", text("v", None));
    let keys = |store: &Keyspace| store.keys().len();
    store.begin(10);
    assert_eq!(keys(&store), 3);
    store.begin(11);
    assert_eq!(keys(&store), 2);
    store.begin(21);
    assert_eq!(keys(&store), 1);
}

#[test]
fn store_ends_of_a_key_renewed_often_stay_bounded() {
    let mut store = Keyspace::default();
    store.set(b"k", text("v", None));
    for end in 0..10_000 {
        store.set_expiry(b"k", end);
        store.end();
    }
    assert!(store.expiry_heap.len() < 2_000);
    store.begin(9_999);
    assert!(store.contains(b"k"));
    store.begin(10_000);
    assert!(!store.contains(b"k"));
}
