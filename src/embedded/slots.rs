//! Which server serves which slot.

use std::ops::RangeInclusive;

use crate::slot::Slot;

const SLOTS: usize = 16_384;

/// The master of each slot, as an index of a server: one server's view, or the truth.
#[derive(Clone, Debug)]
pub(super) struct SlotTable {
    masters: Vec<u16>,
    /// The number of changes.
    epoch: u64,
}

impl SlotTable {
    /// Divides the slots among the first `masters` servers, as `redis-cli --cluster create` does.
    pub(super) fn distribute(masters: usize) -> Self {
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

    pub(super) fn master_of(&self, slot: Slot) -> usize {
        self.masters[slot.index()].into()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn assign(&mut self, slot: Slot, to: usize) {
        self.masters[slot.index()] = to as u16;
        self.epoch += 1;
    }

    /// Gives all slots of one server to another.
    pub(super) fn replace(&mut self, from: usize, to: usize) {
        self.epoch += 1;
        for master in &mut self.masters {
            if usize::from(*master) == from {
                *master = to as u16;
            }
        }
    }

    /// Ranges of slots with the same master, in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (RangeInclusive<usize>, usize)> {
        let mut end = 0;
        self.masters.chunk_by(|left, right| left == right).map(move |chunk| {
            let start = end;
            end += chunk.len();
            (start..=end - 1, chunk[0].into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_as_by_the_cluster_tool() {
        let ranges = |masters| SlotTable::distribute(masters).ranges().collect::<Vec<_>>();
        assert_eq!(ranges(1), [(0..=16383, 0)]);
        assert_eq!(ranges(3), [(0..=5460, 0), (5461..=10922, 1), (10923..=16383, 2)]);
        let five = [
            (0..=3276, 0),
            (3277..=6553, 1),
            (6554..=9829, 2),
            (9830..=13106, 3),
            (13107..=16383, 4),
        ];
        assert_eq!(ranges(5), five);
    }

    #[test]
    fn a_slot_that_was_given_away_splits_its_range() {
        let mut slots = SlotTable::distribute(1);
        slots.assign(Slot::new(7).unwrap(), 1);
        let ranges: Vec<_> = slots.ranges().collect();
        assert_eq!(ranges, [(0..=6, 0), (7..=7, 1), (8..=16383, 0)]);
        slots.replace(1, 0);
        assert_eq!(slots.ranges().count(), 1);
    }
}
