//! How time passes: for all clocks at the same moment, or for each clock by itself.

use crate::client::{ClientClock, ModelClient, can_wait_a_tick};
use crate::program::ModelFault;
use crate::time::{AgingVisitor, UNIT_MS};
use crate::world::actions::ModelAction;
use crate::world::{LockModel, ModelState};

/// The age of the oldest answer, in units: if all clocks advance together, and otherwise.
const OLDEST_ANSWER: u64 = 1;
const OLDEST_ANSWER_APART: u64 = 4;

/// The clocks that make a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ticking {
    All,
    Server,
    Client(usize),
}

impl LockModel {
    pub(super) fn actions_of_clocks(&self, world: &ModelState, actions: &mut Vec<ModelAction>) {
        if self.is_done(world) && world.lock == 0 {
            return;
        }
        let may_pass = world.fault_budget.has(ModelFault::Slow) || !self.is_urgent(world);
        let clients = 0..world.clients.len();
        if !self.plan.has_clocks_apart() {
            let in_time = clients.clone().all(|at| self.can_wait(world, at));
            actions.extend((may_pass && in_time).then_some(ModelAction::Tick));
        } else {
            let has_ticked = |at| self.clock(world, at).late < self.plan.late;
            let in_time = clients.clone().all(|at| !self.is_used(world, at) || has_ticked(at));
            actions.extend((may_pass && in_time).then_some(ModelAction::ServerTick));
        }
        for at in clients.filter(|at| self.is_used(world, *at)) {
            self.actions_of_clock(world, at, actions);
        }
    }

    fn actions_of_clock(&self, world: &ModelState, at: usize, actions: &mut Vec<ModelAction>) {
        let clock = self.clock(world, at);
        let may_differ = |fault| world.fault_budget.has(fault) && clock.exact_for == 0;
        if clock.late > 0 && may_differ(ModelFault::LoseTick) {
            actions.push(ModelAction::LoseTick(at));
        }
        if !self.can_wait(world, at) {
            return;
        }
        if clock.late > 0 {
            actions.push(ModelAction::ClientTick(at));
        }
        if may_differ(ModelFault::GainTick) {
            actions.push(ModelAction::GainTick(at));
        }
    }

    fn clock(&self, world: &ModelState, at: usize) -> ClientClock {
        self.client(world, at).clock
    }

    /// Whether the client has something left to do, for which its clock counts.
    fn is_used(&self, world: &ModelState, at: usize) -> bool {
        !self.client(world, at).is_done(&self.plan.programs[at])
    }

    /// Whether none of the client's calls ends before a tick of its clock.
    fn can_wait(&self, world: &ModelState, at: usize) -> bool {
        let mut own = world.calls.iter().filter(|(client, _)| usize::from(*client) == at);
        own.all(|(_, call)| can_wait_a_tick(&self.calls[*call]))
    }

    /// A client could act at once: if time passes, it is slow.
    pub fn is_urgent(&self, world: &ModelState) -> bool {
        let is_awaited = |call: u32| !self.calls[call].is_abandoned();
        let is_due = |client: &ModelClient| {
            let is_due = self.is_to_wake(client)
                || client.has_due_worker_timer()
                || client.must_send_keepalive();
            client.is_alive() && (is_due || !client.is_subscribed)
        };
        world.calls.iter().any(|(_, call)| is_awaited(*call))
            || !world.messages.is_empty()
            || world.clients.iter().any(|client| is_due(&self.clients[*client]))
    }

    /// Carries out an action of the clocks.
    pub(super) fn pass_time(&mut self, world: &mut ModelState, action: ModelAction) {
        match action {
            ModelAction::Tick => self.advance(world, Ticking::All),
            ModelAction::ServerTick => self.advance(world, Ticking::Server),
            ModelAction::ClientTick(at) | ModelAction::GainTick(at) => {
                self.advance(world, Ticking::Client(at));
            }
            _ => {}
        }
        for at in 0..world.clients.len() {
            let mut client = self.client(world, at).clone();
            client.clock = match self.is_used(world, at) {
                true => self.clock_after(client.clock, action, at),
                false => ClientClock::default(),
            };
            world.clients[at] = self.clients.number(client);
        }
    }

    /// The clock of a client after an action.
    fn clock_after(&self, clock: ClientClock, action: ModelAction, client: usize) -> ClientClock {
        let ClientClock { late, exact_for } = clock;
        let passed = exact_for.saturating_sub(1);
        let period = self.plan.tick_period;
        match action {
            ModelAction::Tick => ClientClock { late, exact_for: passed },
            ModelAction::ServerTick => ClientClock { late: late + 1, exact_for: passed },
            ModelAction::ClientTick(at) if at == client => {
                ClientClock { late: late - 1, exact_for }
            }
            ModelAction::LoseTick(at) if at == client => {
                ClientClock { late: late - 1, exact_for: period }
            }
            ModelAction::GainTick(at) if at == client => ClientClock { late, exact_for: period },
            _ => clock,
        }
    }

    fn advance(&mut self, world: &mut ModelState, ticking: Ticking) {
        let oldest = match self.plan.has_clocks_apart() {
            true => OLDEST_ANSWER_APART,
            false => OLDEST_ANSWER,
        };
        let server_ms = if matches!(ticking, Ticking::Client(_)) { 0 } else { UNIT_MS };
        let aging = |client: usize| AgingVisitor {
            local_ms: match ticking {
                Ticking::Server => 0,
                Ticking::Client(at) if at != client => 0,
                Ticking::Client(_) | Ticking::All => UNIT_MS,
            },
            server_ms,
            oldest_answer_ms: oldest * UNIT_MS,
        };
        if server_ms > 0 {
            let same: Vec<u8> = (0..world.clients.len() as u8).collect();
            world.lock = self.rewrite(world.lock, server_ms, &[], &same);
            world.replica = self.rewrite(world.replica, server_ms, &[], &same);
            world.messages.iter_mut().for_each(|message| message.age(server_ms));
        }
        for (at, number) in world.clients.iter_mut().enumerate() {
            let mut client = self.clients[*number].clone();
            client.grow_older(&mut aging(at));
            *number = self.clients.number(client);
        }
        for (client, number) in &mut world.calls {
            let mut call = self.calls[*number].clone();
            call.age(&mut aging(usize::from(*client)));
            *number = self.calls.number(call);
        }
    }
}
