//! What must be so in every state: what clients believe, and the server's record of it.

use crate::checker::client::Client;
use crate::checker::program::Plan;
use crate::checker::time::{NOW, server_ms};
use crate::checker::view::View;
use crate::checker::world::{Model, World};
use crate::client::acquisition::{State, Transition};
use crate::protocol::Mode;

/// A client believes that it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    pub(super) writes: bool,
    pub(super) token: u64,
    /// Until the server's clock reads this.
    pub(super) ends: u64,
}

impl Belief {
    pub(super) fn of(client: &Client) -> Option<Belief> {
        let Some(State::Held(holding)) = &client.state else { return None };
        // The guard of a write is gone when its downgrade is asked for.
        let writes =
            holding.mode == Mode::Write && holding.pending() != Some(Transition::Downgrade);
        let ends = server_ms(holding.ends);
        holding.is_held(NOW).then_some(Belief { writes, token: holding.token, ends })
    }
}

/// The first rule that a state breaks, and how.
pub(super) fn broken(model: &mut Model, world: &World) -> Option<String> {
    let view = model.view(world.lock);
    let view = match &*view {
        Ok(view) => view,
        Err(malformed) => return Some(malformed.clone()),
    };
    if model.is_done(world) {
        let left = something_left(view).filter(|_| must_leave_nothing(model, world));
        return left.map(|what| format!("nothing is left behind: {what}"));
    }
    if world.lost_history {
        return None; // two histories: tokens alone tell them apart
    }
    each_has_a_lease(model, world, view).or_else(|| exclusion(model, world))
}

/// Else the lease ends what is left. A client that died releases nothing, and a release can be lost
/// with the history. A worker that is stopped for longer than the lease gives up what it has not sent,
/// and meanwhile a late renewal may have made the lease longer.
fn must_leave_nothing(model: &Model, world: &World) -> bool {
    let Plan { budget, lease, .. } = &model.plan;
    let no_crash = world.left.crashes == budget.crashes;
    no_crash && !world.lost_history && u32::from(budget.slow) <= *lease
}

fn something_left(view: &View) -> Option<String> {
    let holder = view.holders().map(|(id, _)| format!("{id} holds")).next();
    holder.or_else(|| view.living_waiters().map(|(id, _)| format!("{id} waits")).next())
}

fn each_has_a_lease(model: &Model, world: &World, view: &View) -> Option<String> {
    (0..world.clients.len()).find_map(|at| {
        let client = model.client(world, at);
        let belief = Belief::of(client)?;
        let id = model.id(at, client.at);
        let record = view.holder(&id).filter(|record| {
            record.deadline >= belief.ends
                && record.token >= belief.token
                && (record.writes || !belief.writes)
        });
        let found = view.holder(&id);
        record.is_none().then(|| format!("who believes has a lease: {id} {belief:?}, {found:?}"))
    })
}

fn exclusion(model: &Model, world: &World) -> Option<String> {
    let beliefs = world.clients.iter().filter_map(|client| Belief::of(&model.clients[*client]));
    let beliefs: Vec<Belief> = beliefs.collect();
    (beliefs.len() > 1 && beliefs.iter().any(|belief| belief.writes))
        .then(|| format!("a writer believes alone: {beliefs:?}"))
}
