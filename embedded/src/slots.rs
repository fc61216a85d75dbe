//! The server of each slot.

use std::ops::RangeInclusive;

use rwlease_core::slot::Slot;

const SLOTS: usize = 16_384;

/// The master of each slot, as an index of a server: one server's view, or the truth.
#[derive(Clone, Debug)]
pub(crate) struct SlotTable {
    masters: Vec<u16>,
    /// The number of changes.
    epoch: u64,
}

impl SlotTable {
    /// Divides the slots among the first `masters` servers, as `redis-cli --cluster create` does.
    pub(crate) fn distribute(masters: usize) -> Self {
        let each = SLOTS as f64 / masters as f64;
        let mut shares = Vec::with_capacity(SLOTS);
        for master in 0..masters {
            let end = match master + 1 == masters {
                true => SLOTS,
                false => (each * (master + 1) as f64 - 1.0).round() as usize + 1,
            };
            shares.resize(end, master as u16);
        }
        SlotTable { masters: shares, epoch: 1 }
    }

    pub(crate) fn master_of(&self, slot: Slot) -> usize {
        self.masters[slot.index()].into()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn assign(&mut self, slot: Slot, to: usize) {
        self.masters[slot.index()] = to as u16;
        self.epoch += 1;
    }

    /// Gives all slots of one server to another.
    pub(crate) fn replace(&mut self, from: usize, to: usize) {
        self.epoch += 1;
        for master in &mut self.masters {
            if usize::from(*master) == from {
                *master = to as u16;
            }
        }
    }

    /// Ranges of slots with the same master, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (RangeInclusive<usize>, usize)> {
        let mut end = 0;
        self.masters.chunk_by(|left, right| left == right).map(move |chunk| {
            let start = end;
            end += chunk.len();
            (start..=end - 1, chunk[0].into())
        })
    }
}

#[cfg(test)]
mod tests;
