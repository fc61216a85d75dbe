//! Fake servers that answer as a test says, on the paused clock of the test's runtime.
#![allow(clippy::disallowed_methods)]

mod connection;
mod replies;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use rwlease_core::resp::{Command, RespValue};
use rwlease_core::time::LocalInstant;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::backend::PubSubEvent;
use crate::clock::Clock;
use crate::health::ClientHealth;

pub(crate) use replies::{
    address, all_slots_of, cluster_info, id_of, script_reply, server_error, slots, text,
};

/// The time of every fake server when its test begins.
pub(crate) const EPOCH_MS: u64 = 1_700_000_000_000;

/// The time of the test's runtime.
#[derive(Debug)]
pub(crate) struct TestClock(Instant);

impl TestClock {
    pub(crate) fn start() -> Arc<TestClock> {
        Arc::new(TestClock(Instant::now()))
    }
}

impl Clock for TestClock {
    fn now(&self) -> LocalInstant {
        LocalInstant::from_duration(self.0.elapsed())
    }

    fn sleep_until(&self, until: LocalInstant) -> BoxFuture<'static, ()> {
        tokio::time::sleep_until(self.0 + until.as_duration()).boxed()
    }
}

/// What a server does with a command.
#[derive(Clone, Debug)]
pub(crate) enum FakeReply {
    Answer(RespValue),
    /// Answers after a while.
    Delayed(Duration, RespValue),
    /// The answer arrives after a while. The task of the connection that reads it lets others run
    /// first that many times.
    DelayedRead(Duration, usize, RespValue),
    /// Never answers.
    Hang,
    /// The connection breaks.
    Break {
        maybe_sent: bool,
    },
    /// A pipeline gets one answer too few.
    Short,
}

/// Stands for the first argument of the call in the text of a reply: the acquisition's id.
pub(crate) const CALLER: &str = "<caller>";

impl FakeReply {
    fn for_caller(self, id: &str) -> FakeReply {
        let named = |reply| match reply {
            RespValue::String(reply) => text(&String::from_utf8_lossy(&reply).replace(CALLER, id)),
            reply => reply,
        };
        match self {
            FakeReply::Answer(reply) => FakeReply::Answer(named(reply)),
            FakeReply::Delayed(wait, reply) => FakeReply::Delayed(wait, named(reply)),
            act => act,
        }
    }
}

/// How a server reacts to a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum DialBehavior {
    #[default]
    Accept,
    Refuse,
    /// It cannot be reached.
    Unreachable,
    Hang,
    /// Accepts after a while.
    AcceptDelayed(Duration),
    /// Refuses (a wrong password): permanently, unless credentials are fetched for each dial.
    WrongPassword,
}

/// A cluster of fake servers, named by host (their port is always 1).
#[derive(Clone)]
pub(crate) struct FakeCluster(Arc<FakeClusterState>);

struct FakeClusterState {
    started: Instant,
    /// Credentials are fetched for each dial.
    renews: AtomicBool,
    servers: Mutex<HashMap<Arc<str>, FakeServer>>,
    /// Host names that stand for several servers.
    names: Mutex<HashMap<Arc<str>, Vec<Arc<str>>>>,
    /// Queries for the addresses of names are not answered.
    names_hang: AtomicBool,
    health: ClientHealth,
}

#[derive(Default)]
struct FakeServer {
    door: DialBehavior,
    dials: usize,
    /// The number of pipelines that arrived, counting single commands.
    pipelines: usize,
    /// Answers nothing.
    stopped: bool,
    /// The outcomes of the next scripts. After that they are answered.
    scripts: VecDeque<FakeReply>,
    /// The outcome of all scripts that `scripts` does not cover.
    always: Option<FakeReply>,
    /// Answers NOSCRIPT until it receives the text of a script.
    forgets_scripts: bool,
    /// Its answer to `ASKING`, if that is not `OK`.
    asking: Option<FakeReply>,
    slots: Option<RespValue>,
    /// Its answer to `CLUSTER MYID`, if that is not its host with `-id`.
    id: Option<RespValue>,
    /// Its answer to `CLUSTER INFO`, if that is not the state `ok` at epoch 1.
    info: Option<RespValue>,
    /// How long it takes to answer `CLUSTER SLOTS`.
    slots_take: Duration,
    /// How long each script takes, one after the other.
    script_time: Duration,
    /// How long each reply is under way.
    round_trip: Duration,
    /// When it has run the scripts that have arrived.
    busy_until: Option<Instant>,
    /// The beginning of its run id, if that is not its host.
    process: Option<String>,
    /// Its reaction to `WAIT`. Without one, one replica confirms at once.
    wait_reply: Option<FakeReply>,
    /// Connections of an earlier generation are broken.
    generation: usize,
    log: Vec<String>,
    subscribers: Vec<mpsc::UnboundedSender<PubSubEvent>>,
    joins: VecDeque<SubscribeReply>,
    /// Joins that wait for an answer, if joins are held.
    held_joins: Option<VecDeque<HeldSubscribe>>,
    /// The run id that it reports, if that is not made from its host.
    run_id: Option<&'static str>,
    /// It is a Valkey server of this version.
    valkey: Option<&'static str>,
    is_replica: bool,
    /// What it reports as a sentinel.
    sentinel: Option<FakeSentinel>,
}

/// What a sentinel knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FakeSentinel {
    /// The beginning of its id, if that is not its host.
    pub(crate) id: Option<&'static str>,
    pub(crate) epoch: u64,
    /// How long it takes to answer.
    pub(crate) takes: Duration,
    pub(crate) master: Option<&'static str>,
    /// The master's run id, if that is not made from its host.
    pub(crate) run_id: Option<&'static str>,
    /// The sentinels that it knows, with or without itself: each is a host, or `id@host` for the id
    /// of another host.
    pub(crate) peers: &'static [&'static str],
    /// It reports port 0 of the master.
    pub(crate) bad_master: bool,
}

type HeldSubscribe = (mpsc::WeakUnboundedSender<PubSubEvent>, Bytes);

/// How a server reacts to `SSUBSCRIBE`. Without one, it confirms.
#[derive(Clone, Debug)]
pub(crate) enum SubscribeReply {
    Refuse(&'static str),
    Ignore,
}

impl FakeCluster {
    /// Servers that all name these masters of ranges of slots.
    pub(crate) fn new(ranges: &[(u16, u16, &str)]) -> FakeCluster {
        let fakes = FakeCluster(Arc::new(FakeClusterState {
            started: Instant::now(),
            renews: AtomicBool::new(false),
            servers: Mutex::default(),
            names: Mutex::default(),
            names_hang: AtomicBool::new(false),
            health: ClientHealth::default(),
        }));
        fakes.set_slots(ranges);
        fakes
    }

    /// Makes all servers name these masters.
    pub(crate) fn set_slots(&self, ranges: &[(u16, u16, &str)]) {
        for (.., host) in ranges {
            self.with(host, |_| ());
        }
        for server in self.servers().values_mut() {
            server.slots = Some(slots(ranges));
        }
    }

    pub(crate) fn set_slots_of(&self, host: &str, reply: RespValue) {
        self.with(host, |server| server.slots = Some(reply));
    }

    /// Makes these servers name the same masters, and report this epoch.
    pub(crate) fn report(&self, hosts: &[&str], ranges: &[(u16, u16, &str)], epoch: u64) {
        for host in hosts {
            self.set_slots_of(host, slots(ranges));
            self.set_info_of(host, cluster_info("ok", epoch));
        }
    }

    /// Makes a server one without cluster mode.
    pub(crate) fn set_standalone(&self, host: &str) {
        let disabled =
            || RespValue::Error(server_error("ERR This instance has cluster support disabled"));
        self.with(host, |server| {
            server.slots = Some(disabled());
            server.id = Some(disabled());
            server.info = Some(disabled());
        });
    }

    /// Sets a server's answer to `CLUSTER MYID`.
    pub(crate) fn set_id_of(&self, host: &str, reply: RespValue) {
        self.with(host, |server| server.id = Some(reply));
    }

    /// Sets a server's answer to `CLUSTER INFO`.
    pub(crate) fn set_info_of(&self, host: &str, reply: RespValue) {
        self.with(host, |server| server.info = Some(reply));
    }

    /// Sets how long a server takes to answer `CLUSTER SLOTS`. The answer is from the time of the
    /// query.
    pub(crate) fn set_slots_take(&self, host: &str, time: Duration) {
        self.with(host, |server| server.slots_take = time);
    }

    /// Restarts a server: its run id begins with this from now on, and its connections break.
    pub(crate) fn restart(&self, host: &str, process: &str) {
        self.with(host, |server| server.process = Some(process.into()));
        self.break_connections(host);
    }

    /// Makes a host name stand for several servers. A dial of the name leads to the first open one.
    pub(crate) fn set_name(&self, name: &str, hosts: &[&str]) {
        let hosts = hosts.iter().map(|host| Arc::from(*host)).collect();
        self.0.names.lock().unwrap().insert(name.into(), hosts);
    }

    /// Leaves queries for the addresses of a name unanswered. Dials still work.
    pub(crate) fn hang_names(&self, hang: bool) {
        self.0.names_hang.store(hang, Ordering::Relaxed);
    }

    pub(crate) fn set_dial_behavior(&self, host: &str, door: DialBehavior) {
        self.with(host, |server| server.door = door);
    }

    /// Makes clients fetch their credentials for each dial.
    pub(crate) fn renew_credentials(&self) {
        self.0.renews.store(true, Ordering::Relaxed);
    }

    /// Sets the outcomes of the next scripts at that server.
    pub(crate) fn queue_replies(&self, host: &str, acts: impl IntoIterator<Item = FakeReply>) {
        self.with(host, |server| server.scripts.extend(acts));
    }

    /// Sets the outcome of all scripts at that server.
    pub(crate) fn set_reply(&self, host: &str, act: FakeReply) {
        self.with(host, |server| server.always = Some(act));
    }

    /// Sets how long that server runs each script, one after the other.
    pub(crate) fn set_script_time(&self, host: &str, time: Duration) {
        self.with(host, |server| server.script_time = time);
    }

    /// Sets how long the replies of that server are under way.
    pub(crate) fn set_round_trip(&self, host: &str, time: Duration) {
        self.with(host, |server| server.round_trip = time);
    }

    /// Makes that server run no script for so long.
    pub(crate) fn stall(&self, host: &str, time: Duration) {
        self.with(host, |server| server.busy_until = Some(Instant::now() + time));
    }

    /// Sets the answer to `ASKING`.
    pub(crate) fn on_asking(&self, host: &str, act: FakeReply) {
        self.with(host, |server| server.asking = Some(act));
    }

    /// Makes that server forget all scripts, until it receives the text of one.
    pub(crate) fn forget_scripts(&self, host: &str) {
        self.with(host, |server| server.forgets_scripts = true);
    }

    /// Sets the outcome of `WAIT` at that server.
    pub(crate) fn confirm(&self, host: &str, act: FakeReply) {
        self.with(host, |server| server.wait_reply = Some(act));
    }

    /// Stops a server as SIGSTOP does: it accepts connections and commands, and does not answer.
    pub(crate) fn stop(&self, host: &str, stopped: bool) {
        self.with(host, |server| server.stopped = stopped);
    }

    pub(crate) fn break_connections(&self, host: &str) {
        self.with(host, |server| {
            server.generation += 1;
            server.subscribers.clear();
        });
    }

    /// Breaks all connections to that server, and refuses others.
    pub(crate) fn refuse(&self, host: &str) {
        self.set_dial_behavior(host, DialBehavior::Refuse);
        self.break_connections(host);
    }

    pub(crate) fn dials(&self, host: &str) -> usize {
        self.with(host, |server| server.dials)
    }

    pub(crate) fn pipelines(&self, host: &str) -> usize {
        self.with(host, |server| server.pipelines)
    }

    /// The commands that server got since the last call, without those of the handshake.
    pub(crate) fn log(&self, host: &str) -> Vec<String> {
        self.with(host, |server| std::mem::take(&mut server.log))
    }

    /// How many commands with that beginning a server got. Does not empty the log.
    pub(crate) fn count(&self, host: &str, beginning: &str) -> usize {
        self.with(host, |server| {
            server.log.iter().filter(|line| line.starts_with(beginning)).count()
        })
    }

    pub(crate) fn on_subscribe(&self, host: &str, acts: impl IntoIterator<Item = SubscribeReply>) {
        self.with(host, |server| server.joins.extend(acts));
    }

    /// Leaves all joins at that server unanswered until `answer_joins`.
    pub(crate) fn hold_subscribes(&self, host: &str) {
        self.with(host, |server| server.held_joins.get_or_insert_default().clear());
    }

    /// Confirms that many joins, the earliest first.
    pub(crate) fn answer_joins(&self, host: &str, joins: usize) {
        self.with(host, |server| {
            let Some(held) = &mut server.held_joins else {
                return;
            };
            for (notify, channel) in held.drain(..joins.min(held.len())) {
                if let Some(notify) = notify.upgrade() {
                    let _ = notify.send(PubSubEvent::Subscribed { channel });
                }
            }
        });
    }

    /// Makes new connections to that address lead to another server.
    pub(crate) fn set_run_id(&self, host: &str, run_id: &'static str) {
        self.with(host, |server| server.run_id = Some(run_id));
    }

    /// Makes a server a Valkey server of that version, for new connections.
    pub(crate) fn set_valkey(&self, host: &str, version: &'static str) {
        self.with(host, |server| server.valkey = Some(version));
    }

    /// Sets whether a server reports that it is a replica.
    pub(crate) fn set_replica(&self, host: &str, is_replica: bool) {
        self.with(host, |server| server.is_replica = is_replica);
    }

    /// Makes a server a sentinel that reports this.
    pub(crate) fn set_sentinel(&self, host: &str, sentinel: FakeSentinel) {
        self.with(host, |server| server.sentinel = Some(sentinel));
    }

    /// Sends this to all subscribers of that server.
    pub(crate) fn notify(&self, host: &str, notice: PubSubEvent) {
        self.with(host, |server| {
            server.subscribers.retain(|subscriber| subscriber.send(notice.clone()).is_ok())
        });
    }

    /// The number of that server's subscription connections.
    pub(crate) fn subscribers(&self, host: &str) -> usize {
        self.with(host, |server| {
            server.subscribers.retain(|subscriber| !subscriber.is_closed());
            server.subscribers.len()
        })
    }

    pub(crate) fn server_ms(&self) -> u64 {
        EPOCH_MS + self.0.started.elapsed().as_millis() as u64
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<Arc<str>, FakeServer>> {
        self.0.servers.lock().unwrap()
    }

    fn with<T>(&self, host: &str, act: impl FnOnce(&mut FakeServer) -> T) -> T {
        act(self.servers().entry(host.into()).or_default())
    }

    /// That server's reaction to a command.
    fn act(&self, host: &str, command: &Command) -> FakeReply {
        let words: Vec<_> = command.iter().map(String::from_utf8_lossy).collect();
        let ms = self.server_ms();
        self.with(host, |server| {
            match &*words[0] {
                "TIME" | "INFO" => {}
                "CLUSTER" if words[1] == "MYID" => {}
                _ => server.log.push(words.join(" ")),
            }
            if server.stopped {
                return FakeReply::Hang;
            }
            match &*words[0] {
                "TIME" => FakeReply::Answer(RespValue::Array(vec![
                    text(&(ms / 1000).to_string()),
                    text(&(ms % 1000 * 1000).to_string()),
                ])),
                "SENTINEL" => replies::sentinel_reply(host, server.sentinel, &words[1]),
                "INFO" if words[1] == "replication" => {
                    let role = if server.is_replica { "slave" } else { "master" };
                    FakeReply::Answer(text(&format!("# Replication\r\nrole:{role}\r\n")))
                }
                "INFO" => {
                    let process = server.process.as_deref().unwrap_or(host);
                    let own = format!("{process}-0123456789abcdef");
                    let run_id = server.run_id.unwrap_or(&own);
                    let version =
                        server.valkey.map(|version| format!("valkey_version:{version}\r\n"));
                    let version = version.unwrap_or_default();
                    FakeReply::Answer(text(&format!("# Server\r\n{version}run_id:{run_id}\r\n")))
                }
                "CLUSTER" => match &*words[1] {
                    "MYID" => {
                        FakeReply::Answer(server.id.clone().unwrap_or_else(|| text(&id_of(host))))
                    }
                    "INFO" => FakeReply::Answer(
                        server.info.clone().unwrap_or_else(|| cluster_info("ok", 1)),
                    ),
                    _ => FakeReply::Delayed(
                        server.slots_take,
                        server.slots.clone().unwrap_or(RespValue::Nil),
                    ),
                },
                "ASKING" => server.asking.clone().unwrap_or_else(|| FakeReply::Answer(text("OK"))),
                "WAITAOF" => {
                    FakeReply::Answer(RespValue::Array([1, 0].map(RespValue::Int).to_vec()))
                }
                "WAIT" => server.wait_reply.clone().unwrap_or(FakeReply::Answer(RespValue::Int(1))),
                "DELIFEQ" => {
                    server.scripts.pop_front().unwrap_or(FakeReply::Answer(RespValue::Int(1)))
                }
                "EVALSHA" if server.forgets_scripts => refusal("NOSCRIPT No matching script."),
                "EVAL" | "EVALSHA" => {
                    server.forgets_scripts = false;
                    let next = server.scripts.pop_front().or_else(|| server.always.clone());
                    let next = next.unwrap_or_else(|| server.run_script(script_reply(ms)));
                    next.for_caller(words.get(6).map_or("", |id| id))
                }
                other => panic!("a command that no fake server knows: {other}"),
            }
        })
    }
}

impl FakeServer {
    /// Runs a script after those that arrived before.
    fn run_script(&mut self, reply: RespValue) -> FakeReply {
        let now = Instant::now();
        let end = self.busy_until.map_or(now, |end| end.max(now)) + self.script_time;
        self.busy_until = Some(end);
        match end - now {
            Duration::ZERO => FakeReply::Answer(reply),
            wait => FakeReply::Delayed(wait, reply),
        }
    }
}

/// An error reply.
pub(crate) fn refusal(text: &str) -> FakeReply {
    FakeReply::Answer(RespValue::Error(server_error(text)))
}
