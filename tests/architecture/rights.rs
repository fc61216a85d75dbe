//! Three pages list the least rights of a user. They must agree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn the_pages_list_the_same_rights() {
    let operating = rights("docs/operating.md", "user locker on >PASSWORD", "```");
    let mut quick_start = rights("docs/quick-start.md", "ACL SETUSER locker reset on", "```");
    assert!(quick_start.remove("+scan"), "the quick start lists locks");
    assert!(operating.contains("+evalsha"), "{operating:?}");
    assert_eq!(operating, quick_start);
    assert_eq!(operating, rights("docs/protocol.md", "The least rights of a user:", "Leave"));
}

/// The commands that are allowed between two texts of a page.
fn rights(page: &str, from: &str, to: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{page} lacks {from:?}"));
    let (list, _) = rest.split_once(to).unwrap_or_else(|| panic!("{page} lacks {to:?}"));
    let words = list.split_whitespace().map(|word| word.trim_matches(['`', '\'', '.', '\\']));
    words.filter(|word| word.starts_with('+')).map(String::from).collect()
}
