//! The actions that are possible in a state.

use crate::call::{CallStage, ModelCall};
use crate::client::{ClientFault, ModelClient};
use crate::program::ModelFault;
use crate::world::{LockModel, ModelState};
use rwlease::LockMode;

/// The possible actions. Their numbers are those of clients, calls and messages in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAction {
    /// All clocks advance.
    Tick,
    /// The server's clock advances, and those of the clients are late.
    ServerTick,
    /// A client's clock makes a tick that is late.
    ClientTick(usize),
    /// A client's clock does not make a tick that is late.
    LoseTick(usize),
    /// A client's clock makes a tick that is not due.
    GainTick(usize),
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
        self.actions_of_clocks(world, &mut actions);
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

    pub(super) fn is_to_wake(&self, client: &ModelClient) -> bool {
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
            ModelAction::Tick | ModelAction::ServerTick if self.is_urgent(world) => {
                ModelFault::Slow
            }
            ModelAction::LoseTick(_) => ModelFault::LoseTick,
            ModelAction::GainTick(_) => ModelFault::GainTick,
            _ => return None,
        })
    }

    /// All programs have finished, and nothing is under way.
    pub fn is_done(&self, world: &ModelState) -> bool {
        let clients = world.clients.iter().zip(&self.plan.programs);
        let is_done = |(client, program): (&u32, &Vec<_>)| self.clients[*client].is_done(program);
        world.calls.is_empty() && world.messages.is_empty() && clients.into_iter().all(is_done)
    }
}
