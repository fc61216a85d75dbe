//! Prints a history in words, and the table of the searched worlds.

use std::fmt::Write;

use crate::checker::call::{ModelCall, ModelMessageKind};
use crate::checker::search::SearchSummary;
use crate::checker::state_invariants::ClientHold;
use crate::checker::time::SERVER_NOW;
use crate::checker::world::{FAULT_NAMES, LockModel, ModelAction, ModelState};

/// The steps of a history, with the beliefs after each.
pub(super) fn history(model: &mut LockModel, actions: &[u16]) -> String {
    // The search reorders equal clients in each state. Here each client keeps its letter.
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

/// A, B and C.
fn letter(client: usize) -> char {
    char::from(b'A' + client as u8)
}

fn describe(model: &mut LockModel, world: &ModelState, action: ModelAction) -> String {
    let call = |at: usize| {
        let (client, call) = world.calls[at];
        let call: &ModelCall = &model.calls[call];
        let name = call.request().map_or("call", |request| request.name());
        format!("{name} of {}", letter(usize::from(client)))
    };
    let message = |at: usize| letter(usize::from(world.messages[at].client));
    match action {
        ModelAction::Tick => "ten seconds pass".into(),
        ModelAction::Start(at) => format!("{} begins to acquire the lock", letter(at)),
        ModelAction::Run(at) => {
            let name = call(at);
            format!("the server carries out the {name}: {}", model.outcome(world, at).reply_text)
        }
        ModelAction::Answer(at) => format!("the answer to the {} comes", call(at)),
        ModelAction::Abandon(at) => {
            format!("the {} comes to no answer, and may still arrive", call(at))
        }
        ModelAction::DropAbandoned(at) => format!("the {} never arrives", call(at)),
        ModelAction::Hear(at) => match world.messages[at].about {
            ModelMessageKind::Grant => format!("{} hears of its grant", message(at)),
            ModelMessageKind::End => {
                format!("{} hears that its lease was ended by force", message(at))
            }
            _ => format!("{} hears that somebody wants the lock", message(at)),
        },
        ModelAction::LoseMessage(at) => format!("the message to {} is lost", message(at)),
        ModelAction::Wake(at) => format!("{} polls", letter(at)),
        ModelAction::Look(at) => format!("the worker of {} looks at it", letter(at)),
        ModelAction::Cancel(at) => format!("{} drops its request", letter(at)),
        ModelAction::Drop(at) => format!("{} drops its guard", letter(at)),
        ModelAction::Change(at) => format!("{} begins to change its lease", letter(at)),
        ModelAction::Join(at) => format!("{} subscribes", letter(at)),
        ModelAction::GiveBack(at) => format!("{} releases its lease by a call", letter(at)),
        ModelAction::Use(at, mode) => {
            format!("a guard to {mode:?} comes out of what {} has cached", letter(at))
        }
        ModelAction::Leave(at) => format!("the guard of {} is dropped", letter(at)),
        ModelAction::Contact(at) => format!("{} asks whether somebody wants the lock", letter(at)),
        ModelAction::Crash(at) => format!("{} dies", letter(at)),
        ModelAction::FailOver => "a replica takes over that lacks the last write".into(),
        ModelAction::Move => "another server has the lock, and lacks nothing".into(),
        ModelAction::Revoke => "somebody else sends revoke".into(),
        ModelAction::Force => "somebody else sends force_release".into(),
    }
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
            let _ = write!(text, " [{} believes that it {mode} for {left} ms]", letter(at));
        }
    }
    text
}

/// The rows of all worlds, below their heading.
pub(super) fn table<'a>(rows: impl Iterator<Item = &'a String>) -> String {
    const HEADING: &str = "| world | states | transitions | of these, faults | depth | seconds | scripts run | |\n\
                           | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    rows.fold(HEADING.to_owned(), |table, row| table + row + "\n")
}

impl SearchSummary {
    pub(super) fn row(&self) -> String {
        let SearchSummary {
            name, states, transitions, depth, executed, requested_runs: asked, ..
        } = self;
        let took = self.took.as_secs_f64();
        let faults = FAULT_NAMES.iter().zip(&self.faults).filter(|(_, times)| **times > 0);
        let faults: Vec<String> = faults.map(|(fault, times)| format!("{times} {fault}")).collect();
        let faults = faults.join(", ");
        let how = match (&self.violation, self.is_complete) {
            (Some(violation), _) => format!("BROKEN: {}", violation.what),
            (None, true) => "closed".into(),
            (None, false) => "not closed: the bound was reached".into(),
        };
        format!(
            "| {name} | {states} | {transitions} | {faults} | {depth} | {took:.1} | {executed} of {asked} | {how} |"
        )
    }
}
