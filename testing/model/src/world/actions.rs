//! The actions that are possible in a state.

use crate::call::{CallStage, ModelCall};
use crate::client::{ClientFault, ModelClient, can_wait_a_tick};
use crate::program::ModelFault;
use crate::world::{LockModel, ModelState};
use rwlease::LockMode;

/// The possible actions. Their numbers are those of clients, calls and messages in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAction {
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

impl LockModel {
    pub fn actions(&self, world: &ModelState) -> Vec<ModelAction> {
        let mut actions = Vec::new();
        for (at, (_, call)) in world.calls.iter().enumerate() {
            self.actions_of_call(world, at, &self.calls[*call], &mut actions);
        }
        for at in 0..world.messages.len() {
            actions.push(ModelAction::Hear(at));
            if world.fault_budget.has(ModelFault::LoseMessage) {
                actions.push(ModelAction::LoseMessage(at));
            }
        }
        for at in 0..world.clients.len() {
            self.actions_of_client(world, at, &mut actions);
        }
        if world.fault_budget.has(ModelFault::FailOver) {
            actions.push(ModelAction::FailOver);
        }
        if world.fault_budget.has(ModelFault::Move) {
            actions.push(ModelAction::Move);
        }
        if world.fault_budget.has(ModelFault::Revoke) && world.newest > 0 {
            actions.push(ModelAction::Revoke);
        }
        if world.fault_budget.has(ModelFault::Force) && world.newest > 0 {
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
        if world.fault_budget.has(ModelFault::Abandon) && !call.is_abandoned() {
            actions.push(ModelAction::Abandon(at));
        }
    }

    fn actions_of_client(&self, world: &ModelState, at: usize, actions: &mut Vec<ModelAction>) {
        let (client, program) = (self.client(world, at), &self.plan.programs[at]);
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
        if client.may_cancel() && world.fault_budget.has(ModelFault::Cancel) {
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
        if client.state.is_some() && world.fault_budget.has(ModelFault::Crash) {
            actions.push(ModelAction::Crash(at));
        }
    }

    fn is_to_wake(&self, client: &ModelClient) -> bool {
        client.must_wake() && self.fault != Some(ClientFault::NeverPolls)
    }

    /// The fault that an action is, if it is one.
    pub fn fault_of(&self, world: &ModelState, action: ModelAction) -> Option<ModelFault> {
        Some(match action {
            ModelAction::Abandon(_) => ModelFault::Abandon,
            ModelAction::LoseMessage(_) => ModelFault::LoseMessage,
            ModelAction::Cancel(_) => ModelFault::Cancel,
            ModelAction::Crash(_) => ModelFault::Crash,
            ModelAction::FailOver => ModelFault::FailOver,
            ModelAction::Move => ModelFault::Move,
            ModelAction::Revoke => ModelFault::Revoke,
            ModelAction::Force => ModelFault::Force,
            ModelAction::Tick if self.is_urgent(world) => ModelFault::Slow,
            _ => return None,
        })
    }

    fn may_tick(&self, world: &ModelState) -> bool {
        let in_time = world.calls.iter().all(|(_, call)| can_wait_a_tick(&self.calls[*call]));
        let is_over = self.is_done(world) && world.lock == 0;
        in_time && !is_over && (world.fault_budget.has(ModelFault::Slow) || !self.is_urgent(world))
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

    /// All programs have finished, and nothing is under way.
    pub fn is_done(&self, world: &ModelState) -> bool {
        let clients = world.clients.iter().zip(&self.plan.programs);
        let is_done = |(client, program): (&u32, &Vec<_>)| self.clients[*client].is_done(program);
        world.calls.is_empty() && world.messages.is_empty() && clients.into_iter().all(is_done)
    }
}
