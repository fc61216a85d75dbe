//! Cuts what others sent to a length that an error message can have.

use std::fmt::{self, Write};

/// The most bytes of an excerpt. An ellipsis follows if something was left out.
const MAX_LEN: usize = 500;

/// The beginning of a text.
pub fn excerpt(text: &str) -> String {
    excerpt_of(format_args!("{text}"))
}

/// The beginning of what is formatted. The rest is not formatted at all.
pub fn excerpt_of(arguments: fmt::Arguments<'_>) -> String {
    let mut excerpt = Excerpt(String::new());
    let is_whole = excerpt.write_fmt(arguments).is_ok();
    excerpt.0 + if is_whole { "" } else { "…" }
}

/// Takes text until it is full.
struct Excerpt(String);

impl Write for Excerpt {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_LEN - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests;
