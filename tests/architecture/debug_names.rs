//! What `Debug` prints.

use std::fs;

use super::files;

#[test]
fn debug_prints_the_name_of_the_type() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in files(&testkit::project_root().join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        for (of, shown) in printed(&text).chain(printed_by_hand(&text)) {
            count += 1;
            if of != shown {
                wrong.push(format!("{}: {of} is printed as {shown}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 45, "{count} types were found");
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

/// The types of each `impl Debug` that is written out and prints a name, with that name.
fn printed_by_hand(text: &str) -> impl Iterator<Item = (&str, &str)> {
    const CALLS: [&str; 3] = ["debug_struct(\"", "debug_tuple(\"", "write_str(\""];
    text.split("Debug for ").skip(1).filter_map(|part| {
        let of = part.split([' ', '<']).next()?;
        let body = part.split("\n}").next()?;
        let shown = CALLS.iter().find_map(|call| body.split_once(call))?.1.split('"').next()?;
        shown.starts_with(char::is_uppercase).then_some((of, shown))
    })
}

#[test]
fn printed_names_are_found_over_lines_and_lifetimes() {
    let text = "debug_fields!(|one: First| Other { .. });\n\
                debug_fields!(|query: Second<'_>|\n    Second { lock: query.lock });";
    assert_eq!(Vec::from_iter(printed(text)), [("First", "Other"), ("Second", "Second")]);
    let text = "impl fmt::Debug for Third<'_> {\n    f.debug_struct(\"Other\")\n}\n\
                impl fmt::Debug for Secret {\n    f.write_str(\"***\")\n}";
    assert_eq!(Vec::from_iter(printed_by_hand(text)), [("Third", "Other")]);
}
