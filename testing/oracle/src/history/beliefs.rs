//! Judges holds on which their holders rely at one moment.

/// A hold on which its holder relies now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The caller's name for it.
    pub id: usize,
    pub lock: usize,
    pub writes: bool,
    /// The permits of the one semaphore; 0 of a lock.
    pub permits: u64,
}

/// The names of these rules.
pub const BELIEF_RULES: [&str; 3] =
    ["one writer", "no reader beside a writer", "permits are never more than the limit"];

/// The broken rules, each with holds that break it.
pub fn conflicts(beliefs: &[Belief], limit: u64) -> Vec<(&'static str, Vec<usize>)> {
    let [one_writer, no_reader, no_more] = BELIEF_RULES;
    let mut found = Vec::new();
    for (place, writer) in beliefs.iter().enumerate().filter(|(_, belief)| belief.writes) {
        let others = beliefs.iter().enumerate().filter(|(other, belief)| {
            belief.lock == writer.lock && (!belief.writes || *other < place)
        });
        found.extend(others.map(|(_, other)| {
            (if other.writes { one_writer } else { no_reader }, vec![other.id, writer.id])
        }));
    }
    if beliefs.iter().map(|belief| belief.permits).sum::<u64>() > limit {
        let holders = beliefs.iter().filter(|belief| belief.permits > 0);
        found.push((no_more, holders.map(|belief| belief.id).collect()));
    }
    found
}

#[test]
fn conflicts_are_those_of_one_lock() {
    let hold = |id, lock, writes| Belief { id, lock, writes, permits: 0 };
    let rules = |beliefs: &[Belief]| conflicts(beliefs, 3);
    let [one_writer, no_reader, no_more] = BELIEF_RULES;
    assert_eq!(rules(&[hold(0, 0, true), hold(1, 1, true), hold(2, 2, false)]), []);
    assert_eq!(rules(&[hold(0, 0, false), hold(1, 0, false)]), []);
    assert_eq!(rules(&[hold(0, 0, true), hold(1, 0, true)]), [(one_writer, vec![0, 1])]);
    assert_eq!(rules(&[hold(0, 0, true), hold(1, 0, false)]), [(no_reader, vec![1, 0])]);
    let permits = |id, permits| Belief { permits, ..hold(id, 7, false) };
    assert_eq!(rules(&[permits(0, 1), permits(1, 2)]), []);
    assert_eq!(rules(&[permits(0, 2), permits(1, 2)]), [(no_more, vec![0, 1])]);
}
