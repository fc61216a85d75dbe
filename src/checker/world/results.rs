//! The results of actions.

use crate::checker::call::{Answer, Call, Request, Stage};
use crate::checker::client::{Around, Kind, Turn};
use crate::checker::program::UNLIMITED;
use crate::checker::time::{NOW, Older, UNIT, UNIT_MS};
use crate::checker::world::actions::Action;
use crate::checker::world::{Model, World};
use crate::protocol::Mode;

pub(in crate::checker) const GUARDS: &str = "the tokens of guards rise";

/// The index of the acquisition of a call without one: a pump, or a call of somebody else. No
/// client has so many.
const OUTSIDER: u8 = 9;

impl Model {
    /// The state after an action, or what is wrong with the step.
    pub(in crate::checker) fn apply(
        &mut self,
        world: &World,
        action: Action,
    ) -> Result<World, String> {
        let mut next = world.clone();
        match action {
            Action::Tick => self.tick(&mut next),
            Action::Start(at) => self.turn(&mut next, at, |turn| turn.start()),
            Action::Run(at) => self.run(&mut next, at)?,
            Action::Answer(at) => self.answer(&mut next, at),
            Action::Abandon(at) => self.abandon(&mut next, at),
            Action::Vanish(at) => drop(next.calls.remove(at)),
            Action::Hear(at) => {
                let message = next.messages.remove(at);
                let at = usize::from(message.client);
                let is_over = self.client(world, at).at != message.acquisition;
                self.turn(&mut next, at, |turn| turn.hear(&message, is_over));
            }
            Action::LoseMessage(at) => {
                next.messages.remove(at);
                next.left.lost_messages -= 1;
            }
            Action::Wake(at) => self.turn(&mut next, at, |turn| turn.wake()),
            Action::Look(at) => self.turn(&mut next, at, |turn| turn.look()),
            Action::Cancel(at) => {
                next.left.cancelled -= 1;
                self.let_go(&mut next, at, |call| Kind::of(call) == Kind::Acquire);
                self.turn(&mut next, at, |turn| turn.cancel());
            }
            Action::Drop(at) => self.turn(&mut next, at, |turn| turn.drop_guard()),
            Action::Change(at) => {
                let change = self.client(world, at).next_change(self.plan.programs[at]);
                self.turn(&mut next, at, |turn| turn.change(change.unwrap()));
            }
            Action::Join(at) => self.turn(&mut next, at, |turn| turn.join()),
            Action::GiveBack(at) => self.turn(&mut next, at, |turn| turn.give_back()),
            Action::Use(at, mode) => self.turn(&mut next, at, |turn| turn.enter(mode)),
            Action::Leave(at) => self.turn(&mut next, at, |turn| turn.leave()),
            Action::Contact(at) => self.turn(&mut next, at, |turn| turn.contact()),
            Action::Crash(at) => self.crash(&mut next, at),
            Action::Revoke => {
                next.left.revoked -= 1;
                self.interfere(&mut next, Request::Revoke(world.newest));
            }
            Action::Force => {
                next.left.forced -= 1;
                self.interfere(&mut next, Request::Force(world.newest));
            }
            Action::FailOver => {
                next.left.failovers -= 1;
                (next.lock, next.lost_history) = (next.replica, true);
                self.serve_elsewhere(&mut next);
            }
            Action::Move => {
                next.left.moves -= 1;
                self.serve_elsewhere(&mut next);
            }
        }
        if next.left.failovers == 0 {
            next.replica = 0;
        }
        self.note_guards(world, &mut next)?;
        Ok(next)
    }

    /// Checks that the tokens of guards rise: that of a writing guard above all others, and any
    /// other above that of the last write.
    fn note_guards(&self, before: &World, next: &mut World) -> Result<(), String> {
        for at in 0..next.clients.len() {
            let guard =
                |world: &World| self.client(world, at).hold.as_ref().and_then(|it| it.guard);
            let Some(mode) = guard(next).filter(|mode| guard(before) != Some(*mode)) else {
                continue;
            };
            let client = self.client(next, at);
            if client.granted() <= Some(next.taken) {
                continue; // it does not know that the lock was taken from it
            }
            let token = client.hold.as_ref().map_or(0, |hold| hold.token);
            let least = if mode == Mode::Write { next.used } else { next.wrote };
            if token <= least && self.judges(GUARDS) {
                return Err(format!("{GUARDS}: {token} after {least}"));
            }
            next.used = next.used.max(token);
            if mode == Mode::Write {
                next.wrote = token;
            }
        }
        Ok(())
    }

    /// An event for a client.
    fn turn(&mut self, world: &mut World, at: usize, event: impl FnOnce(&mut Turn<'_>)) {
        let around = Around {
            settings: &self.settings,
            program: self.plan.programs[at],
            server: world.server,
            fault: self.fault,
        };
        let client = self.client(world, at).clone();
        let mut turn = Turn { client, around, follows: Default::default() };
        event(&mut turn);
        turn.keep();
        let Turn { client, follows, .. } = turn;
        let gave_up = client.has_given_up();
        world.clients[at] = self.clients.number(client);
        if gave_up {
            // The answers of earlier calls no longer matter to it.
            self.let_go(world, at, |call| !is_release_or_pump(call));
        }
        for call in follows.calls {
            let call = self.calls.number(call);
            world.calls.push((at as u8, call));
        }
        if follows.pump {
            self.pump(world, at);
        }
    }

    /// A client stops waiting for some of its calls.
    fn let_go(&mut self, world: &mut World, at: usize, which: impl Fn(&Call) -> bool) {
        for (client, number) in std::mem::take(&mut world.calls) {
            let call = &self.calls[number];
            if usize::from(client) != at || call.is_abandoned() || !which(call) {
                world.calls.push((client, number));
            } else if let Some(call) = call.clone().let_go() {
                world.calls.push((client, self.calls.number(call)));
            }
        }
    }

    /// A client's worker continues with what is left, one pump at a time.
    fn pump(&mut self, world: &mut World, at: usize) {
        let pump = Call {
            acquisition: OUTSIDER,
            sent: NOW,
            until: NOW.after(UNIT),
            not_after: 0,
            stage: Stage::Sent(Request::Pump),
        };
        let pump = (at as u8, self.calls.number(pump));
        if !world.calls.contains(&pump) {
            world.calls.push(pump);
        }
    }

    /// Somebody else calls. Its answer changes nothing here, so it is not waited for.
    fn interfere(&mut self, world: &mut World, request: Request) {
        let stage = Stage::Abandoned(request);
        let call = Call { acquisition: OUTSIDER, sent: NOW, until: NOW, not_after: 0, stage };
        world.calls.push((0, self.calls.number(call)));
    }

    fn answer(&mut self, world: &mut World, at: usize) {
        let (client, call) = world.calls.remove(at);
        let call = self.calls[call].clone();
        if let Stage::Answered(envelope, answer) = call.stage {
            let is_over = self.client(world, usize::from(client)).at != call.acquisition;
            if is_over && answer != Answer::Pumped {
                return; // the next acquisition does not hear it
            }
            let event = |turn: &mut Turn<'_>| turn.answered(call.sent, envelope, answer);
            self.turn(world, usize::from(client), event);
        }
    }

    fn abandon(&mut self, world: &mut World, at: usize) {
        world.left.abandoned -= 1;
        let (client, call) = world.calls.remove(at);
        let call = self.calls[call].clone();
        if let Some(abandoned) = call.clone().let_go() {
            world.calls.push((client, self.calls.number(abandoned)));
        }
        if self.client(world, usize::from(client)).at == call.acquisition {
            self.turn(world, usize::from(client), |turn| turn.failed(&call));
        }
    }

    fn crash(&mut self, world: &mut World, at: usize) {
        world.left.crashes -= 1;
        self.let_go(world, at, |_| true);
        let mut client = self.client(world, at).clone();
        client.crash();
        world.clients[at] = self.clients.number(client);
    }

    /// From here on another server has the lock, without subscribers.
    fn serve_elsewhere(&mut self, world: &mut World) {
        world.server += 1;
        for at in 0..world.clients.len() {
            let mut client = self.client(world, at).clone();
            client.hears = false;
            world.clients[at] = self.clients.number(client);
        }
    }

    fn tick(&mut self, world: &mut World) {
        if world.left.slow != UNLIMITED && self.is_urgent(world) {
            world.left.slow -= 1;
        }
        let same: Vec<u8> = (0..world.clients.len() as u8).collect();
        world.lock = self.rewrite(world.lock, UNIT_MS, &[], &same);
        world.replica = self.rewrite(world.replica, UNIT_MS, &[], &same);
        let mut older = Older { by_ms: UNIT_MS };
        for number in &mut world.clients {
            let mut client = self.clients[*number].clone();
            client.grow_older(&mut older);
            *number = self.clients.number(client);
        }
        for (_, number) in &mut world.calls {
            let mut call = self.calls[*number].clone();
            call.grow_older(&mut older);
            *number = self.calls.number(call);
        }
        world.messages.iter_mut().for_each(|message| message.grow_older(UNIT_MS));
    }
}

fn is_release_or_pump(call: &Call) -> bool {
    matches!(Kind::of(call), Kind::Release { only_wait: false } | Kind::Pump)
}
