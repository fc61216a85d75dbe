//! What `Debug` prints.

use std::fs;

use super::files;

#[test]
fn debug_prints_the_name_of_the_type() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in files(&testkit::project_root().join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        for (of, shown) in printed(&text) {
            count += 1;
            if of != shown {
                wrong.push(format!("{}: {of} is printed as {shown}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 30, "{count} types were found");
}

/// The types of `debug_fields!(|value: Type<'_>| Name { ... })`, with the names that it prints.
fn printed(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("debug_fields!(|").skip(1).filter_map(|call| {
        let (value, rest) = call.split_once('|')?;
        let of = value.split_once(": ")?.1.split('<').next()?;
        let shown = rest.trim_start().split([' ', ',']).next()?;
        (!of.starts_with('$')).then_some((of, shown))
    })
}

#[test]
fn printed_names_are_found_over_lines_and_lifetimes() {
    let text = "debug_fields!(|one: First| Other { .. });\n\
                debug_fields!(|query: Second<'_>|\n    Second { lock: query.lock });";
    assert_eq!(Vec::from_iter(printed(text)), [("First", "Other"), ("Second", "Second")]);
}
