//! The results of actions.

use rwlease_core::time::LocalInstant;

use crate::call::{CallAnswer, CallRequest, CallStage, ModelCall};
use crate::client::{CallKind, ClientEnvironment, ClientTurn};
use crate::program::ModelFault;
use crate::time::{LOCAL_NOW, UNIT};
use crate::world::actions::ModelAction;
use crate::world::{LockModel, ModelState};
use rwlease::LockMode;

pub const GUARDS: &str = "the tokens of guards rise";

/// The index of the acquisition of a call without one: `grant_waiters`, or a call of somebody else.
/// No client has so many.
const OUTSIDER: u8 = 9;

impl LockModel {
    /// The state after an action, or what is wrong with the step.
    pub fn apply(&mut self, world: &ModelState, action: ModelAction) -> Result<ModelState, String> {
        let mut next = world.clone();
        if let Some(fault) = self.fault_of(world, action) {
            next.fault_budget.spend(fault);
        }
        match action {
            ModelAction::Tick
            | ModelAction::ServerTick
            | ModelAction::ClientTick(_)
            | ModelAction::LoseTick(_)
            | ModelAction::GainTick(_) => self.pass_time(&mut next, action),
            ModelAction::Start(at) => self.turn(&mut next, at, |turn| turn.start()),
            ModelAction::Run(at) => self.run(&mut next, at)?,
            ModelAction::Answer(at) => self.answer(&mut next, at),
            ModelAction::Abandon(at) => self.abandon(&mut next, at),
            ModelAction::DropAbandoned(at) => drop(next.calls.remove(at)),
            ModelAction::Hear(at) => {
                let message = next.messages.remove(at);
                let at = usize::from(message.client);
                let is_over = self.client(world, at).step != message.acquisition;
                self.turn(&mut next, at, |turn| turn.on_message(&message, is_over));
            }
            ModelAction::LoseMessage(at) => drop(next.messages.remove(at)),
            ModelAction::Wake(at) => self.turn(&mut next, at, |turn| turn.wake()),
            ModelAction::Look(at) => self.turn(&mut next, at, |turn| turn.look()),
            ModelAction::Cancel(at) => {
                self.let_go(&mut next, at, |call| CallKind::of(call) == CallKind::Acquire);
                self.turn(&mut next, at, |turn| turn.cancel());
            }
            ModelAction::Drop(at) => self.turn(&mut next, at, |turn| turn.drop_guard()),
            ModelAction::Change(at) => {
                let change = self.client(world, at).next_change(&self.plan.programs[at]);
                self.turn(&mut next, at, |turn| turn.change(change.unwrap()));
            }
            ModelAction::Join(at) => self.turn(&mut next, at, |turn| turn.join()),
            ModelAction::GiveBack(at) => self.turn(&mut next, at, |turn| turn.release_by_call()),
            ModelAction::Use(at, mode) => self.turn(&mut next, at, |turn| turn.enter(mode)),
            ModelAction::Leave(at) => self.turn(&mut next, at, |turn| turn.leave()),
            ModelAction::Contact(at) => self.turn(&mut next, at, |turn| turn.keepalive()),
            ModelAction::Crash(at) => self.crash(&mut next, at),
            ModelAction::Revoke => {
                self.call_from_outsider(&mut next, CallRequest::Revoke(world.newest));
            }
            ModelAction::Force => {
                self.call_from_outsider(&mut next, CallRequest::Force(world.newest));
            }
            ModelAction::FailOver => {
                (next.lock, next.lost_history) = (next.replica, true);
                self.serve_elsewhere(&mut next);
            }
            ModelAction::Move => self.serve_elsewhere(&mut next),
        }
        if !next.fault_budget.has(ModelFault::FailOver) {
            next.replica = 0;
        }
        self.note_guards(world, &mut next)?;
        Ok(next)
    }

    /// Checks that the tokens of guards rise: that of a writing guard above all others, and any
    /// other above that of the last write.
    fn note_guards(&self, before: &ModelState, next: &mut ModelState) -> Result<(), String> {
        for at in 0..next.clients.len() {
            let guard =
                |world: &ModelState| self.client(world, at).hold.as_ref().and_then(|it| it.guard);
            let Some(mode) = guard(next).filter(|mode| guard(before) != Some(*mode)) else {
                continue;
            };
            let client = self.client(next, at);
            if client.granted() <= Some(next.force_released_up_to) {
                continue; // it does not know that the lock was taken from it
            }
            let token = client.hold.as_ref().map_or(0, |hold| hold.token);
            let least = if mode == LockMode::Write { next.used } else { next.wrote };
            if token <= least && self.judges(GUARDS) {
                return Err(format!("{GUARDS}: {token} after {least}"));
            }
            next.used = next.used.max(token);
            if mode == LockMode::Write {
                next.wrote = token;
            }
        }
        Ok(())
    }

    /// An event for a client.
    fn turn(&mut self, world: &mut ModelState, at: usize, event: impl FnOnce(&mut ClientTurn<'_>)) {
        let around = ClientEnvironment {
            settings: &self.settings,
            lease: self.lease,
            program: &self.plan.programs[at],
            server: world.server,
            fault: self.fault,
        };
        let client = self.client(world, at).clone();
        let mut turn = ClientTurn { client, around, follows: Default::default() };
        event(&mut turn);
        turn.run_lease_task();
        let ClientTurn { client, follows, .. } = turn;
        let gave_up = client.is_releasing();
        world.clients[at] = self.clients.number(client);
        if gave_up {
            // The answers of earlier calls no longer matter to it.
            self.let_go(world, at, |call| !is_release_or_grant(call));
        }
        for call in follows.calls {
            let call = self.calls.number(call);
            world.calls.push((at as u8, call));
        }
        if follows.grant_waiters {
            self.grant_waiters(world, at);
        }
    }

    /// A client stops waiting for some of its calls.
    fn let_go(&mut self, world: &mut ModelState, at: usize, which: impl Fn(&ModelCall) -> bool) {
        for (client, number) in std::mem::take(&mut world.calls) {
            let call = &self.calls[number];
            if usize::from(client) != at || call.is_abandoned() || !which(call) {
                world.calls.push((client, number));
            } else if let Some(call) = call.clone().abandon() {
                world.calls.push((client, self.calls.number(call)));
            }
        }
    }

    /// A client's worker continues with what is left, one call of `grant_waiters` at a time.
    fn grant_waiters(&mut self, world: &mut ModelState, at: usize) {
        let stage = CallStage::Sent(CallRequest::GrantWaiters);
        let call = outsider_call(stage, LOCAL_NOW.saturating_add(UNIT));
        let call = (at as u8, self.calls.number(call));
        if !world.calls.contains(&call) {
            world.calls.push(call);
        }
    }

    /// Somebody else calls. Its answer changes nothing here, so it is not waited for.
    fn call_from_outsider(&mut self, world: &mut ModelState, request: CallRequest) {
        let call = outsider_call(CallStage::Abandoned(request), LOCAL_NOW);
        world.calls.push((0, self.calls.number(call)));
    }

    fn answer(&mut self, world: &mut ModelState, at: usize) {
        let (client, call) = world.calls.remove(at);
        let call = self.calls[call].clone();
        if let CallStage::Answered(envelope, answer) = call.stage {
            let is_over = self.client(world, usize::from(client)).step != call.acquisition;
            if is_over && answer != CallAnswer::WaitersGranted {
                return; // the next acquisition does not hear it
            }
            let event = |turn: &mut ClientTurn<'_>| turn.answered(call.sent, envelope, answer);
            self.turn(world, usize::from(client), event);
        }
    }

    fn abandon(&mut self, world: &mut ModelState, at: usize) {
        let (client, call) = world.calls.remove(at);
        let call = self.calls[call].clone();
        if let Some(abandoned) = call.clone().abandon() {
            world.calls.push((client, self.calls.number(abandoned)));
        }
        if self.client(world, usize::from(client)).step == call.acquisition {
            self.turn(world, usize::from(client), |turn| turn.failed(&call));
        }
    }

    fn crash(&mut self, world: &mut ModelState, at: usize) {
        self.let_go(world, at, |_| true);
        let mut client = self.client(world, at).clone();
        client.crash();
        world.clients[at] = self.clients.number(client);
    }

    /// From here on another server has the lock, without subscribers.
    fn serve_elsewhere(&mut self, world: &mut ModelState) {
        world.server += 1;
        for at in 0..world.clients.len() {
            let mut client = self.client(world, at).clone();
            client.is_subscribed = false;
            world.clients[at] = self.clients.number(client);
        }
    }
}

fn outsider_call(stage: CallStage, until: LocalInstant) -> ModelCall {
    ModelCall { acquisition: OUTSIDER, sent: LOCAL_NOW, until, not_after: 0, stage }
}

fn is_release_or_grant(call: &ModelCall) -> bool {
    matches!(CallKind::of(call), CallKind::Release { wait_only: false } | CallKind::GrantWaiters)
}
