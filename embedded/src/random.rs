//! The random numbers of scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The server's random numbers: `lrand48` of C.
#[derive(Clone)]
pub(crate) struct ScriptRandom(Arc<AtomicU64>);

impl Default for ScriptRandom {
    fn default() -> Self {
        const UNSEEDED: u64 = 0x1234_abcd_330e;
        ScriptRandom(Arc::new(AtomicU64::new(UNSEEDED)))
    }
}

impl ScriptRandom {
    pub(crate) fn seed(&self, seed: u32) {
        self.0.store(u64::from(seed) << 16 | 0x330e, Relaxed);
    }

    /// A number from 0 to 1.
    pub(crate) fn fraction(&self) -> f64 {
        const MODULUS: u64 = 1 << 48;
        let next = (self.0.load(Relaxed).wrapping_mul(0x5_deec_e66d).wrapping_add(0xb)) % MODULUS;
        self.0.store(next, Relaxed);
        const MOST: u64 = i32::MAX as u64;
        ((next >> 17) % MOST) as f64 / MOST as f64
    }
}
