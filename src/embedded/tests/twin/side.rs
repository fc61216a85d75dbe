//! One of the two sides: a server, embedded or real, with the scripts of one folder.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::random_calls::{Call, heard_channels};
use super::super::real::{RealConnection, RealServer};
use super::super::scripts_equal_server::message;
use super::super::{at_once, words};
use super::scripts::{Folder, SLOW_PATH};
use crate::backend::{PubSubConnection, PubSubEvent, RespValue};
use crate::embedded::EmbeddedCluster;
use crate::protocol::line::expand_line;

/// A command's words.
pub(super) type Command = Vec<Vec<u8>>;

/// The state of a lock at its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lock {
    /// As if each part of the state line had its own field.
    pub(super) fields: BTreeMap<String, String>,
    /// The fields as they are.
    pub(super) raw: BTreeMap<String, String>,
    /// When the key expires, in ms.
    pub(super) ends: Option<u64>,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) reply: RespValue,
    /// The state of each key of the call.
    pub(super) locks: Vec<Lock>,
    /// The messages that were published and received, by channel.
    pub(super) pushes: Vec<(Bytes, Bytes)>,
    /// The message of the slow path, if the call reached it.
    pub(super) slow_path: Option<Bytes>,
}

pub(super) struct Side {
    server: Box<dyn Server>,
    digests: BTreeMap<&'static str, Vec<u8>>,
}

impl Side {
    pub(super) fn new(mut server: Box<dyn Server>, folder: &Folder) -> Side {
        let mut digests = BTreeMap::new();
        for script in folder.scripts().all() {
            let load = ["SCRIPT", "LOAD", script.text()].map(|word| word.as_bytes().to_vec());
            let RespValue::String(digest) = server.query(&[load.into()]).remove(0) else {
                panic!("{} does not compile", script.name());
            };
            digests.insert(script.name(), digest.to_vec());
        }
        Side { server, digests }
    }

    pub(super) fn tell(&mut self, commands: &[Command]) {
        self.server.query(commands);
    }

    pub(super) fn fill(&mut self, is_full: bool) {
        self.server.fill(is_full);
    }

    pub(super) fn call(&mut self, call: &Call) -> Outcome {
        let mut command = vec![
            b"EVALSHA".to_vec(),
            self.digests[call.script].clone(),
            call.keys.len().to_string().into(),
        ];
        command.extend(call.keys.iter().map(|key| key.clone().into()));
        command.extend(call.args.iter().cloned());
        let mut commands = vec![command];
        for key in &call.keys {
            commands.extend(
                ["HGETALL", "PEXPIRETIME"].map(|name| vec![name.into(), key.clone().into()]),
            );
        }
        let mut replies = self.server.query(&commands).into_iter();
        let reply = replies.next().unwrap_or(RespValue::Nil);
        let mut locks = Vec::new();
        while let (Some(fields), Some(ends)) = (replies.next(), replies.next()) {
            locks.push(Lock::read(fields, &ends));
        }
        let mut pushes = self.server.heard();
        let said = pushes.iter().position(|(channel, _)| channel.as_ref() == SLOW_PATH.as_bytes());
        Outcome { reply, locks, slow_path: said.map(|at| pushes.remove(at).1), pushes }
    }
}

impl Lock {
    fn read(fields: RespValue, ends: &RespValue) -> Lock {
        let text = |reply: &RespValue| match reply {
            RespValue::String(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?} in a hash"),
        };
        let raw = match fields {
            RespValue::Array(parts) => {
                parts.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
            }
            _ => BTreeMap::new(), // a key of another type
        };
        let ends = match ends {
            RespValue::Int(ends) => u64::try_from(*ends).ok(),
            _ => None,
        };
        let fields = expand_line(&raw).unwrap_or_else(|_| raw.clone());
        Lock { fields, raw, ends }
    }
}

/// A server that no one else uses.
pub(super) trait Server {
    fn query(&mut self, commands: &[Command]) -> Vec<RespValue>;

    /// The messages since the last call.
    fn heard(&mut self) -> Vec<(Bytes, Bytes)>;

    fn fill(&mut self, is_full: bool);
}

/// The channels with a subscriber.
fn channels() -> impl Iterator<Item = String> {
    heard_channels().chain([SLOW_PATH.into()])
}

pub(super) struct Embedded {
    engine: EmbeddedCluster,
    heard: UnboundedReceiver<PubSubEvent>,
    _subscription: Arc<dyn PubSubConnection>,
}

impl Embedded {
    pub(super) fn start() -> Box<dyn Server> {
        let engine = EmbeddedCluster::builder().standalone().manual_time().build();
        let (subscription, mut heard) =
            at_once(engine.connector().subscribe(&engine.addresses()[0])).unwrap();
        for channel in channels() {
            at_once(subscription.subscribe(channel.as_bytes(), false)).unwrap();
            heard.try_recv().unwrap();
        }
        Box::new(Embedded { engine, heard, _subscription: subscription })
    }
}

impl Server for Embedded {
    fn query(&mut self, commands: &[Command]) -> Vec<RespValue> {
        commands.iter().map(|command| self.engine.query(0, &words(command))).collect()
    }

    fn heard(&mut self) -> Vec<(Bytes, Bytes)> {
        let mut all = Vec::new();
        while let Ok(PubSubEvent::Message { channel, payload }) = self.heard.try_recv() {
            all.push((channel, payload));
        }
        all
    }

    fn fill(&mut self, is_full: bool) {
        self.engine.faults().set_out_of_memory(0, is_full);
    }
}

pub(super) struct Real {
    connection: RealConnection,
    handler: RealConnection,
    _server: RealServer,
}

impl Real {
    pub(super) fn start() -> Box<dyn Server> {
        let server = RealServer::start(false);
        let mut handler = server.connect();
        for channel in channels() {
            handler.query(&["SSUBSCRIBE", &channel]);
        }
        Box::new(Real { connection: server.connect(), handler, _server: server })
    }
}

impl Server for Real {
    fn query(&mut self, commands: &[Command]) -> Vec<RespValue> {
        self.connection.ask_all(commands.iter().map(Vec::as_slice))
    }

    fn heard(&mut self) -> Vec<(Bytes, Bytes)> {
        let mut all = Vec::new();
        let mut reply = self.handler.query(&["PING"]);
        while let Some(message) = message(&reply) {
            all.push(message);
            reply = self.handler.reply();
        }
        all
    }

    fn fill(&mut self, is_full: bool) {
        let limit = if is_full { "1" } else { "0" };
        self.connection.query(&["CONFIG", "SET", "maxmemory", limit]);
    }
}
