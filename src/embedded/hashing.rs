//! The hash function of the engine's tables: fast, and the same in every run.

use std::hash::{BuildHasherDefault, Hasher};

pub(super) type DeterministicState = BuildHasherDefault<DeterministicHasher>;

#[derive(Clone, Debug, Default)]
pub(super) struct DeterministicHasher(u64);

impl Hasher for DeterministicHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.write_u64(u64::from_le_bytes(*chunk));
        }
        for byte in rest {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(ODD);
    }

    fn write_usize(&mut self, length: usize) {
        self.write_u64(length as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
