//! Answers the same question as [`History::judge`] by a search: is there an order of all grants and
//! ends in which each is allowed? It uses Wing and Gong's algorithm with Lowe's cache, of
//! `todc-utils`. It takes exponential time at worst, so it is for short pieces of a history: if a
//! history is valid, so is each subset of its holds.

use std::collections::BTreeMap;

use todc_utils::linearizability::history::{Action, History as Actions};
use todc_utils::{Specification, WGLChecker};

use crate::history::{History, Hold, Nanos};

/// How many holds a piece has.
const PIECE: usize = 10;

/// The first piece on which the judge and the search disagree, of about `pieces` from the whole
/// history.
pub fn disagreement(history: &History, pieces: usize) -> Option<Vec<Hold>> {
    let mut holds = history.holds.clone();
    holds.sort_unstable_by_key(|hold| (hold.granted, hold.token));
    let step = (holds.len() / PIECE / pieces).max(1);
    let mut pieces = holds.chunks(PIECE).step_by(step);
    pieces.find(|piece| is_good(piece) != has_order(piece)).map(<[Hold]>::to_vec)
}

pub(super) fn is_good(piece: &[Hold]) -> bool {
    History { holds: piece.to_vec(), ..History::default() }.judge().is_empty()
}

/// Whether there is an order that keeps all promises.
pub(super) fn has_order(piece: &[Hold]) -> bool {
    let mut moments: Vec<(Nanos, bool, usize, Step)> = Vec::new();
    for (number, hold) in piece.iter().enumerate() {
        let grant = Step { hold: hold.clone(), ends: false };
        let end = Step { ends: true, ..grant.clone() };
        moments.push((hold.requested, false, 2 * number, grant.clone()));
        moments.push((hold.granted, true, 2 * number, grant));
        moments.push((hold.end, false, 2 * number + 1, end.clone()));
        // It is not known when others noticed its end.
        moments.push((Nanos::MAX, true, 2 * number + 1, end));
    }
    // At the same moment, calls come before answers.
    moments.sort_by_key(|(at, is_answer, process, _)| (*at, *is_answer, *process));
    let actions = moments.into_iter().map(|(_, is_answer, process, step)| match is_answer {
        false => (process, Action::Call(step)),
        true => (process, Action::Response(step)),
    });
    WGLChecker::<Lock>::is_linearizable(Actions::from_actions(actions.collect()))
}

/// A grant, or its end.
#[derive(Clone, Debug)]
struct Step {
    hold: Hold,
    ends: bool,
}

/// The state of a lock, step by step.
#[derive(Debug)]
struct Lock;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// The holders, by number.
    writers: Vec<usize>,
    readers: Vec<usize>,
    /// The process that may share each token.
    shares: BTreeMap<u64, Option<usize>>,
    /// The greatest tokens: of a writer, of a reader with a token of its own, and of the others.
    written: u64,
    read: u64,
    shared: u64,
}

impl Specification for Lock {
    type State = State;
    type Operation = Step;

    fn init() -> State {
        State::default()
    }

    fn apply(step: &Step, state: &State) -> (bool, State) {
        let mut next = state.clone();
        let is_allowed = if step.ends { next.end(&step.hold) } else { next.grant(&step.hold) };
        (is_allowed, next)
    }
}

impl State {
    fn end(&mut self, hold: &Hold) -> bool {
        let held = if hold.writes { &mut self.writers } else { &mut self.readers };
        let place = held.iter().position(|other| *other == hold.id);
        place.map(|place| held.remove(place)).is_some()
    }

    fn grant(&mut self, hold: &Hold) -> bool {
        let Hold { id, writes, token, shares, .. } = *hold;
        let same = self.shares.insert(token, shares);
        let is_shared = !writes && shares.is_some() && same == Some(shares);
        let is_free = self.writers.is_empty() && (!writes || self.readers.is_empty());
        let State { written, read, shared, .. } = *self;
        let least = match (writes, shares) {
            (true, _) => written.max(read).max(shared),
            (false, None) => written.max(read),
            (false, Some(_)) => written,
        };
        match (writes, shares) {
            (true, _) => self.written = token,
            (false, None) => self.read = token,
            (false, Some(_)) => self.shared = shared.max(token),
        }
        let held = if writes { &mut self.writers } else { &mut self.readers };
        held.push(id);
        held.sort_unstable();
        let is_new = same.is_none() && token > least;
        is_free && (is_new || (is_shared && token >= least))
    }
}
