//! Runs of scripts in a state. The same run happens in many states, and is made once.

use std::rc::Rc;

use bytes::Bytes;

use crate::checker::call::{CallRequest, CallStage, ModelCall, ModelMessage, ModelMessageKind};
use crate::checker::client::server_name;
use crate::checker::step_invariants::{self, ScriptRun};
use crate::checker::time::{SERVER_NOW, SERVER_US};
use crate::checker::world::{LockModel, ModelState};
use crate::embedded::{ScriptInput, ScriptOutput};
use crate::protocol::{self, GrantMessage, LockMode, PushMessage as Sent};

/// The result of a run of a script: the lock, the reply, and what is wrong with it.
#[derive(Debug)]
pub(in crate::checker) struct RunResult {
    lock: u32,
    newest: u64,
    stage: Option<CallStage>,
    messages: Vec<ModelMessage>,
    /// The reply in words, for the trace.
    pub(in crate::checker) reply_text: String,
    violation: Option<String>,
}

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RunKey {
    lock: u32,
    client: u8,
    call: u32,
    /// The subscribed clients.
    hears: u32,
    server: u8,
    newest: u64,
    lost_history: bool,
}

impl LockModel {
    pub(super) fn run(&mut self, world: &mut ModelState, at: usize) -> Result<(), String> {
        let outcome = self.outcome(world, at);
        if let Some(violation) = &outcome.violation {
            return Err(format!("{violation}\n    {}", outcome.reply_text));
        }
        if outcome.lock != world.lock {
            world.replica = world.lock;
        }
        let (client, number) = world.calls.remove(at);
        if let Some(CallRequest::Force(token)) = self.calls[number].request() {
            let took = outcome.lock != world.lock;
            world.force_released_up_to = if took {
                world.force_released_up_to.max(*token)
            } else {
                world.force_released_up_to
            };
        }
        (world.lock, world.newest) = (outcome.lock, outcome.newest);
        world.messages.extend(&outcome.messages);
        if let Some(stage) = &outcome.stage {
            let call = ModelCall { stage: stage.clone(), ..self.calls[number].clone() };
            world.calls.push((client, self.calls.number(call)));
        }
        Ok(())
    }

    /// The result of a call if the server runs it now.
    pub(in crate::checker) fn outcome(&mut self, world: &ModelState, at: usize) -> Rc<RunResult> {
        self.asked += 1;
        let (client, call) = world.calls[at];
        let occasion = RunKey {
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

    fn hears(&self, world: &ModelState) -> u32 {
        let clients = world.clients.iter().enumerate();
        clients
            .filter(|(_, client)| self.clients[**client].is_subscribed)
            .fold(0, |all, (at, _)| all | 1 << at)
    }

    fn execute(&mut self, on: &RunKey) -> RunResult {
        let call = self.calls.get(on.call);
        let before = self.locks.get(on.lock);
        let (request, args) = self.command(on, &call);
        let heard = self.ids.iter().enumerate().filter(|(at, _)| on.hears >> at & 1 == 1);
        let heard: Vec<Bytes> = heard.map(|(_, id)| id.channel(self.key.slot)).collect();
        let words: Vec<&[u8]> = args.iter().map(|word| word.as_bytes()).collect();
        let run = ScriptInput {
            script: request.script.name(),
            key: &self.key.key,
            args: &words,
            now: SERVER_US,
            subscribed_channels: &heard,
        };
        let ran = self.pure.run(&before, &run).unwrap();
        let said = format!("{} {} -> {:?}", run.script, args.join(" "), ran.reply);
        self.judge(on, &call, ran, said)
    }

    /// The call as the router makes it, and all words after the key.
    fn command(&self, on: &RunKey, call: &ModelCall) -> (crate::router::Call, Vec<String>) {
        let id = self.ids[usize::from(on.client)].acquisition(u64::from(call.acquisition));
        let request = call.request().unwrap().call(self.scripts, id, &self.key);
        let mut args = vec![server_name(on.server)];
        args.extend(request.not_after.map(|_| call.not_after.to_string()));
        args.extend(request.args.iter().map(|word| String::from_utf8_lossy(word).into_owned()));
        (request, args)
    }

    fn judge(
        &mut self,
        on: &RunKey,
        call: &ModelCall,
        ran: ScriptOutput,
        said: String,
    ) -> RunResult {
        let after = self.locks.number(ran.lock.clone());
        let request = call.request().unwrap();
        let failed = |violation: String| RunResult {
            lock: after,
            newest: on.newest,
            stage: None,
            messages: Vec::new(),
            reply_text: said.clone(),
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
            Sent::Grants(_) | Sent::ForceReleased { .. } => None,
        };
        let ended: Vec<(String, u64)> = sent.iter().filter_map(end).collect();
        let recalls: Vec<String> = sent.iter().filter_map(recalled).collect();
        let pushes: Vec<GrantMessage> = sent.into_iter().filter_map(grants).collect();
        let step = ScriptRun {
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
        let violation = step_invariants::first_violation(&step, |rule| self.judges(rule));
        let stage = (!call.is_abandoned()).then_some(CallStage::Answered(envelope, answer));
        let newest = step_invariants::newest_token(after_view).max(on.newest);
        RunResult { lock: after, newest, stage, messages, reply_text: said, violation }
    }
}

/// The grants in a message.
fn grants(sent: Sent) -> Option<GrantMessage> {
    match sent {
        Sent::Grants(push) => Some(push),
        Sent::Recall { .. } | Sent::ForceReleased { .. } => None,
    }
}

/// The acquisition in a message about a forced release, and its token.
fn end(sent: &Sent) -> Option<(String, u64)> {
    match sent {
        Sent::ForceReleased { id, token } => Some((id.clone(), *token)),
        Sent::Recall { .. } | Sent::Grants(_) => None,
    }
}

fn messages_of(sent: &Sent) -> Vec<ModelMessage> {
    let message = |id: &String, about| ModelMessage {
        client: id.as_bytes()[0] - b'0',
        acquisition: id.as_bytes()[17] - b'0',
        token: 0,
        deadline: SERVER_NOW,
        now: SERVER_NOW,
        more: false,
        about,
    };
    match sent {
        Sent::Recall { id, mode: LockMode::Read } => {
            vec![message(id, ModelMessageKind::RecallToRead)]
        }
        Sent::Recall { id, mode: LockMode::Write } => {
            vec![message(id, ModelMessageKind::RecallToWrite)]
        }
        Sent::ForceReleased { id, token } => {
            vec![ModelMessage { token: *token, ..message(id, ModelMessageKind::End) }]
        }
        Sent::Grants(GrantMessage { grants, has_pump_work: more, .. }) => {
            let grant = |(id, grant): &(String, protocol::Grant)| ModelMessage {
                token: grant.token,
                deadline: grant.deadline,
                more: *more,
                ..message(id, ModelMessageKind::Grant)
            };
            grants.iter().map(grant).collect()
        }
    }
}
