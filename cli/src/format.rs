//! Formats values for people.

use std::time::Duration;

use rwlease::LockMode;

/// A duration, to about three digits.
pub fn duration(time: Duration) -> String {
    let rounded = match time {
        tiny if !tiny.is_zero() && tiny < Duration::from_millis(1) => {
            Duration::from_micros(tiny.as_micros() as u64)
        }
        short if short < Duration::from_secs(1) => Duration::from_millis(short.as_millis() as u64),
        middle if middle < Duration::from_secs(60) => {
            Duration::from_millis(middle.as_millis() as u64 / 100 * 100)
        }
        long => Duration::from_secs(long.as_secs()),
    };
    humantime::format_duration(rounded).to_string()
}

/// Makes a foreign text safe for one line of a terminal: escapes characters that control the
/// terminal or change the direction of text.
pub fn escape_controls(text: &str) -> String {
    let has_power = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match has_power(c) {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

pub fn mode(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Read => "read",
        LockMode::Write => "write",
    }
}

/// A number with its noun.
pub fn with_noun(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The holders in a few words.
pub fn holders(writer: bool, readers: u64) -> String {
    match (writer, readers) {
        (true, 0) => "a writer".to_owned(),
        (true, readers) => format!("a writer and {}", with_noun(readers, "reader", "readers")),
        (false, readers) => with_noun(readers, "reader", "readers"),
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(escape_controls("größe \\ 'x' {1}"), "größe \\ 'x' {1}");
    }

    #[test]
    fn holders_shows_the_writer_and_the_reader_count() {
        assert_eq!(holders(true, 0), "a writer");
        assert_eq!(holders(false, 1), "1 reader");
        assert_eq!(holders(true, 2), "a writer and 2 readers");
    }
}
