//! A command as its words, in one buffer.

use smallvec::SmallVec;

/// The words of a command (or a part of one), built in order. A usual command needs no allocation.
/// Inlined, so that what is handed on is not copied each time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    bytes: SmallVec<[u8; 256]>,
    ends: SmallVec<[u32; 20]>,
}

impl Command {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[cfg(test)]
    pub(crate) fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        words.into_iter().fold(Self::new(), |all, word| all.word(word))
    }

    /// Adds a word.
    #[inline(always)]
    pub(crate) fn word(mut self, word: impl AsRef<[u8]>) -> Self {
        self.push(word.as_ref());
        self
    }

    /// Adds a number as decimal digits.
    #[inline(always)]
    pub(crate) fn number(mut self, number: u64) -> Self {
        self.push(decimal(number, &mut [0; 20]));
        self
    }

    /// Adds all words of another.
    #[inline(always)]
    pub(crate) fn words(mut self, other: &Command) -> Self {
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| end + offset));
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The words in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|at| {
            let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
            &self.bytes[start..self.ends[at] as usize]
        })
    }

    fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len() as u32);
    }
}

/// The digits of a number, in the end of the buffer.
#[inline(always)]
pub(crate) fn decimal(number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    &digits[first..]
}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn words_come_out_as_they_went_in() {
        let tail = Command::of(["", "b"]);
        let all =
            Command::new().word("GET").number(0).number(u64::MAX).words(&tail).word([0xff, 0]);
        let words: Vec<&[u8]> = all.iter().collect();
        assert_eq!(words, [&b"GET"[..], b"0", b"18446744073709551615", b"", b"b", &[0xff, 0]]);
        assert_eq!(all.len(), 6);
    }
}
