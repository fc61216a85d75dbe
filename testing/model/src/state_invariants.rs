//! What must hold in every state: rules about the clients' beliefs and the server's record of them.

use rwlease_core::acquisition::AcquisitionState;

use crate::client::ModelClient;
use crate::program::{FaultBudget, LIMIT, ModelFault, ModelPlan};
use crate::time::{LOCAL_NOW, server_ms};
use crate::world::{LockModel, ModelState};
use oracle::history::{BELIEF_RULES, Belief, conflicts};
use oracle::{Holder, LockHash};
use rwlease::LockMode;

/// A client's belief that it holds.
#[derive(Clone, Copy, Debug)]
pub struct ClientHold {
    pub writes: bool,
    pub token: u64,
    /// The permits of a semaphore; 0 for a lock.
    pub permits: u64,
    /// The belief ends when the server's clock reads this.
    pub ends: u64,
    /// The token of its lease, which the server knows.
    granted: u64,
    /// The guard's own token may be another one that the lease owns.
    is_cached: bool,
}

impl ClientHold {
    pub fn of(client: &ModelClient) -> Option<ClientHold> {
        let Some(AcquisitionState::Held(holding)) = &client.state else { return None };
        let (ends, granted) = (server_ms(holding.deadline), holding.token);
        let permits = holding.permits().into();
        if holding.keepalive.is_some() {
            let hold = client.hold.as_ref().filter(|_| holding.is_held(LOCAL_NOW))?;
            let writes = hold.guard? == LockMode::Write;
            return Some(ClientHold {
                writes,
                token: hold.token,
                permits,
                ends,
                granted,
                is_cached: true,
            });
        }
        let writes = holding.visible_mode() == LockMode::Write;
        let belief =
            ClientHold { writes, token: granted, permits, ends, granted, is_cached: false };
        holding.is_held(LOCAL_NOW).then_some(belief)
    }
}

type StateInvariant = fn(&LockModel, &ModelState, &LockHash) -> Option<String>;

/// What must be true of clients that believe that they hold.
const STATE_INVARIANTS: [(&str, StateInvariant); 3] = [
    ("nobody overtakes a writer", newest_token_writes),
    ("who believes has a lease", every_holder_has_a_record),
    (RECALLS, recalled_leases_are_released),
];

pub const RECALLS: &str = "what is not used is given to who waits";

const NOTHING_LEFT: &str = "nothing is left behind";

pub fn names() -> impl Iterator<Item = &'static str> {
    let states = STATE_INVARIANTS.iter().map(|(name, _)| *name);
    states.chain(BELIEF_RULES).chain([NOTHING_LEFT])
}

/// The first rule that a state breaks, and how.
pub fn first_violation(model: &mut LockModel, world: &ModelState) -> Option<String> {
    let view = model.view(world.lock);
    if model.is_done(world) {
        let must = model.judges(NOTHING_LEFT) && must_clean_up(model, world);
        let left = leftover(&view).filter(|_| must);
        return left.map(|what| format!("{NOTHING_LEFT}: {what}"));
    }
    if world.lost_history {
        return None; // two histories: only tokens tell them apart
    }
    let beliefs: Vec<_> = client_holds(model, world).collect();
    let holds = beliefs.iter().enumerate().map(|(id, (_, hold))| Belief {
        id,
        lock: 0,
        writes: hold.writes,
        permits: hold.permits,
    });
    let conflicts = conflicts(&Vec::from_iter(holds), LIMIT.into());
    if let Some((name, _)) = conflicts.iter().find(|(name, _)| model.judges(name)) {
        return Some(format!("{name}: {beliefs:?}"));
    }
    let mut rules = STATE_INVARIANTS.iter().filter(|(name, _)| model.judges(name));
    rules.find_map(|(name, rule)| Some(format!("{name}: {}", rule(model, world, &view)?)))
}

/// All beliefs, without those that a forced release has made wrong.
fn client_holds(
    model: &LockModel,
    world: &ModelState,
) -> impl Iterator<Item = (String, ClientHold)> {
    (0..world.clients.len()).filter_map(move |at| {
        let client = model.client(world, at);
        let belief =
            ClientHold::of(client).filter(|belief| belief.granted > world.force_released_up_to)?;
        Some((model.id(at, client.step), belief))
    })
}

/// Whether nothing may be left. Otherwise the lease ends what is left: a client that died releases
/// nothing, and a release can be lost with the history. A worker that is stopped for longer than
/// the lease, or whose clock gains as much, gives up what it has not sent, and a late renewal may
/// have made the lease longer meanwhile.
fn must_clean_up(model: &LockModel, world: &ModelState) -> bool {
    let ModelPlan { budget, lease, tick_period, .. } = &model.plan;
    let crashes = |budget: &FaultBudget| budget.left(ModelFault::Crash);
    let no_crash = crashes(&world.fault_budget) == crashes(budget);
    let gained = if *tick_period > 0 { 0 } else { budget.left(ModelFault::GainTick).into() };
    let missed = u32::from(budget.left(ModelFault::Slow)) + gained;
    no_crash && !world.lost_history && missed <= *lease
}

fn leftover(view: &LockHash) -> Option<String> {
    let holder = view.holders().map(|holder| format!("{holder:?}")).next();
    holder.or_else(|| view.living_waiters().map(|waiter| format!("{waiter:?}")).next())
}

fn every_holder_has_a_record(
    model: &LockModel,
    world: &ModelState,
    view: &LockHash,
) -> Option<String> {
    client_holds(model, world).find_map(|(id, belief)| {
        let found = view.holder(&id);
        let owned = if belief.is_cached { view.number("fence") } else { 0 };
        let is_backed = |record: &Holder| {
            record.deadline >= belief.ends
                && record.token.max(owned) >= belief.token
                && (record.writes || !belief.writes)
                && record.permits >= belief.permits
        };
        (!found.is_some_and(is_backed)).then(|| format!("{id} {belief:?}, {found:?}"))
    })
}

/// The writer's own late call may have been granted again, with a newer token, but no more than
/// that.
fn newest_token_writes(model: &LockModel, world: &ModelState, view: &LockHash) -> Option<String> {
    client_holds(model, world).filter(|(_, belief)| belief.writes).find_map(|(id, belief)| {
        let own = view.holder(&id).map_or(belief.token, |record| match belief.is_cached {
            true if record.writes => view.number("fence"),
            _ => record.token,
        });
        (world.newest > own.max(belief.token))
            .then(|| format!("{id} {belief:?}, and {} was given", world.newest))
    })
}

/// Judged only where nothing is due and no message was lost.
fn recalled_leases_are_released(
    model: &LockModel,
    world: &ModelState,
    view: &LockHash,
) -> Option<String> {
    let losses = [ModelFault::LoseMessage, ModelFault::Move, ModelFault::FailOver];
    let can_be_lost = |budget: &FaultBudget| losses.map(|fault| budget.left(fault));
    let was_lost = can_be_lost(&world.fault_budget) != can_be_lost(&model.plan.budget);
    if was_lost || model.is_urgent(world) {
        return None;
    }
    let is_blocked = |by: &Holder| {
        let mut waiters = view.living_waiters();
        waiters.find(|waiter| by.writes || waiter.mode == 'w').map(|waiter| waiter.id.clone())
    };
    (0..world.clients.len()).find_map(|at| {
        let client = model.client(world, at);
        let id = model.id(at, client.step);
        let record = view.holder(&id).filter(|_| client.is_idle_without_recall())?;
        is_blocked(record).map(|waiter| format!("{id} keeps it from {waiter}"))
    })
}
