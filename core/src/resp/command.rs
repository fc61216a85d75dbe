//! A command as its words, in the form in which they are sent.

use std::fmt;

use crate::decimal::Decimal;
use crate::resp::{ID_LEN, ReplyShape, ScriptShape};

const LINE_END: &[u8] = b"\r\n";

/// Capacity for a few words, reserved with the first word if none was reserved before.
const INITIAL_CAPACITY: usize = 64;

/// Capacity for the rest of a script call: the server's name, a moment, some lengths.
const ENVELOPE_CAPACITY: usize = 96;

/// The words of a command (or of a part of one), built in order.
#[derive(Clone, Default)]
pub struct Command {
    /// Each word with its length before it: `$3\r\nGET\r\n`.
    bytes: Vec<u8>,
    words: usize,
    shape: ReplyShape,
}

impl Command {
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the next command reach a slot that the server imports.
    pub fn asking() -> Self {
        Command::new().arg("ASKING").expecting(ReplyShape::Text)
    }

    /// Reserves capacity for that many bytes in the form in which they are sent.
    pub fn with_capacity(bytes: usize) -> Self {
        Command { bytes: Vec::with_capacity(bytes), ..Command::default() }
    }

    pub fn from_words<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Self {
        words.into_iter().fold(Self::new(), |all, word| all.arg(word))
    }

    /// Adds a word.
    pub fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.push(word.as_ref());
        self
    }

    /// Adds a number as decimal digits.
    pub fn arg_u64(mut self, number: u64) -> Self {
        self.push(Decimal::from_u64(number).as_bytes());
        self
    }

    /// Adds all words of another command.
    pub fn append(mut self, other: &Command) -> Self {
        self.bytes.extend_from_slice(&other.bytes);
        self.words += other.words;
        self
    }

    /// Sets the shape that the reply must have.
    pub fn expecting(mut self, shape: ReplyShape) -> Self {
        self.shape = shape;
        self
    }

    pub fn word_count(&self) -> usize {
        self.words
    }

    pub fn shape(&self) -> ReplyShape {
        self.shape
    }

    /// The first word, if it has the length of an acquisition's id.
    pub fn leading_id(&self) -> Option<[u8; ID_LEN]> {
        const { assert!(ID_LEN == 18) };
        self.bytes.strip_prefix(b"$18\r\n")?.first_chunk().copied()
    }

    /// All words in the form in which they are sent, without the line that has their number.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The words in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
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
pub struct EncodedScriptCall<'a> {
    /// `EVALSHA` and the digest, or `EVAL` and the text.
    pub script: &'a Command,
    pub key: &'a [u8],
    pub second_key: Option<&'a [u8]>,
    /// The server's name.
    pub server_name: &'a str,
    pub not_after: Option<u64>,
    pub args: &'a Command,
    pub shape: ScriptShape,
}

impl EncodedScriptCall<'_> {
    /// The number of words.
    pub fn word_count(&self) -> usize {
        let optional =
            usize::from(self.second_key.is_some()) + usize::from(self.not_after.is_some());
        self.script.word_count() + 3 + optional + self.args.word_count()
    }

    /// Writes the words in the form in which they are sent.
    pub fn write(&self, bytes: &mut Vec<u8>) {
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

    pub fn to_command(self) -> Command {
        let size = self.script.bytes().len()
            + self.key.len()
            + self.args.bytes().len()
            + ENVELOPE_CAPACITY;
        let mut bytes = Vec::with_capacity(size);
        self.write(&mut bytes);
        Command { bytes, words: self.word_count(), shape: ReplyShape::Script(self.shape) }
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
pub fn push_header(bytes: &mut Vec<u8>, kind: u8, number: usize) {
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

struct WordIter<'a> {
    rest: &'a [u8],
    remaining: usize,
}

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

impl ExactSizeIterator for WordIter<'_> {}

#[cfg(test)]
mod tests;
