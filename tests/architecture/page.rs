//! `docs/architecture.md` walks through the source by name. Each name on the page must exist.

use std::collections::BTreeSet;
use std::fs;

use super::items::Items;

/// Fewer names would mean that the test misreads the page.
const FEWEST: usize = 60;

#[test]
fn architecture_page_names_only_items_of_the_source() {
    let page = testkit::project_root().join("docs/architecture.md");
    let named = named(&fs::read_to_string(page).unwrap());
    assert!(named.len() >= FEWEST, "{named:#?}");
    let items = Items::of_the_source();
    let missing: Vec<_> = named.iter().filter(|path| !items.have(path)).collect();
    assert!(missing.is_empty(), "not in src: {missing:#?}");
}

#[test]
fn page_item_is_found_by_its_own_path_only() {
    let items = Items::of(&[
        ("lock::guard", "pub struct Hold; impl Hold { pub async fn release(self) {} }"),
        ("lock::guard", "impl Drop for Hold { fn drop(&mut self) {} }"),
        ("lock::guard", "mod sealed { pub trait Guard { fn acquire(); } }"),
        ("lock", "pub struct Hold;"),
        ("lock::other", "impl super::guard::Other { fn far() {} }"),
        (
            "client",
            "pub enum State { Held(u8) } fn take() {} #[cfg(test)] mod tests { fn it() {} }",
        ),
        ("client::worker", "impl crate::client::State { const LONGEST: u8 = 1; fn look() {} }"),
    ]);
    for path in [
        "lock::guard",
        "lock::guard::Hold",
        "lock::guard::Hold::release",
        "lock::guard::Hold::drop",
        "lock::guard::sealed::Guard::acquire",
        "client::take",
        "client::State::Held",
        "client::State::look",
        "client::State::LONGEST",
    ] {
        assert!(items.have(path), "{path}");
    }
    for path in [
        "lock::Hold::release",
        "lock::guard::Hold::releases",
        "lock::guard::release",
        "lock::guard::Guard::acquire",
        "lock::guard::Other::far",
        "client::State::Lost",
        "client::worker::State::look",
        "client::take::take",
        "client::tests::it",
    ] {
        assert!(!items.have(path), "{path}");
    }
}

#[test]
fn page_names_are_the_code_spans_that_are_paths() {
    let page =
        "`a::b` and `A::b`, `cargo test`, `a`, `lua/`\n```text\n`in::a::block`\n```\n(`c::D::e`)";
    assert_eq!(named(page), ["A::b", "a::b", "c::D::e"].map(String::from).into());
}

/// The code spans of a document that are paths.
fn named(page: &str) -> BTreeSet<String> {
    let mut is_in_block = false;
    let prose = page.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_in_block ^= is_fence;
        !is_in_block && !is_fence
    });
    prose
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|span| is_path(span))
        .map(String::from)
        .collect()
}

fn is_path(span: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    span.contains("::") && span.split("::").all(is_word)
}
