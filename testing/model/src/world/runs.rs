//! Runs of scripts in a state. The same run happens in many states, and is made once.

use std::rc::Rc;

use bytes::Bytes;
use rwlease_core::protocol::{Call, Grant, GrantMessage, PushMessage as Sent};
use rwlease_core::resp::RespValue;

use crate::call::{CallRequest, CallStage, ModelCall, ModelMessage, ModelMessageKind};
use crate::client::server_name;
use crate::time::{SERVER_NOW, SERVER_US};
use crate::world::{LockModel, ModelState};
use oracle::step::{Message, Setting, Step, first_violation};
use rwlease::LockMode;
use rwlease::testing::{ScriptInput, ScriptOutput};

/// The result of a run of a script: the lock, the reply, and what is wrong with it.
#[derive(Debug)]
pub struct RunResult {
    lock: u32,
    newest: u64,
    stage: Option<CallStage>,
    messages: Vec<ModelMessage>,
    /// The reply in words, for the trace.
    pub reply_text: String,
    violation: Option<String>,
}

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunKey {
    lock: u32,
    client: u8,
    call: u32,
    /// The subscribed clients.
    hears: u32,
    server: u8,
    newest: u64,
}

impl LockModel {
    pub fn run(&mut self, world: &mut ModelState, at: usize) -> Result<(), String> {
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
    pub fn outcome(&mut self, world: &ModelState, at: usize) -> Rc<RunResult> {
        self.asked += 1;
        let (client, call) = world.calls[at];
        let occasion = RunKey {
            lock: world.lock,
            client,
            call,
            hears: self.hears(world),
            server: world.server,
            newest: world.newest,
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
            script: request.script.as_str(),
            key: &self.key.key,
            args: &words,
            now: SERVER_US,
            subscribed_channels: &heard,
        };
        let ran = self.pure.run(&before, &run).unwrap();
        let said = format!("{} {} -> {:?}", run.script, args.join(" "), ran.reply);
        self.judge(on, &call, (request.script.as_str(), &args), ran, said)
    }

    /// The call as the router makes it, and all words after the key.
    fn command(&self, on: &RunKey, call: &ModelCall) -> (Call, Vec<String>) {
        let id = self.ids[usize::from(on.client)].acquisition(u64::from(call.acquisition));
        let request = call.request().unwrap().call(id, &self.key);
        let mut args = vec![server_name(on.server)];
        args.extend(request.not_after.map(|_| call.not_after.to_string()));
        args.extend(request.args.iter().map(|word| String::from_utf8_lossy(word).into_owned()));
        (request, args)
    }

    fn judge(
        &mut self,
        on: &RunKey,
        call: &ModelCall,
        (script, args): (&str, &[String]),
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
        let reply = words(&ran.reply);
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
        let texts: Vec<_> =
            ran.messages.iter().map(|(_, payload)| String::from_utf8_lossy(payload)).collect();
        let told: Vec<Message> = texts.iter().flat_map(|text| Message::decode(text)).collect();
        let hears = |client: &str| {
            Some(on.hears >> (client.as_bytes()[0] - b'0') & 1 == 1) // of digits
        };
        let setting = Setting {
            messages: Some(&told),
            hears: Some(&hears),
            newest: Some(on.newest),
            forgets_time: true,
            ..Setting::default()
        };
        let (before, after_view) = (self.view(on.lock), self.view(after));
        let step = Step {
            script,
            args: args.iter().map(String::as_str).collect(),
            reply: &reply,
            before: Some(&before),
            after: &after_view,
            setting,
        };
        let violation = first_violation(&step, |rule| self.judges(rule));
        let violation = violation.map(|broken| format!("{}: {}", broken.rule, broken.what));
        let sent = ran.messages.iter().filter_map(|(_, payload)| Sent::read(payload));
        let messages = sent.flat_map(|sent| messages_of(&sent)).collect();
        let stage = (!call.is_abandoned()).then_some(CallStage::Answered(envelope, answer));
        let newest = after_view.number("fence").max(on.newest);
        RunResult { lock: after, newest, stage, messages, reply_text: said, violation }
    }
}

/// The words of a reply that is a text.
fn words(reply: &RespValue) -> Vec<String> {
    match reply {
        RespValue::String(text) => {
            String::from_utf8_lossy(text).split(' ').map(str::to_owned).collect()
        }
        _ => Vec::new(),
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
        Sent::Grants(GrantMessage { grants, has_more_work: more, .. }) => {
            let grant = |(id, grant): &(String, Grant)| ModelMessage {
                token: grant.token,
                deadline: grant.deadline,
                more: *more,
                ..message(id, ModelMessageKind::Grant)
            };
            grants.iter().map(grant).collect()
        }
    }
}
