//! Prints a history, and the table of the searched worlds.

use std::fmt::Write;

use crate::program::FAULT_NAMES;
use crate::search::{SearchSummary, Violation};
use crate::state_invariants::ClientHold;
use crate::time::SERVER_NOW;
use crate::world::{LockModel, ModelAction, ModelState};

/// The steps of a history, with the beliefs after each.
pub fn history(model: &mut LockModel, actions: &[u16]) -> String {
    // The search reorders equal clients in each state. Here each client keeps its number.
    let (mut searched, mut world) = (model.first(), model.first());
    let mut text = String::new();
    for (at, number) in actions.iter().enumerate() {
        let action = model.actions(&searched)[usize::from(*number)];
        let wanted = model.apply(&searched, action).map(|next| model.canonical(next));
        let action = same_action(model, &world, &wanted).unwrap_or(action);
        let _ = write!(text, "{:>4}. {}", at + 1, describe(model, &world, action));
        match model.apply(&world, action) {
            Ok(mut next) => {
                model.simplify(&mut next);
                world = next;
                searched = wanted.unwrap_or_else(|_| world.clone());
            }
            Err(what) => {
                let _ = writeln!(text, "\n      {what}");
                return text;
            }
        }
        let _ = writeln!(text, "{}", beliefs(model, &world));
    }
    let lock = &model.locks[world.lock];
    let _ = writeln!(text, "      the lock, where it is {SERVER_NOW}: {lock:?}");
    text
}

/// The action that leads to the same state, except for the order of clients.
fn same_action(
    model: &mut LockModel,
    world: &ModelState,
    wanted: &Result<ModelState, String>,
) -> Option<ModelAction> {
    let rule = |what: &str| what.split(':').next().map(str::to_owned);
    model.actions(world).into_iter().find(|action| match (model.apply(world, *action), wanted) {
        (Ok(next), Ok(wanted)) => model.canonical(next) == *wanted,
        (Err(what), Err(wanted)) => rule(&what) == rule(wanted),
        _ => false,
    })
}

fn describe(model: &mut LockModel, world: &ModelState, action: ModelAction) -> String {
    let about = match action {
        ModelAction::Run(at) => model.outcome(world, at).reply_text.clone(),
        ModelAction::Answer(at) | ModelAction::Abandon(at) | ModelAction::DropAbandoned(at) => {
            let (client, call) = world.calls[at];
            format!("of client {client}: {:?}", model.calls[call].stage)
        }
        ModelAction::Hear(at) | ModelAction::LoseMessage(at) => {
            format!("{:?}", world.messages[at])
        }
        _ => String::new(),
    };
    format!("{action:?} {about}")
}

fn beliefs(model: &LockModel, world: &ModelState) -> String {
    let mut text = String::new();
    for (at, client) in world.clients.iter().enumerate() {
        if let Some(belief) = ClientHold::of(&model.clients[*client]) {
            let mode = match belief.permits {
                0 if belief.writes => "writes".to_owned(),
                0 => "reads".to_owned(),
                permits => format!("has {permits} permits"),
            };
            let left = belief.ends.saturating_sub(SERVER_NOW);
            let _ = write!(text, " [client {at} believes that it {mode} for {left} ms]");
        }
    }
    text
}

/// The rows of all worlds, below their heading.
pub fn table<'a>(rows: impl Iterator<Item = &'a String>) -> String {
    const HEADING: &str = "| world | states | transitions | of these, faults | depth | seconds | scripts run | |\n\
                           | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    rows.fold(HEADING.to_owned(), |table, row| table + row + "\n")
}

impl SearchSummary {
    pub fn row(&self) -> String {
        let SearchSummary {
            name, states, transitions, depth, executed, requested_runs: asked, ..
        } = self;
        let took = self.took.as_secs_f64();
        let faults = FAULT_NAMES.iter().zip(&self.faults).filter(|(_, times)| **times > 0);
        let faults: Vec<String> = faults.map(|(fault, times)| format!("{times} {fault}")).collect();
        let faults = faults.join(", ");
        let how = match (&self.violation, self.is_complete) {
            (Some(Violation { what, steps, .. }), _) => {
                let rule = what.split(':').next().unwrap_or_default();
                format!("broken in {steps} steps: {rule}")
            }
            (None, true) => "closed".into(),
            (None, false) => "not closed: the bound was reached".into(),
        };
        format!(
            "| {name} | {states} | {transitions} | {faults} | {depth} | {took:.1} | {executed} of {asked} | {how} |"
        )
    }
}
