//! One run of a script as a pure function. The input is the lock, the time and the subscribed
//! channels; the output is the lock, the reply and the messages. The model uses it to go from any
//! state to the next.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rwlease_core::resp::RespValue;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::cluster::EmbeddedCluster;
use crate::cluster_state::ClusterWorld;
use crate::keyspace::{StoredKey, StoredValue};
use crate::locks::lock;
use crate::reply::{Blob, ErrorReply};
use crate::server::Digest;
use rwlease_core::resp::PubSubEvent;

/// The only server, and the one connection that receives all messages.
const SERVER: usize = 0;
const LISTENER: u64 = 1;

/// The state of a lock at its server. Without fields there is no key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockHash {
    /// The fields of its hash.
    pub fields: BTreeMap<String, String>,
    /// When the key expires, in ms.
    pub ends: Option<u64>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptOutput {
    /// The lock after it.
    pub lock: LockHash,
    /// What the script returned.
    pub reply: RespValue,
    /// The messages that were published and received, each with its channel.
    pub messages: Vec<(Bytes, Bytes)>,
}

/// The input of a run.
#[derive(Clone, Copy, Debug)]
pub struct ScriptInput<'a> {
    /// The name of the script.
    pub script: &'a str,
    /// The key of the lock.
    pub key: &'a [u8],
    /// The other arguments.
    pub args: &'a [&'a [u8]],
    /// The server's time in microseconds.
    pub now: u64,
    /// The channels with a subscriber.
    pub subscribed_channels: &'a [Bytes],
}

/// An engine of one server that forgets everything between two runs.
#[derive(Debug)]
pub struct ScriptStep {
    engine: EmbeddedCluster,
    scripts: HashMap<String, Digest>,
    notices: UnboundedReceiver<PubSubEvent>,
}

impl ScriptStep {
    /// Takes scripts by name, with their texts.
    pub fn new<'a>(
        scripts: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<ScriptStep, String> {
        let engine = EmbeddedCluster::builder().standalone().manual_time().build();
        let mut known = HashMap::new();
        for (name, text) in scripts {
            let mut digest: Digest = [0; 40];
            digest.copy_from_slice(sha1_smol::Sha1::from(text).digest().to_string().as_bytes());
            lock(&engine.shared.host).compile(&digest, text.as_bytes()).map_err(in_words)?;
            known.insert(name.to_owned(), digest);
        }
        let notices = mpsc::unbounded_channel().1;
        Ok(ScriptStep { engine, scripts: known, notices })
    }

    /// Runs a script.
    pub fn run(
        &mut self,
        before: &LockHash,
        run: &ScriptInput<'_>,
    ) -> Result<ScriptOutput, String> {
        let unknown = || format!("no script {}", run.script);
        let digest = self.scripts.get(run.script).ok_or_else(unknown)?;
        let world = self.engine.shared.world.clone();
        self.notices = set_up(&world, before, run);
        let reply = lock(&self.engine.shared.host).run(digest, &[run.key], run.args);
        lock(&world).end_script();
        let reply = reply.map_err(in_words)?;
        Ok(ScriptOutput { lock: lock_at(&world, run.key), reply, messages: self.take_messages() })
    }

    fn take_messages(&mut self) -> Vec<(Bytes, Bytes)> {
        let mut messages = Vec::new();
        while let Ok(notice) = self.notices.try_recv() {
            if let PubSubEvent::Message { channel, payload } = notice {
                messages.push((channel, payload));
            }
        }
        messages
    }
}

fn in_words(failure: ErrorReply) -> String {
    failure.line().to_owned()
}

/// Puts the server into the state before the run.
fn set_up(
    world: &Arc<Mutex<ClusterWorld>>,
    before: &LockHash,
    run: &ScriptInput<'_>,
) -> UnboundedReceiver<PubSubEvent> {
    let (sender, notices) = mpsc::unbounded_channel();
    let mut world = lock(world);
    let still = (world.epoch + world.clock.now().as_duration()).as_micros() as i64;
    let server = &mut world.servers[SERVER];
    server.clock_offset = run.now as i64 - still;
    server.subscribers.disconnect_all();
    server.subscribers.connect(LISTENER, sender);
    for channel in run.subscribed_channels {
        server.subscribers.subscribe(LISTENER, channel.clone());
    }
    server.store.empty();
    if !before.fields.is_empty() {
        let blob = |text: &String| Blob::from_slice(text.as_bytes());
        let fields = before.fields.iter().map(|(field, value)| (blob(field), blob(value)));
        let value = StoredValue::Hash(fields.collect());
        server.store.set(run.key, Some(StoredKey { value, expires_at: before.ends }));
    }
    let at = world.at(SERVER);
    world.begin_script(at, false, Some(run.key));
    notices
}

/// The lock at this key.
fn lock_at(world: &Arc<Mutex<ClusterWorld>>, key: &[u8]) -> LockHash {
    let world = lock(world);
    let Some(entry) = world.servers[SERVER].store.entry(key) else {
        return LockHash::default();
    };
    let text = |blob: &Blob| String::from_utf8_lossy(blob).into_owned();
    let fields = match &entry.value {
        StoredValue::Hash(fields) => fields.iter().map(|(field, value)| (text(field), text(value))),
        StoredValue::Text(_) => return LockHash::default(),
    };
    LockHash { fields: fields.collect(), ends: entry.expires_at }
}
