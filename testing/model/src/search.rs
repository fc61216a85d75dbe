//! Visits all reachable states, the nearest first.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::program::FAULT_NAMES;
use crate::report;
use crate::state_invariants;
use crate::world::{LockModel, ModelState};

/// How a state was first found.
#[derive(Clone, Copy, Debug)]
struct Discovery {
    from: u32,
    action: u16,
    depth: u16,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct SearchSummary {
    pub name: &'static str,
    pub states: usize,
    pub transitions: u64,
    pub depth: u16,
    /// It is complete.
    pub is_complete: bool,
    pub took: Duration,
    /// How often each of `FAULT_NAMES` happened.
    pub faults: [u64; FAULT_NAMES.len()],
    /// Runs of scripts that the search needed, and how many of them were new.
    pub requested_runs: u64,
    pub executed: usize,
    /// The rule that was broken, with the shortest history that breaks it.
    pub violation: Option<Violation>,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub what: String,
    pub history: String,
    pub steps: usize,
}

struct StateSearch<'a> {
    model: &'a mut LockModel,
    known: HashMap<u128, u32>,
    found: Vec<Discovery>,
    /// From each state to one from which it was reached without a fault.
    reverse_edges: Vec<(u32, u32)>,
    ends: Vec<u32>,
    next: VecDeque<(u32, ModelState)>,
    transitions: u64,
    /// How many transitions were each of `FAULT_NAMES`.
    faults: [u64; FAULT_NAMES.len()],
}

/// The programs can finish from every state if nothing more goes wrong.
pub const CAN_FINISH: &str = "a way leads to the end";

/// Searches until all states are visited, a rule is broken, or the plan's bound is reached.
pub fn search(model: &mut LockModel) -> SearchSummary {
    let started = Instant::now();
    let first = model.first();
    let mut search = StateSearch {
        model,
        known: HashMap::new(),
        found: Vec::new(),
        reverse_edges: Vec::new(),
        ends: Vec::new(),
        next: VecDeque::new(),
        transitions: 0,
        faults: [0; FAULT_NAMES.len()],
    };
    search.note(first, Discovery { from: 0, action: 0, depth: 0 });
    let (closed, violation) = search.run();
    let StateSearch { model, found, transitions, faults, .. } = search;
    SearchSummary {
        name: model.plan.name,
        states: found.len(),
        transitions,
        depth: found.last().map_or(0, |last| last.depth),
        is_complete: closed,
        took: started.elapsed(),
        faults,
        requested_runs: model.asked,
        executed: model.executed(),
        violation,
    }
}

impl StateSearch<'_> {
    fn run(&mut self) -> (bool, Option<Violation>) {
        while let Some((number, world)) = self.next.pop_front() {
            if self.found.len() > self.model.plan.max_states {
                return (false, None);
            }
            if let Err((action, what)) = self.go_on(number, &world) {
                return (false, Some(self.violation(number, Some(action), what)));
            }
        }
        let judges = self.model.judges(CAN_FINISH);
        let stuck = if judges { self.dead_end() } else { None };
        let violation = stuck
            .map(|number| self.violation(number, None, format!("{CAN_FINISH}: there is none")));
        (violation.is_none(), violation)
    }

    /// Takes all steps from a state.
    fn go_on(&mut self, number: u32, world: &ModelState) -> Result<(), (u16, String)> {
        let depth = self.found[number as usize].depth + 1;
        for (at, action) in self.model.actions(world).into_iter().enumerate() {
            let action_number = at as u16;
            self.transitions += 1;
            let fault = self.model.fault_of(world, action);
            fault.into_iter().for_each(|fault| self.faults[fault as usize] += 1);
            let next = self.model.apply(world, action).map_err(|what| (action_number, what))?;
            let next = self.model.canonical(next);
            let (known, broken) = match self.known.get(&fingerprint(&next)) {
                Some(known) => (*known, None),
                None => {
                    let broken = state_invariants::first_violation(self.model, &next);
                    let found = Discovery { from: number, action: action_number, depth };
                    (self.note(next, found), broken)
                }
            };
            if fault.is_none() {
                self.reverse_edges.push((known, number));
            }
            if let Some(what) = broken {
                return Err((action_number, what));
            }
        }
        Ok(())
    }

    fn note(&mut self, world: ModelState, found: Discovery) -> u32 {
        let number = self.found.len() as u32;
        self.known.insert(fingerprint(&world), number);
        self.found.push(found);
        if self.model.is_done(&world) {
            self.ends.push(number);
        }
        self.next.push_back((number, world));
        number
    }

    /// A state from which the programs cannot all finish.
    fn dead_end(&mut self) -> Option<u32> {
        self.reverse_edges.sort_unstable();
        let mut reaches = vec![false; self.found.len()];
        let mut next = std::mem::take(&mut self.ends);
        next.iter().for_each(|end| reaches[*end as usize] = true);
        while let Some(state) = next.pop() {
            let from = self.reverse_edges.partition_point(|(to, _)| *to < state);
            for (_, from) in self.reverse_edges[from..].iter().take_while(|(to, _)| *to == state) {
                if !std::mem::replace(&mut reaches[*from as usize], true) {
                    next.push(*from);
                }
            }
        }
        reaches.iter().position(|reaches| !reaches).map(|state| state as u32)
    }

    fn violation(&mut self, number: u32, last: Option<u16>, what: String) -> Violation {
        let mut actions: Vec<u16> = last.into_iter().collect();
        let mut at = number;
        while at != 0 {
            let Discovery { from, action, .. } = self.found[at as usize];
            actions.push(action);
            at = from;
        }
        actions.reverse();
        let history = report::history(self.model, &actions);
        Violation { what, history, steps: actions.len() }
    }
}

/// States with the same 128 bits are taken to be the same.
fn fingerprint(world: &ModelState) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, world).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}
