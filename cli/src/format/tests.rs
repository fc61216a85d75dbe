use super::*;

#[test]
fn status_time_shows_at_most_two_units() {
    assert_eq!(duration(Duration::from_micros(1_234_567)), "1s 200ms");
    assert_eq!(duration(Duration::from_micros(12_345)), "12ms");
    assert_eq!(duration(Duration::from_micros(123)), "123us");
    assert_eq!(duration(Duration::from_millis(90_900)), "1m 30s");
    assert_eq!(duration(Duration::ZERO), "0s");
}

#[test]
fn plain_escapes_control_characters_of_lock_names() {
    assert_eq!(escape_controls("a\nb\x1b[2J\u{9b}\u{202e}"), "a\\nb\\u{1b}[2J\\u{9b}\\u{202e}");
    assert_eq!(escape_controls("a\u{61c}b"), "a\\u{61c}b");
    assert_eq!(escape_controls("größe \\ 'x' {1}"), "größe \\ 'x' {1}");
}

#[test]
fn write_table_with_a_long_cell_aligns_the_columns() {
    let long = "x".repeat(70_000);
    let rows = [["1", "a", &long], ["22", "", "b"]].map(|row| row.map(str::to_owned));
    let mut out = Vec::new();
    write_table(&mut out, ["", "NAME", "WHO"], &[0], &rows).unwrap();
    let text = anstream::adapter::strip_bytes(&out).into_vec();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text, format!("    NAME  WHO\n 1  a     {long}\n22        b\n"));
}

#[test]
fn holders_shows_the_writer_and_the_reader_count() {
    assert_eq!(holders(true, 0), "a writer");
    assert_eq!(holders(false, 1), "1 reader");
    assert_eq!(holders(true, 2), "a writer and 2 readers");
}
