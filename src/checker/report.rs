//! Prints a history in words, and the table of the searched worlds.

use std::fmt::Write;

use crate::checker::beliefs::Belief;
use crate::checker::call::{About, Call};
use crate::checker::search::Summary;
use crate::checker::time::SERVER_NOW;
use crate::checker::world::{Action, FAULTS, Model, World};

/// The steps of a history, with the beliefs after each.
pub(super) fn history(model: &mut Model, actions: &[u16]) -> String {
    // The search reorders equal clients in each state. Here each client keeps its letter.
    let (mut searched, mut world) = (model.first(), model.first());
    let mut text = String::new();
    for (at, number) in actions.iter().enumerate() {
        let action = model.actions(&searched)[usize::from(*number)];
        let wanted = model.apply(&searched, action).map(|next| model.canonical(next));
        let action = same_action(model, &world, &wanted).unwrap_or(action);
        let _ = write!(text, "{:>4}. {}", at + 1, in_words(model, &world, action));
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
fn same_action(model: &mut Model, world: &World, wanted: &Result<World, String>) -> Option<Action> {
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

fn in_words(model: &mut Model, world: &World, action: Action) -> String {
    let call = |at: usize| {
        let (client, call) = world.calls[at];
        let call: &Call = &model.calls[call];
        let name = call.request().map_or("call", |request| request.name());
        format!("{name} of {}", letter(usize::from(client)))
    };
    let message = |at: usize| letter(usize::from(world.messages[at].client));
    match action {
        Action::Tick => "ten seconds pass".into(),
        Action::Start(at) => format!("{} begins to acquire the lock", letter(at)),
        Action::Run(at) => {
            let name = call(at);
            format!("the server carries out the {name}: {}", model.outcome(world, at).said)
        }
        Action::Answer(at) => format!("the answer to the {} comes", call(at)),
        Action::Abandon(at) => format!("the {} comes to no answer, and may still arrive", call(at)),
        Action::Vanish(at) => format!("the {} never arrives", call(at)),
        Action::Hear(at) => match world.messages[at].about {
            About::Grant => format!("{} hears of its grant", message(at)),
            About::End => format!("{} hears that its lease was ended by force", message(at)),
            _ => format!("{} hears that somebody wants the lock", message(at)),
        },
        Action::LoseMessage(at) => format!("the message to {} is lost", message(at)),
        Action::Wake(at) => format!("{} polls", letter(at)),
        Action::Look(at) => format!("the worker of {} looks at it", letter(at)),
        Action::Cancel(at) => format!("{} drops its request", letter(at)),
        Action::Drop(at) => format!("{} drops its guard", letter(at)),
        Action::Change(at) => format!("{} begins to change its lease", letter(at)),
        Action::Join(at) => format!("{} subscribes", letter(at)),
        Action::GiveBack(at) => format!("{} releases its lease by a call", letter(at)),
        Action::Use(at, mode) => {
            format!("a guard to {mode:?} comes out of what {} has cached", letter(at))
        }
        Action::Leave(at) => format!("the guard of {} is dropped", letter(at)),
        Action::Contact(at) => format!("{} asks whether somebody wants the lock", letter(at)),
        Action::Crash(at) => format!("{} dies", letter(at)),
        Action::FailOver => "a replica takes over that lacks the last write".into(),
        Action::Move => "another server has the lock, and lacks nothing".into(),
        Action::Revoke => "somebody else sends revoke".into(),
        Action::Force => "somebody else sends force_release".into(),
    }
}

fn beliefs(model: &Model, world: &World) -> String {
    let mut text = String::new();
    for (at, client) in world.clients.iter().enumerate() {
        if let Some(belief) = Belief::of(&model.clients[*client]) {
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

impl Summary {
    pub(super) fn row(&self) -> String {
        let Summary { name, states, transitions, depth, executed, asked, .. } = self;
        let took = self.took.as_secs_f64();
        let faults = FAULTS.iter().zip(&self.faults).filter(|(_, times)| **times > 0);
        let faults: Vec<String> = faults.map(|(fault, times)| format!("{times} {fault}")).collect();
        let faults = faults.join(", ");
        let how = match (&self.violation, self.closed) {
            (Some(violation), _) => format!("BROKEN: {}", violation.what),
            (None, true) => "closed".into(),
            (None, false) => "not closed: the bound was reached".into(),
        };
        format!(
            "| {name} | {states} | {transitions} | {faults} | {depth} | {took:.1} | {executed} of {asked} | {how} |"
        )
    }
}
