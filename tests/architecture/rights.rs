//! Three pages list the least rights of a user. They must agree.

use std::collections::BTreeSet;
use std::fs;

#[test]
fn the_pages_list_the_same_rights() {
    let operating = rights("docs/operating.md", "user locker on >PASSWORD", "```");
    let mut quick_start = rights("docs/quick-start.md", "ACL SETUSER locker reset on", "```");
    for right in ["+scan", "+get", "+set"] {
        assert!(
            quick_start.remove(right),
            "the quick start lists locks and names clients: {right}"
        );
    }
    assert!(operating.contains("+evalsha"), "{operating:?}");
    assert_eq!(operating, quick_start);
    assert_eq!(operating, rights("docs/protocol.md", "The least rights of a user:", "Leave"));
}

/// Without it, Redis 6.2 gives a new user all channels, and accepts no pattern after that.
#[test]
fn the_pages_begin_without_channels() {
    for (page, from) in [
        ("docs/operating.md", "user locker on >PASSWORD "),
        ("docs/quick-start.md", "ACL SETUSER locker reset on '>secret' "),
    ] {
        let text = fs::read_to_string(testkit::project_root().join(page)).unwrap();
        let rest = text.split_once(from).map(|(_, rest)| rest);
        assert!(rest.is_some_and(|rest| rest.starts_with("resetchannels ")), "{page}");
    }
}

/// The commands that are allowed between two texts of a page.
fn rights(page: &str, from: &str, to: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(testkit::project_root().join(page)).unwrap();
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{page} lacks {from:?}"));
    let (list, _) = rest.split_once(to).unwrap_or_else(|| panic!("{page} lacks {to:?}"));
    let words = list.split_whitespace().map(|word| word.trim_matches(['`', '\'', '.', '\\']));
    words.filter(|word| word.starts_with('+')).map(String::from).collect()
}
