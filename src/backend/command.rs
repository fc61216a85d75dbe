//! A command as its words, in the form in which they are sent.

use std::fmt;

use crate::backend::shape::{ID_LEN, ReplyShape, ScriptShape};
use crate::decimal::Decimal;

const LINE_END: &[u8] = b"\r\n";

/// Capacity for a few words, reserved with the first word if none was reserved before.
const INITIAL_CAPACITY: usize = 64;

/// Capacity for the rest of a script call: the server's name, a moment, some lengths.
const ENVELOPE_CAPACITY: usize = 96;

/// The words of a command (or of a part of one), built in order.
#[derive(Clone, Default)]
pub(crate) struct Command {
    /// Each word with its length before it: `$3\r\nGET\r\n`.
    bytes: Vec<u8>,
    words: usize,
    shape: ReplyShape,
}

impl Command {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Lets the next command reach a slot that the server imports.
    pub(crate) fn asking() -> Self {
        Command::new().arg("ASKING").expecting(ReplyShape::Text)
    }

    /// Reserves capacity for that many bytes in the form in which they are sent.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Command { bytes: Vec::with_capacity(bytes), ..Command::default() }
    }

    #[cfg(test)]
    pub(crate) fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        words.into_iter().fold(Self::new(), |all, word| all.arg(word))
    }

    /// Adds a word.
    pub(crate) fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.push(word.as_ref());
        self
    }

    /// Adds a number as decimal digits.
    pub(crate) fn arg_u64(mut self, number: u64) -> Self {
        self.push(Decimal::from_u64(number).as_bytes());
        self
    }

    /// Adds all words of another command.
    pub(crate) fn append(mut self, other: &Command) -> Self {
        self.bytes.extend_from_slice(&other.bytes);
        self.words += other.words;
        self
    }

    /// Sets the shape that the reply must have.
    pub(crate) fn expecting(mut self, shape: ReplyShape) -> Self {
        self.shape = shape;
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.words
    }

    pub(crate) fn shape(&self) -> ReplyShape {
        self.shape
    }

    /// The first word, if it has the length of an acquisition's id.
    pub(crate) fn leading_id(&self) -> Option<[u8; ID_LEN]> {
        const { assert!(ID_LEN == 18) };
        self.bytes.strip_prefix(b"$18\r\n")?.first_chunk().copied()
    }

    /// All words in the form in which they are sent, without the line that has their number.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The words in order.
    #[cfg(any(test, feature = "redis", feature = "fred", feature = "embedded"))]
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        WordIter { rest: &self.bytes, remaining: self.words }
    }

    fn push(&mut self, word: &[u8]) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(INITIAL_CAPACITY);
        }
        push_word(&mut self.bytes, word);
        self.words += 1;
    }
}

/// A call of a script on a key, in the parts from which it is assembled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodedScriptCall<'a> {
    /// `EVALSHA` and the digest, or `EVAL` and the text.
    pub(crate) script: &'a Command,
    pub(crate) key: &'a [u8],
    pub(crate) second_key: Option<&'a [u8]>,
    /// The server's name.
    pub(crate) server_name: &'a str,
    pub(crate) not_after: Option<u64>,
    pub(crate) args: &'a Command,
    pub(crate) shape: ScriptShape,
}

impl EncodedScriptCall<'_> {
    /// The number of words.
    pub(crate) fn len(&self) -> usize {
        let optional =
            usize::from(self.second_key.is_some()) + usize::from(self.not_after.is_some());
        self.script.len() + 3 + optional + self.args.len()
    }

    /// Writes the words in the form in which they are sent.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.script.bytes());
        bytes.extend_from_slice(if self.second_key.is_none() {
            b"$1\r\n1\r\n"
        } else {
            b"$1\r\n2\r\n"
        });
        push_word(bytes, self.key);
        if let Some(second) = self.second_key {
            push_word(bytes, second);
        }
        push_word(bytes, self.server_name.as_bytes());
        if let Some(not_after) = self.not_after {
            push_word(bytes, Decimal::from_u64(not_after).as_bytes());
        }
        bytes.extend_from_slice(self.args.bytes());
    }

    pub(crate) fn to_command(self) -> Command {
        let size = self.script.bytes().len()
            + self.key.len()
            + self.args.bytes().len()
            + ENVELOPE_CAPACITY;
        let mut bytes = Vec::with_capacity(size);
        self.write(&mut bytes);
        Command { bytes, words: self.len(), shape: ReplyShape::Script(self.shape) }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some words are passwords.
        f.debug_struct("Command").field("words", &self.words).finish_non_exhaustive()
    }
}

fn push_word(bytes: &mut Vec<u8>, word: &[u8]) {
    push_header(bytes, b'$', word.len());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(LINE_END);
}

/// Adds a header line: a kind, and a length or a count.
pub(crate) fn push_header(bytes: &mut Vec<u8>, kind: u8, number: usize) {
    let digit = |number: usize| b'0' + (number % 10) as u8;
    match number {
        0..10 => bytes.extend_from_slice(&[kind, digit(number), b'\r', b'\n']),
        10..100 => {
            bytes.extend_from_slice(&[kind, digit(number / 10), digit(number), b'\r', b'\n']);
        }
        _ => {
            bytes.push(kind);
            bytes.extend_from_slice(Decimal::from_u64(number as u64).as_bytes());
            bytes.extend_from_slice(LINE_END);
        }
    }
}

#[cfg(any(test, feature = "redis", feature = "fred", feature = "embedded"))]
struct WordIter<'a> {
    rest: &'a [u8],
    remaining: usize,
}

#[cfg(any(test, feature = "redis", feature = "fred", feature = "embedded"))]
impl<'a> Iterator for WordIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let digit = |byte: &u8| usize::from(byte - b'0');
        let (length, begin) = match self.rest {
            [_, one, b'\r', ..] => (digit(one), 2),
            [_, ten, one, b'\r', ..] => (10 * digit(ten) + digit(one), 3),
            _ => {
                let end = self.rest.iter().position(|byte| *byte == b'\r')?;
                let digits = self.rest[1..end].iter();
                (digits.fold(0, |length, byte| 10 * length + digit(byte)), end)
            }
        };
        let (word, rest) = self.rest[begin + LINE_END.len()..].split_at(length);
        self.rest = &rest[LINE_END.len()..];
        self.remaining -= 1;
        Some(word)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

#[cfg(any(test, feature = "redis", feature = "fred", feature = "embedded"))]
impl ExactSizeIterator for WordIter<'_> {}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn words_come_out_as_they_went_in() {
        let tail = Command::from_words(["", "b"]);
        let all =
            Command::new().arg("GET").arg_u64(0).arg_u64(u64::MAX).append(&tail).arg([0xff, 0]);
        let words: Vec<&[u8]> = all.iter().collect();
        assert_eq!(words, [&b"GET"[..], b"0", b"18446744073709551615", b"", b"b", &[0xff, 0]]);
        assert_eq!((all.len(), all.iter().len()), (6, 6));
        let lines = Command::from_words(["\r\n$1\r\n", "$"]);
        assert!(lines.iter().eq([&b"\r\n$1\r\n"[..], b"$"]));
    }

    #[test]
    fn leading_id_is_the_first_word_if_it_has_the_length_of_one() {
        let id = "0123456789abcdefgh";
        assert_eq!(
            Command::from_words([id, "x"]).leading_id().as_ref().map(|id| &id[..]),
            Some(id.as_bytes())
        );
        for other in [&["0123456789abcdefg"][..], &["x", id], &["0123456789abcdefghi"], &[]] {
            assert_eq!(Command::from_words(other.iter().copied()).leading_id(), None, "{other:?}");
        }
    }

    #[test]
    fn command_bytes_have_the_length_before_each_word() {
        let long = "x".repeat(1000);
        let command = Command::new().arg([0xff]).arg_u64(1234567890).arg(&long);
        let expected = [b"$1\r\n\xff\r\n$10\r\n1234567890\r\n$1000\r\n", long.as_bytes(), b"\r\n"];
        assert_eq!(command.bytes(), expected.concat());
    }
}
