//! The state of a world, the actions that are possible in it, and their results.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;

use crate::checker::call::{About, Answer, Call, Message, Request, Stage};
use crate::checker::canonical::{Rewriting, orders, tokens_of};
use crate::checker::client::{
    Around, Client, ClientFault, Kind, Turn, may_wait_a_unit, server_name,
};
use crate::checker::intern::Interned;
use crate::checker::program::{Budget, Plan, UNLIMITED};
use crate::checker::rules::{self, Step};
use crate::checker::step::Changed;
use crate::checker::time::{FIRST_TOKEN, NOW, Older, SERVER_NOW, SERVER_US, Tokens, UNIT, UNIT_MS};
use crate::checker::view::View;
use crate::client::settings::Settings;
use crate::embedded::{Lock, PureStep, Ran, Run};
use crate::protocol::{self, ClientId, LockKey, Message as Sent, Mode, Push, Scripts};

/// A state. Locks, clients and calls are stored as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) lock: u32,
    /// The replica's data, which lack the last write.
    replica: u32,
    pub(super) clients: Vec<u32>,
    /// The calls, each with its client.
    pub(super) calls: Vec<(u8, u32)>,
    pub(super) messages: Vec<Message>,
    pub(super) left: Budget,
    pub(super) server: u8,
    /// The greatest token that was ever given.
    pub(super) newest: u64,
    /// A failover has lost a write.
    pub(super) lost_history: bool,
    /// A forced release ended the leases with tokens up to this one.
    pub(super) taken: u64,
    /// The greatest token of a guard of a cached lease: of one that wrote, and of any.
    pub(super) wrote: u64,
    pub(super) used: u64,
}

/// The possible actions. Their numbers are those of clients, calls and messages in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
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
pub(super) const FAULTS: [&str; 9] = [
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

/// The result of a run of a script: the lock, the reply, and what is wrong with it.
#[derive(Debug)]
pub(super) struct Outcome {
    lock: u32,
    newest: u64,
    stage: Option<Stage>,
    messages: Vec<Message>,
    /// The reply in words, for the trace.
    pub(super) said: String,
    violation: Option<String>,
}

pub(super) const GUARDS: &str = "the tokens of guards rise";

/// The index of the acquisition of a call without one: a pump, or a call of somebody else. No
/// client has so many.
const OUTSIDER: u8 = 9;

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Occasion {
    lock: u32,
    client: u8,
    call: u32,
    /// The subscribed clients.
    hears: u32,
    server: u8,
    newest: u64,
    lost_history: bool,
}

/// The tokens in each lock, client and call.
#[derive(Debug, Default)]
struct KnownTokens {
    locks: Known,
    clients: Known,
    calls: Known,
}

/// The tokens of each value, by its number.
#[derive(Debug, Default)]
struct Known(Vec<Option<Vec<u64>>>);

impl Known {
    fn of(&mut self, number: u32, find: impl FnOnce() -> Vec<u64>) -> &[u64] {
        let at = number as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        self.0[at].get_or_insert_with(find)
    }
}

/// What is the same in all states.
pub(super) struct Model {
    pub(super) plan: Plan,
    settings: Settings,
    scripts: &'static Scripts,
    pure: PureStep,
    key: LockKey,
    ids: Vec<ClientId>,
    /// The first client with the same program.
    groups: Vec<u8>,
    only: Option<&'static str>,
    fault: Option<ClientFault>,
    pub(super) locks: Interned<Lock>,
    pub(super) clients: Interned<Client>,
    pub(super) calls: Interned<Call>,
    runs: HashMap<Occasion, Rc<Outcome>>,
    views: HashMap<u32, Rc<Result<View, String>>>,
    rewritten: HashMap<(u32, u64, Vec<u64>, Vec<u8>), u32>,
    tokens: KnownTokens,
    pub(super) asked: u64,
}

impl Model {
    pub(super) fn new(plan: Plan, changed: Changed<'_>) -> Model {
        let small_limits = plan.small_limits;
        let (only, fault) = (changed.only, changed.client);
        let scripts = Changed { small_limits, ..changed }.scripts();
        let texts = scripts.all().into_iter().map(|script| (script.name(), script.text()));
        let clients = plan.programs.len();
        let first_like = |program| plan.programs.iter().position(|other| other == program);
        let groups: Vec<u8> =
            plan.programs.iter().filter_map(|program| Some(first_like(program)? as u8)).collect();
        assert!(groups.is_sorted(), "clients with the same program stand together");
        let kind = match plan.has_permits() {
            true => protocol::Kind::Semaphore,
            false => protocol::Kind::ReadWrite,
        };
        let mut model = Model {
            settings: plan.settings(),
            scripts,
            pure: PureStep::new(texts).unwrap(),
            key: LockKey::new(kind, "rwlease:", "x").unwrap(),
            ids: (0..clients as u8).map(|client| ClientId::from_random([client; 11])).collect(),
            groups,
            only,
            fault,
            plan,
            locks: Interned::new(),
            clients: Interned::new(),
            calls: Interned::new(),
            runs: HashMap::new(),
            views: HashMap::new(),
            rewritten: HashMap::new(),
            tokens: KnownTokens::default(),
            asked: 0,
        };
        model.locks.number(Lock::default());
        model
    }

    pub(super) fn first(&mut self) -> World {
        let client = self.clients.number(Client::new());
        let clients = vec![client; self.plan.programs.len()];
        World { clients, left: self.plan.budget, ..World::default() }
    }

    /// Whether steps and states are checked against this rule.
    pub(super) fn judges(&self, rule: &str) -> bool {
        self.only.is_none_or(|only| only == rule)
    }

    pub(super) fn executed(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn client(&self, world: &World, client: usize) -> &Client {
        &self.clients[world.clients[client]]
    }

    pub(super) fn view(&mut self, lock: u32) -> Rc<Result<View, String>> {
        let view = || Rc::new(View::of(&self.locks[lock]));
        self.views.entry(lock).or_insert_with(view).clone()
    }

    /// The id of an acquisition.
    pub(super) fn id(&self, client: usize, acquisition: u8) -> String {
        self.ids[client].acquisition(u64::from(acquisition)).as_str().to_owned()
    }

    // Possible actions.

    pub(super) fn actions(&self, world: &World) -> Vec<Action> {
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
    pub(super) fn fault_of(&self, world: &World, action: Action) -> Option<usize> {
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
    pub(super) fn is_urgent(&self, world: &World) -> bool {
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
    pub(super) fn is_done(&self, world: &World) -> bool {
        let clients = world.clients.iter().zip(self.plan.programs);
        let is_done = |(client, program): (&u32, &&[_])| self.clients[*client].is_done(program);
        world.calls.is_empty() && world.messages.is_empty() && clients.into_iter().all(is_done)
    }

    // Results of actions.

    /// The state after an action, or what is wrong with the step.
    pub(super) fn apply(&mut self, world: &World, action: Action) -> Result<World, String> {
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

    // Runs of scripts.

    fn run(&mut self, world: &mut World, at: usize) -> Result<(), String> {
        let outcome = self.outcome(world, at);
        if let Some(violation) = &outcome.violation {
            return Err(format!("{violation}\n    {}", outcome.said));
        }
        if outcome.lock != world.lock {
            world.replica = world.lock;
        }
        let (client, number) = world.calls.remove(at);
        if let Some(Request::Force(token)) = self.calls[number].request() {
            let took = outcome.lock != world.lock;
            world.taken = if took { world.taken.max(*token) } else { world.taken };
        }
        (world.lock, world.newest) = (outcome.lock, outcome.newest);
        world.messages.extend(&outcome.messages);
        if let Some(stage) = &outcome.stage {
            let call = Call { stage: stage.clone(), ..self.calls[number].clone() };
            world.calls.push((client, self.calls.number(call)));
        }
        Ok(())
    }

    /// The result of a call if the server runs it now.
    pub(super) fn outcome(&mut self, world: &World, at: usize) -> Rc<Outcome> {
        self.asked += 1;
        let (client, call) = world.calls[at];
        let occasion = Occasion {
            lock: world.lock,
            client,
            call,
            hears: self.hears(world),
            server: world.server,
            newest: world.newest,
            lost_history: world.lost_history,
        };
        if let Some(outcome) = self.runs.get(&occasion) {
            return outcome.clone();
        }
        let outcome = Rc::new(self.execute(&occasion));
        self.runs.insert(occasion, outcome.clone());
        outcome
    }

    fn hears(&self, world: &World) -> u32 {
        let clients = world.clients.iter().enumerate();
        clients
            .filter(|(_, client)| self.clients[**client].hears)
            .fold(0, |all, (at, _)| all | 1 << at)
    }

    fn execute(&mut self, on: &Occasion) -> Outcome {
        let call = self.calls.get(on.call);
        let before = self.locks.get(on.lock);
        let (request, args) = self.command(on, &call);
        let heard = self.ids.iter().enumerate().filter(|(at, _)| on.hears >> at & 1 == 1);
        let heard: Vec<Bytes> = heard.map(|(_, id)| id.channel(self.key.slot)).collect();
        let words: Vec<&[u8]> = args.iter().map(|word| word.as_bytes()).collect();
        let run = Run {
            script: request.script.name(),
            key: &self.key.key,
            args: &words,
            now: SERVER_US,
            heard: &heard,
        };
        let ran = self.pure.run(&before, &run).unwrap();
        let said = format!("{} {} -> {:?}", run.script, args.join(" "), ran.reply);
        self.judge(on, &call, ran, said)
    }

    /// The call as the router makes it, and all words after the key.
    fn command(&self, on: &Occasion, call: &Call) -> (crate::router::Call, Vec<String>) {
        let id = self.ids[usize::from(on.client)].acquisition(u64::from(call.acquisition));
        let request = call.request().unwrap().call(self.scripts, id, &self.key);
        let mut args = vec![server_name(on.server)];
        args.extend(request.not_after.map(|_| call.not_after.to_string()));
        args.extend(request.args.iter().map(|word| String::from_utf8_lossy(word).into_owned()));
        (request, args)
    }

    fn judge(&mut self, on: &Occasion, call: &Call, ran: Ran, said: String) -> Outcome {
        let after = self.locks.number(ran.lock.clone());
        let request = call.request().unwrap();
        let failed = |violation: String| Outcome {
            lock: after,
            newest: on.newest,
            stage: None,
            messages: Vec::new(),
            said: said.clone(),
            violation: Some(violation),
        };
        let (envelope, answer) = match request.read(ran.reply) {
            Ok(read) => read,
            // It is late, and its acquisition has changed.
            Err(bad) if call.is_abandoned() && format!("{bad:?}").contains("in the other mode") => {
                let mut nothing = failed(String::new());
                (nothing.violation, nothing.lock) = (None, on.lock);
                return nothing;
            }
            Err(bad) => return failed(format!("a script fails: {bad:?}")),
        };
        let (before, after_view) = (self.view(on.lock), self.view(after));
        let (before, after_view) = match (&*before, &*after_view) {
            (Ok(before), Ok(after)) => (before, after),
            (_, Err(malformed)) | (Err(malformed), _) => return failed(malformed.clone()),
        };
        let sent: Vec<Sent> =
            ran.messages.iter().filter_map(|(_, payload)| Sent::read(payload)).collect();
        let messages = sent.iter().flat_map(messages_of).collect();
        let recalled = |sent: &Sent| match sent {
            Sent::Recall { id, .. } => Some(id.clone()),
            Sent::Grants(_) | Sent::Ended { .. } => None,
        };
        let ended: Vec<(String, u64)> = sent.iter().filter_map(end).collect();
        let recalls: Vec<String> = sent.iter().filter_map(recalled).collect();
        let pushes: Vec<Push> = sent.into_iter().filter_map(grants).collect();
        let step = Step {
            id: self.id(usize::from(on.client), call.acquisition),
            request,
            not_after: call.not_after,
            before,
            after: after_view,
            changed: on.lock != after,
            envelope,
            answer: &answer,
            pushes: &pushes,
            recalls: &recalls,
            ended: &ended,
            hears: on.hears,
            server: server_name(on.server),
            newest: on.newest,
            lost_history: on.lost_history,
        };
        let violation = rules::broken(&step, |rule| self.judges(rule));
        let stage = (!call.is_abandoned()).then_some(Stage::Answered(envelope, answer));
        let newest = rules::newest_token(after_view).max(on.newest);
        Outcome { lock: after, newest, stage, messages, said, violation }
    }

    // The canonical form.

    pub(super) fn canonical(&mut self, mut world: World) -> World {
        self.simplify(&mut world);
        let orders = orders(&self.groups, &world.clients);
        let ordered = orders.into_iter().map(|order| self.in_order(&world, &order));
        let least = ordered.min_by(|a, b| {
            let key = |world: &World| (world.lock, world.replica);
            (key(a), &a.calls, &a.messages).cmp(&(key(b), &b.calls, &b.messages))
        });
        least.unwrap_or(world)
    }

    /// Makes the canonical form, except for the order of clients.
    pub(super) fn simplify(&mut self, world: &mut World) {
        self.drop_dead_messages(world);
        self.rename_tokens(world);
    }

    /// Drops the messages for acquisitions that are over, which have no effect.
    fn drop_dead_messages(&self, world: &mut World) {
        let World { messages, clients, .. } = world;
        messages.retain(|message| {
            let client = &self.clients[clients[usize::from(message.client)]];
            client.is_alive() && (client.at == message.acquisition || message.more)
        });
    }

    /// Tokens are only compared, so each is replaced by its rank.
    fn rename_tokens(&mut self, world: &mut World) {
        let tokens = self.tokens_of(world);
        let is_renamed = (FIRST_TOKEN..).zip(&tokens).all(|(wanted, token)| wanted == *token);
        if is_renamed {
            return;
        }
        let rename = |token: u64| match tokens.binary_search(&token) {
            Ok(rank) => FIRST_TOKEN + rank as u64,
            Err(_) => token,
        };
        let same: Vec<u8> = (0..world.clients.len() as u8).collect();
        world.lock = self.rewrite(world.lock, 0, &tokens, &same);
        world.replica = self.rewrite(world.replica, 0, &tokens, &same);
        for number in &mut world.clients {
            if self.tokens.clients.of(*number, Vec::new).is_empty() {
                continue;
            }
            let mut client = self.clients[*number].clone();
            client.visit(&mut Tokens(|token: &mut u64| *token = rename(*token)));
            *number = self.clients.number(client);
        }
        for (_, number) in &mut world.calls {
            let mut call = self.calls[*number].clone();
            call.each_token(&mut |token| *token = rename(*token));
            *number = self.calls.number(call);
        }
        world.messages.iter_mut().for_each(|message| message.token = rename(message.token));
        world.newest = rename(world.newest);
        world.taken = rename(world.taken);
        world.wrote = rename(world.wrote);
        world.used = rename(world.used);
    }

    /// All tokens of a state, in order, each once.
    fn tokens_of(&mut self, world: &World) -> Vec<u64> {
        let Model { locks, clients, calls, tokens, .. } = self;
        let mut all = Vec::new();
        for lock in [world.lock, world.replica] {
            all.extend_from_slice(tokens.locks.of(lock, || tokens_of(&locks[lock])));
        }
        for client in &world.clients {
            all.extend_from_slice(tokens.clients.of(*client, || clients[*client].tokens()));
        }
        for (_, call) in &world.calls {
            all.extend_from_slice(tokens.calls.of(*call, || calls[*call].tokens()));
        }
        all.extend(world.messages.iter().map(|message| message.token));
        all.extend([world.newest, world.taken, world.wrote, world.used]);
        all.retain(|token| *token > 0);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A lock `by_ms` later, with each of the tokens replaced by its rank, and with other numbers
    /// of clients.
    fn rewrite(&mut self, lock: u32, by_ms: u64, tokens: &[u64], clients: &[u8]) -> u32 {
        if self.locks[lock].fields.is_empty() {
            return 0;
        }
        let key = (lock, by_ms, tokens.to_vec(), clients.to_vec());
        if let Some(known) = self.rewritten.get(&key) {
            return *known;
        }
        let token = |token: u64| match tokens.binary_search(&token) {
            Ok(rank) => FIRST_TOKEN + rank as u64,
            Err(_) => token,
        };
        let ttl_ms = u64::from(self.plan.ttl) * UNIT_MS;
        let rewriting = Rewriting { by_ms, token: &token, clients, ttl_ms };
        let new = rewriting.lock(&self.locks[lock]);
        let new = self.locks.number(new);
        self.rewritten.insert(key, new);
        new
    }

    /// The same state with its clients in another order: the old number at each new place.
    fn in_order(&mut self, world: &World, order: &[u8]) -> World {
        let mut next = world.clone();
        if !order.is_sorted() {
            let mut places = vec![0; order.len()];
            order.iter().enumerate().for_each(|(at, old)| places[usize::from(*old)] = at as u8);
            next.clients = order.iter().map(|old| world.clients[usize::from(*old)]).collect();
            next.lock = self.rewrite(world.lock, 0, &[], &places);
            next.replica = self.rewrite(world.replica, 0, &[], &places);
            next.calls.iter_mut().for_each(|(client, _)| *client = places[usize::from(*client)]);
            for message in &mut next.messages {
                message.client = places[usize::from(message.client)];
            }
        }
        next.calls.sort_unstable();
        next.messages.sort_unstable();
        next
    }
}

/// The grants in a message.
fn grants(sent: Sent) -> Option<Push> {
    match sent {
        Sent::Grants(push) => Some(push),
        Sent::Recall { .. } | Sent::Ended { .. } => None,
    }
}

/// The acquisition in a message about a forced release, and its token.
fn end(sent: &Sent) -> Option<(String, u64)> {
    match sent {
        Sent::Ended { id, token } => Some((id.clone(), *token)),
        Sent::Recall { .. } | Sent::Grants(_) => None,
    }
}

fn is_release_or_pump(call: &Call) -> bool {
    matches!(Kind::of(call), Kind::Release { only_wait: false } | Kind::Pump)
}

fn messages_of(sent: &Sent) -> Vec<Message> {
    let message = |id: &String, about| Message {
        client: id.as_bytes()[0] - b'0',
        acquisition: id.as_bytes()[17] - b'0',
        token: 0,
        deadline: SERVER_NOW,
        now: SERVER_NOW,
        more: false,
        about,
    };
    match sent {
        Sent::Recall { id, mode: Mode::Read } => vec![message(id, About::RecallToRead)],
        Sent::Recall { id, mode: Mode::Write } => vec![message(id, About::RecallToWrite)],
        Sent::Ended { id, token } => vec![Message { token: *token, ..message(id, About::End) }],
        Sent::Grants(Push { grants, more, .. }) => {
            let grant = |(id, grant): &(String, protocol::Grant)| Message {
                token: grant.token,
                deadline: grant.deadline,
                more: *more,
                ..message(id, About::Grant)
            };
            grants.iter().map(grant).collect()
        }
    }
}
