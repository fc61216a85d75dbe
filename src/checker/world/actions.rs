//! The actions that are possible in a state.

use crate::checker::call::{Call, Stage};
use crate::checker::client::{Client, ClientFault, may_wait_a_unit};
use crate::checker::world::{Model, World};
use crate::protocol::Mode;

/// The possible actions. Their numbers are those of clients, calls and messages in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::checker) enum Action {
    Tick,
    Start(usize),
    /// The server runs a call.
    Run(usize),
    Answer(usize),
    Abandon(usize),
    /// An abandoned call does not arrive.
    Vanish(usize),
    Hear(usize),
    LoseMessage(usize),
    Wake(usize),
    Look(usize),
    Cancel(usize),
    Drop(usize),
    Change(usize),
    Join(usize),
    GiveBack(usize),
    /// A cached lease makes a guard.
    Use(usize, Mode),
    Leave(usize),
    Contact(usize),
    Crash(usize),
    FailOver,
    Move,
    Revoke,
    Force,
}

/// The actions that use up a budget.
pub(in crate::checker) const FAULTS: [&str; 9] = [
    "abandoned",
    "lost messages",
    "cancelled",
    "crashes",
    "failovers",
    "moves",
    "revoked",
    "forced",
    "slow",
];

impl Model {
    pub(in crate::checker) fn actions(&self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        for (at, (_, call)) in world.calls.iter().enumerate() {
            self.actions_of_call(world, at, &self.calls[*call], &mut actions);
        }
        for at in 0..world.messages.len() {
            actions.push(Action::Hear(at));
            if world.left.lost_messages > 0 {
                actions.push(Action::LoseMessage(at));
            }
        }
        for at in 0..world.clients.len() {
            self.actions_of_client(world, at, &mut actions);
        }
        if world.left.failovers > 0 {
            actions.push(Action::FailOver);
        }
        if world.left.moves > 0 {
            actions.push(Action::Move);
        }
        if world.left.revoked > 0 && world.newest > 0 {
            actions.push(Action::Revoke);
        }
        if world.left.forced > 0 && world.newest > 0 {
            actions.push(Action::Force);
        }
        if self.may_tick(world) {
            actions.push(Action::Tick);
        }
        actions
    }

    fn actions_of_call(&self, world: &World, at: usize, call: &Call, actions: &mut Vec<Action>) {
        match &call.stage {
            Stage::Sent(_) => actions.push(Action::Run(at)),
            Stage::Abandoned(_) => actions.extend([Action::Run(at), Action::Vanish(at)]),
            Stage::Answered(..) => actions.push(Action::Answer(at)),
        }
        if world.left.abandoned > 0 && !call.is_abandoned() {
            actions.push(Action::Abandon(at));
        }
    }

    fn actions_of_client(&self, world: &World, at: usize, actions: &mut Vec<Action>) {
        let (client, program) = (self.client(world, at), self.plan.programs[at]);
        if !client.is_alive() {
            return;
        }
        if client.may_start(program) {
            actions.push(Action::Start(at));
        }
        if self.is_to_wake(client) {
            actions.push(Action::Wake(at));
        }
        if client.is_to_look() {
            actions.push(Action::Look(at));
        }
        if client.may_cancel() && world.left.cancelled > 0 {
            actions.push(Action::Cancel(at));
        }
        if client.may_drop() {
            actions.push(Action::Drop(at));
        }
        if client.may_give_back(program) {
            actions.push(Action::GiveBack(at));
        }
        if client.next_change(program).is_some() {
            actions.push(Action::Change(at));
        }
        for mode in [Mode::Read, Mode::Write] {
            if client.may_use(mode) {
                actions.push(Action::Use(at, mode));
            }
        }
        if client.may_leave() {
            actions.push(Action::Leave(at));
        }
        if client.is_to_contact() {
            actions.push(Action::Contact(at));
        }
        if !client.hears {
            actions.push(Action::Join(at));
        }
        if client.state.is_some() && world.left.crashes > 0 {
            actions.push(Action::Crash(at));
        }
    }

    fn is_to_wake(&self, client: &Client) -> bool {
        client.is_to_wake() && self.fault != Some(ClientFault::NeverPolls)
    }

    /// The index in `FAULTS` of an action that is a fault.
    pub(in crate::checker) fn fault_of(&self, world: &World, action: Action) -> Option<usize> {
        let name = match action {
            Action::Abandon(_) => "abandoned",
            Action::LoseMessage(_) => "lost messages",
            Action::Cancel(_) => "cancelled",
            Action::Crash(_) => "crashes",
            Action::FailOver => "failovers",
            Action::Move => "moves",
            Action::Revoke => "revoked",
            Action::Force => "forced",
            Action::Tick if self.is_urgent(world) => "slow",
            _ => return None,
        };
        FAULTS.iter().position(|fault| *fault == name)
    }

    fn may_tick(&self, world: &World) -> bool {
        let in_time = world.calls.iter().all(|(_, call)| may_wait_a_unit(&self.calls[*call]));
        let is_over = self.is_done(world) && world.lock == 0;
        in_time && !is_over && (world.left.slow > 0 || !self.is_urgent(world))
    }

    /// A client could act at once: if time passes, it is slow.
    pub(in crate::checker) fn is_urgent(&self, world: &World) -> bool {
        let is_awaited = |call: u32| !self.calls[call].is_abandoned();
        let is_due = |client: &Client| {
            let is_due = self.is_to_wake(client) || client.is_to_look() || client.is_to_contact();
            client.is_alive() && (is_due || !client.hears)
        };
        world.calls.iter().any(|(_, call)| is_awaited(*call))
            || !world.messages.is_empty()
            || world.clients.iter().any(|client| is_due(&self.clients[*client]))
    }

    /// All programs have finished, and nothing is under way.
    pub(in crate::checker) fn is_done(&self, world: &World) -> bool {
        let clients = world.clients.iter().zip(self.plan.programs);
        let is_done = |(client, program): (&u32, &&[_])| self.clients[*client].is_done(program);
        world.calls.is_empty() && world.messages.is_empty() && clients.into_iter().all(is_done)
    }
}
