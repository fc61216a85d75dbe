//! The actions that are possible in a state.

use crate::checker::call::{CallStage, ModelCall};
use crate::checker::client::{ClientFault, ModelClient, can_wait_a_tick};
use crate::checker::world::{LockModel, ModelState};
use crate::protocol::LockMode;

/// The possible actions. Their numbers are those of clients, calls and messages in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::checker) enum ModelAction {
    Tick,
    Start(usize),
    /// The server runs a call.
    Run(usize),
    Answer(usize),
    Abandon(usize),
    /// An abandoned call does not arrive.
    DropAbandoned(usize),
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
    Use(usize, LockMode),
    Leave(usize),
    Contact(usize),
    Crash(usize),
    FailOver,
    Move,
    Revoke,
    Force,
}

/// The actions that use up a budget.
pub(in crate::checker) const FAULT_NAMES: [&str; 9] = [
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

impl LockModel {
    pub(in crate::checker) fn actions(&self, world: &ModelState) -> Vec<ModelAction> {
        let mut actions = Vec::new();
        for (at, (_, call)) in world.calls.iter().enumerate() {
            self.actions_of_call(world, at, &self.calls[*call], &mut actions);
        }
        for at in 0..world.messages.len() {
            actions.push(ModelAction::Hear(at));
            if world.fault_budget.lost_messages > 0 {
                actions.push(ModelAction::LoseMessage(at));
            }
        }
        for at in 0..world.clients.len() {
            self.actions_of_client(world, at, &mut actions);
        }
        if world.fault_budget.failovers > 0 {
            actions.push(ModelAction::FailOver);
        }
        if world.fault_budget.moves > 0 {
            actions.push(ModelAction::Move);
        }
        if world.fault_budget.revoked > 0 && world.newest > 0 {
            actions.push(ModelAction::Revoke);
        }
        if world.fault_budget.forced > 0 && world.newest > 0 {
            actions.push(ModelAction::Force);
        }
        if self.may_tick(world) {
            actions.push(ModelAction::Tick);
        }
        actions
    }

    fn actions_of_call(
        &self,
        world: &ModelState,
        at: usize,
        call: &ModelCall,
        actions: &mut Vec<ModelAction>,
    ) {
        match &call.stage {
            CallStage::Sent(_) => actions.push(ModelAction::Run(at)),
            CallStage::Abandoned(_) => {
                actions.extend([ModelAction::Run(at), ModelAction::DropAbandoned(at)])
            }
            CallStage::Answered(..) => actions.push(ModelAction::Answer(at)),
        }
        if world.fault_budget.abandoned > 0 && !call.is_abandoned() {
            actions.push(ModelAction::Abandon(at));
        }
    }

    fn actions_of_client(&self, world: &ModelState, at: usize, actions: &mut Vec<ModelAction>) {
        let (client, program) = (self.client(world, at), self.plan.programs[at]);
        if !client.is_alive() {
            return;
        }
        if client.may_start(program) {
            actions.push(ModelAction::Start(at));
        }
        if self.is_to_wake(client) {
            actions.push(ModelAction::Wake(at));
        }
        if client.has_due_worker_timer() {
            actions.push(ModelAction::Look(at));
        }
        if client.may_cancel() && world.fault_budget.cancelled > 0 {
            actions.push(ModelAction::Cancel(at));
        }
        if client.may_drop() {
            actions.push(ModelAction::Drop(at));
        }
        if client.can_release_by_call(program) {
            actions.push(ModelAction::GiveBack(at));
        }
        if client.next_change(program).is_some() {
            actions.push(ModelAction::Change(at));
        }
        for mode in [LockMode::Read, LockMode::Write] {
            if client.may_use(mode) {
                actions.push(ModelAction::Use(at, mode));
            }
        }
        if client.may_leave() {
            actions.push(ModelAction::Leave(at));
        }
        if client.must_send_keepalive() {
            actions.push(ModelAction::Contact(at));
        }
        if !client.is_subscribed {
            actions.push(ModelAction::Join(at));
        }
        if client.state.is_some() && world.fault_budget.crashes > 0 {
            actions.push(ModelAction::Crash(at));
        }
    }

    fn is_to_wake(&self, client: &ModelClient) -> bool {
        client.must_wake() && self.fault != Some(ClientFault::NeverPolls)
    }

    /// The index in `FAULTS` of an action that is a fault.
    pub(in crate::checker) fn fault_of(
        &self,
        world: &ModelState,
        action: ModelAction,
    ) -> Option<usize> {
        let name = match action {
            ModelAction::Abandon(_) => "abandoned",
            ModelAction::LoseMessage(_) => "lost messages",
            ModelAction::Cancel(_) => "cancelled",
            ModelAction::Crash(_) => "crashes",
            ModelAction::FailOver => "failovers",
            ModelAction::Move => "moves",
            ModelAction::Revoke => "revoked",
            ModelAction::Force => "forced",
            ModelAction::Tick if self.is_urgent(world) => "slow",
            _ => return None,
        };
        FAULT_NAMES.iter().position(|fault| *fault == name)
    }

    fn may_tick(&self, world: &ModelState) -> bool {
        let in_time = world.calls.iter().all(|(_, call)| can_wait_a_tick(&self.calls[*call]));
        let is_over = self.is_done(world) && world.lock == 0;
        in_time && !is_over && (world.fault_budget.slow > 0 || !self.is_urgent(world))
    }

    /// A client could act at once: if time passes, it is slow.
    pub(in crate::checker) fn is_urgent(&self, world: &ModelState) -> bool {
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

    /// All programs have finished, and nothing is under way.
    pub(in crate::checker) fn is_done(&self, world: &ModelState) -> bool {
        let clients = world.clients.iter().zip(self.plan.programs);
        let is_done = |(client, program): (&u32, &&[_])| self.clients[*client].is_done(program);
        world.calls.is_empty() && world.messages.is_empty() && clients.into_iter().all(is_done)
    }
}
