use super::*;

#[test]
fn a_short_text_stays_whole_and_a_long_one_is_cut_between_characters() {
    assert_eq!(excerpt(""), "");
    let just = "x".repeat(MAX_LEN);
    assert_eq!(excerpt(&just), just);
    assert_eq!(excerpt(&(just.clone() + "y")), just + "…");
    let wide = excerpt(&"é".repeat(MAX_LEN));
    assert_eq!(wide.chars().count(), MAX_LEN / 2 + 1);
}

#[test]
fn excerpt_of_endless_text_stops_formatting_at_the_limit() {
    struct Endless;

    impl fmt::Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            loop {
                f.write_str("more ")?;
            }
        }
    }

    assert!(excerpt_of(format_args!("{Endless}")).starts_with("more more"));
}
