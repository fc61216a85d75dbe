//! How things are put into words.

use std::time::Duration;

use rwlease::Mode;

/// A time, to three digits or so.
pub fn time(time: Duration) -> String {
    let rounded = match time {
        tiny if !tiny.is_zero() && tiny < Duration::from_millis(1) => Duration::from_micros(tiny.as_micros() as u64),
        short if short < Duration::from_secs(1) => Duration::from_millis(short.as_millis() as u64),
        middle if middle < Duration::from_secs(60) => Duration::from_millis(middle.as_millis() as u64 / 100 * 100),
        long => Duration::from_secs(long.as_secs()),
    };
    humantime::format_duration(rounded).to_string()
}

pub fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
    }
}

/// So many of something.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Who holds, in few words.
pub fn holders(writer: bool, readers: u64) -> String {
    match (writer, readers) {
        (true, 0) => "a writer".to_owned(),
        (true, readers) => format!("a writer and {}", count(readers, "reader", "readers")),
        (false, readers) => count(readers, "reader", "readers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(time(Duration::from_micros(1_234_567)), "1s 200ms");
        assert_eq!(time(Duration::from_micros(12_345)), "12ms");
        assert_eq!(time(Duration::from_micros(123)), "123us");
        assert_eq!(time(Duration::from_millis(90_900)), "1m 30s");
        assert_eq!(time(Duration::ZERO), "0s");
    }

    #[test]
    fn holders_are_counted() {
        assert_eq!(holders(true, 0), "a writer");
        assert_eq!(holders(false, 1), "1 reader");
        assert_eq!(holders(true, 2), "a writer and 2 readers");
    }
}
