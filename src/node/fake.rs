//! Servers that answer what a test tells them to, on the paused clock of the test's runtime.
#![allow(clippy::disallowed_methods)]

mod connection;
mod replies;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock::{Clock, Moment};
use crate::node::{Command, Notice, Reply};

pub(crate) use replies::{address, cluster_info, id_of, ran, server_error, slots, text};

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
    fn now(&self) -> Moment {
        Moment::from_origin(self.0.elapsed())
    }

    fn sleep_until(&self, until: Moment) -> BoxFuture<'static, ()> {
        tokio::time::sleep_until(self.0 + until.since_origin()).boxed()
    }
}

/// What a server does with a command.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Answer(Reply),
    /// Answers after a while.
    Late(Duration, Reply),
    /// The answer arrives after a while, and is read by a task of the connection that lets others
    /// go first so often.
    Unread(Duration, usize, Reply),
    /// Never answers.
    Hang,
    /// The connection breaks.
    Break {
        maybe_sent: bool,
    },
    /// A pipeline gets one answer too few.
    Short,
}

/// How a server takes a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Door {
    #[default]
    Open,
    Refuses,
    /// There is no way to it.
    Unreachable,
    Hangs,
    /// Opens after a while.
    Slow(Duration),
    /// Refuses (a wrong password): for good, unless credentials are asked for at each dial.
    Locked,
}

/// A cluster of fake servers, named by host (their port is always 1).
#[derive(Clone)]
pub(crate) struct Fakes(Arc<Shared>);

struct Shared {
    started: Instant,
    /// Credentials are asked for at each dial.
    renews: AtomicBool,
    servers: Mutex<HashMap<Arc<str>, Server>>,
    /// Host names of several servers.
    names: Mutex<HashMap<Arc<str>, Vec<Arc<str>>>>,
    /// The addresses of names are never told.
    names_hang: AtomicBool,
}

#[derive(Default)]
struct Server {
    door: Door,
    dials: usize,
    /// Pipelines that came, with those of one command.
    pipelines: usize,
    /// Does not answer anything.
    stopped: bool,
    /// What happens to the next scripts; then they are answered.
    scripts: VecDeque<Act>,
    /// What happens to all scripts that `scripts` does not cover.
    always: Option<Act>,
    /// Answers NOSCRIPT until it is sent the text of a script.
    knows_no_script: bool,
    slots: Option<Reply>,
    /// Its answer to `CLUSTER MYID`, if that is not its host with `-id`.
    id: Option<Reply>,
    /// Its answer to `CLUSTER INFO`, if that is not the state `ok` at epoch 1.
    info: Option<Reply>,
    /// How long it takes to answer `CLUSTER SLOTS`.
    slots_take: Duration,
    /// The beginning of its run id, if that is not its host.
    process: Option<String>,
    /// What it says to `WAIT`. Without any, one replica confirms at once.
    confirms: Option<Act>,
    /// Breaks all connections made so far when it is counted up.
    generation: usize,
    log: Vec<String>,
    subscribers: Vec<mpsc::UnboundedSender<Notice>>,
    joins: VecDeque<JoinAct>,
    /// Joins that wait for an answer, where all do.
    held_joins: Option<VecDeque<HeldJoin>>,
    /// The run id that it tells, if it is not made of its host.
    run_id: Option<&'static str>,
    /// It is a Valkey of this version.
    valkey: Option<&'static str>,
    is_replica: bool,
    /// What it says as a sentinel.
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
    /// The master's run id, if that is not made of its host.
    pub(crate) run_id: Option<&'static str>,
    /// The sentinels that it knows, with or without itself.
    pub(crate) peers: &'static [&'static str],
}

type HeldJoin = (mpsc::WeakUnboundedSender<Notice>, Bytes);

/// What a server does with `SSUBSCRIBE`. Without any, it confirms it.
#[derive(Clone, Debug)]
pub(crate) enum JoinAct {
    Refuse(&'static str),
    Ignore,
}

impl fmt::Debug for Fakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fakes")
    }
}

impl Fakes {
    /// Servers that all name these masters of ranges of slots.
    pub(crate) fn new(ranges: &[(u16, u16, &str)]) -> Fakes {
        let fakes = Fakes(Arc::new(Shared {
            started: Instant::now(),
            renews: AtomicBool::new(false),
            servers: Mutex::default(),
            names: Mutex::default(),
            names_hang: AtomicBool::new(false),
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

    pub(crate) fn set_slots_of(&self, host: &str, reply: Reply) {
        self.with(host, |server| server.slots = Some(reply));
    }

    /// Makes a server one without a cluster.
    pub(crate) fn set_alone(&self, host: &str) {
        let disabled =
            || Reply::Error(server_error("ERR This instance has cluster support disabled"));
        self.with(host, |server| {
            server.slots = Some(disabled());
            server.id = Some(disabled());
            server.info = Some(disabled());
        });
    }

    /// What a server says to `CLUSTER MYID`.
    pub(crate) fn set_id_of(&self, host: &str, reply: Reply) {
        self.with(host, |server| server.id = Some(reply));
    }

    /// What a server says to `CLUSTER INFO`.
    pub(crate) fn set_info_of(&self, host: &str, reply: Reply) {
        self.with(host, |server| server.info = Some(reply));
    }

    /// How long a server takes to answer `CLUSTER SLOTS`: what it says is what it knew when it was
    /// asked.
    pub(crate) fn set_slots_take(&self, host: &str, time: Duration) {
        self.with(host, |server| server.slots_take = time);
    }

    /// Restarts a server: its run id begins with this from now on, and its connections break.
    pub(crate) fn restart(&self, host: &str, process: &str) {
        self.with(host, |server| server.process = Some(process.into()));
        self.cut(host);
    }

    /// Makes a host name one of several servers. Who dials it gets the first one that is open.
    pub(crate) fn set_name(&self, name: &str, hosts: &[&str]) {
        let hosts = hosts.iter().map(|host| Arc::from(*host)).collect();
        self.0.names.lock().unwrap().insert(name.into(), hosts);
    }

    /// Leaves questions for the addresses of a name without an answer. Dials go on all the same.
    pub(crate) fn hang_names(&self, hang: bool) {
        self.0.names_hang.store(hang, Ordering::Relaxed);
    }

    pub(crate) fn set_door(&self, host: &str, door: Door) {
        self.with(host, |server| server.door = door);
    }

    /// Has clients ask for their credentials at each dial.
    pub(crate) fn renew_credentials(&self) {
        self.0.renews.store(true, Ordering::Relaxed);
    }

    /// Makes the next scripts at that server end so, one after another.
    pub(crate) fn script(&self, host: &str, acts: impl IntoIterator<Item = Act>) {
        self.with(host, |server| server.scripts.extend(acts));
    }

    /// Makes all scripts at that server end so.
    pub(crate) fn always(&self, host: &str, act: Act) {
        self.with(host, |server| server.always = Some(act));
    }

    /// Makes that server forget all scripts, until it is sent the text of one.
    pub(crate) fn forget_scripts(&self, host: &str) {
        self.with(host, |server| server.knows_no_script = true);
    }

    /// Makes `WAIT` end so at that server.
    pub(crate) fn confirm(&self, host: &str, act: Act) {
        self.with(host, |server| server.confirms = Some(act));
    }

    /// Stops a server as SIGSTOP does: it takes connections and commands, and does not answer.
    pub(crate) fn stop(&self, host: &str, stopped: bool) {
        self.with(host, |server| server.stopped = stopped);
    }

    /// Breaks all connections to that server.
    pub(crate) fn cut(&self, host: &str) {
        self.with(host, |server| {
            server.generation += 1;
            server.subscribers.clear();
        });
    }

    pub(crate) fn dials(&self, host: &str) -> usize {
        self.with(host, |server| server.dials)
    }

    pub(crate) fn pipelines(&self, host: &str) -> usize {
        self.with(host, |server| server.pipelines)
    }

    /// The commands that server got since the last look, but those of the handshake.
    pub(crate) fn log(&self, host: &str) -> Vec<String> {
        self.with(host, |server| std::mem::take(&mut server.log))
    }

    /// How often a server was asked something, by the beginning of the command. Does not empty the
    /// log.
    pub(crate) fn count(&self, host: &str, beginning: &str) -> usize {
        self.with(host, |server| {
            server.log.iter().filter(|line| line.starts_with(beginning)).count()
        })
    }

    pub(crate) fn on_join(&self, host: &str, acts: impl IntoIterator<Item = JoinAct>) {
        self.with(host, |server| server.joins.extend(acts));
    }

    /// Leaves all joins at that server without an answer until `answer_joins`.
    pub(crate) fn hold_joins(&self, host: &str) {
        self.with(host, |server| server.held_joins.get_or_insert_default().clear());
    }

    /// Confirms the joins that came first, so many of them.
    pub(crate) fn answer_joins(&self, host: &str, joins: usize) {
        self.with(host, |server| {
            let Some(held) = &mut server.held_joins else {
                return;
            };
            for (notify, channel) in held.drain(..joins.min(held.len())) {
                if let Some(notify) = notify.upgrade() {
                    let _ = notify.send(Notice::Joined { channel });
                }
            }
        });
    }

    /// Puts another server behind that address, for connections that are made from now on.
    pub(crate) fn set_run_id(&self, host: &str, run_id: &'static str) {
        self.with(host, |server| server.run_id = Some(run_id));
    }

    /// Makes a server a Valkey of that version, for connections that are made from now on.
    pub(crate) fn set_valkey(&self, host: &str, version: &'static str) {
        self.with(host, |server| server.valkey = Some(version));
    }

    /// Makes a server say that it is a replica.
    pub(crate) fn set_replica(&self, host: &str, is_replica: bool) {
        self.with(host, |server| server.is_replica = is_replica);
    }

    /// Makes a server a sentinel that knows this.
    pub(crate) fn set_sentinel(&self, host: &str, sentinel: FakeSentinel) {
        self.with(host, |server| server.sentinel = Some(sentinel));
    }

    /// Tells this to all who subscribe at that server.
    pub(crate) fn notify(&self, host: &str, notice: Notice) {
        self.with(host, |server| {
            server.subscribers.retain(|subscriber| subscriber.send(notice.clone()).is_ok())
        });
    }

    /// How many subscription connections that server has.
    pub(crate) fn subscribers(&self, host: &str) -> usize {
        self.with(host, |server| {
            server.subscribers.retain(|subscriber| !subscriber.is_closed());
            server.subscribers.len()
        })
    }

    pub(crate) fn server_ms(&self) -> u64 {
        EPOCH_MS + self.0.started.elapsed().as_millis() as u64
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Server>> {
        self.0.servers.lock().unwrap()
    }

    fn with<T>(&self, host: &str, act: impl FnOnce(&mut Server) -> T) -> T {
        act(self.servers().entry(host.into()).or_default())
    }

    /// What that server does with a command.
    fn act(&self, host: &str, command: &Command) -> Act {
        let words: Vec<_> = command.iter().map(String::from_utf8_lossy).collect();
        let ms = self.server_ms();
        self.with(host, |server| {
            match &*words[0] {
                "TIME" | "INFO" => {}
                "CLUSTER" if words[1] == "MYID" => {}
                _ => server.log.push(words.join(" ")),
            }
            if server.stopped {
                return Act::Hang;
            }
            match &*words[0] {
                "TIME" => Act::Answer(Reply::List(vec![
                    text(&(ms / 1000).to_string()),
                    text(&(ms % 1000 * 1000).to_string()),
                ])),
                "SENTINEL" => replies::of_sentinel(host, server.sentinel, &words[1]),
                "INFO" if words[1] == "replication" => {
                    let role = if server.is_replica { "slave" } else { "master" };
                    Act::Answer(text(&format!("# Replication\r\nrole:{role}\r\n")))
                }
                "INFO" => {
                    let process = server.process.as_deref().unwrap_or(host);
                    let own = format!("{process}-0123456789abcdef");
                    let run_id = server.run_id.unwrap_or(&own);
                    let version =
                        server.valkey.map(|version| format!("valkey_version:{version}\r\n"));
                    let version = version.unwrap_or_default();
                    Act::Answer(text(&format!("# Server\r\n{version}run_id:{run_id}\r\n")))
                }
                "CLUSTER" => match &*words[1] {
                    "MYID" => Act::Answer(server.id.clone().unwrap_or_else(|| text(&id_of(host)))),
                    "INFO" => {
                        Act::Answer(server.info.clone().unwrap_or_else(|| cluster_info("ok", 1)))
                    }
                    _ => Act::Late(server.slots_take, server.slots.clone().unwrap_or(Reply::Nil)),
                },
                "ASKING" => Act::Answer(text("OK")),
                "WAIT" => server.confirms.clone().unwrap_or(Act::Answer(Reply::Int(1))),
                "DELIFEQ" => server.scripts.pop_front().unwrap_or(Act::Answer(Reply::Int(1))),
                "EVALSHA" if server.knows_no_script => refusal("NOSCRIPT No matching script."),
                "EVAL" | "EVALSHA" => {
                    server.knows_no_script = false;
                    let next = server.scripts.pop_front().or_else(|| server.always.clone());
                    next.unwrap_or_else(|| Act::Answer(ran(ms)))
                }
                other => panic!("a command that no fake server knows: {other}"),
            }
        })
    }
}

/// An error reply.
pub(crate) fn refusal(text: &str) -> Act {
    Act::Answer(Reply::Error(server_error(text)))
}
