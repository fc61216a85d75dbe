//! What `Debug` prints, where it is written by hand. `debug_fields!` takes the name from the type.

use std::fs;

use super::files;

#[test]
fn debug_prints_the_name_of_the_type() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in files(&testkit::project_root().join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        for (of, shown) in printed_by_hand(&text) {
            count += 1;
            if of != shown {
                wrong.push(format!("{}: {of} is printed as {shown}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 2, "{count} types were found");
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
fn printed_names_are_found_by_type() {
    let text = "impl fmt::Debug for First<'_> {\n    f.debug_struct(\"Other\")\n}\n\
                impl fmt::Debug for Secret {\n    f.write_str(\"***\")\n}";
    assert_eq!(Vec::from_iter(printed_by_hand(text)), [("First", "Other")]);
}
