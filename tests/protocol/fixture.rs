//! A lock on a real server, with a clock that stands still until the test moves it.
//!
//! The scripts are the crate's own, behind a clock that reads a key. Each call is judged by all
//! rules, whatever the test is about.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use oracle::LockHash;
use oracle::step::{Setting, Step, first_violation, hash_violation};
use redis::{Connection, FromRedisValue, Value, cmd};
use rwlease::embedded::EmbeddedCluster;
use rwlease::{Client, Script};

use super::request::Request;
use testkit::{EXPIRE_TIME, Server, ServerSettings};

/// Precedes each script, so that the test sets the time.
const GIVEN_CLOCK: &str = "\
local redis = (function(server)
  local function by_given_time(call)
    return function(name, ...)
      if name ~= 'TIME' then
        return call(name, ...)
      end
      local us = call('GET', 'clock:' .. tostring(KEYS[1])) or '1000000000000000'
      return { string.sub(us, 1, -7), tostring(tonumber(string.sub(us, -6))) }
    end
  end
  return { call = by_given_time(server.call), pcall = by_given_time(server.pcall) }
end)(redis)
";

/// Returns the key's fields, if it is a hash, and when its life ends.
const LOOK: &str = "\
local fields = redis.pcall('HGETALL', KEYS[1])
return { fields.err and {} or fields, expire_time }
";

/// Follows the name of a script without its fast paths.
const SLOW_PATH: &str = ", slow path";
const USUAL_PATHS: &str = "local is_fast_path = ";
const NO_USUAL_PATHS: &str = "local is_fast_path = false and ";

/// How long a key outlives the last deadline, how much longer its life may be set, and the longest
/// life of an idle key.
pub const GRACE: u64 = 10_000;
pub const SLACK: u64 = 10_000;
pub const KEEP: u64 = 60_000;

/// The most tokens of one cached write, and the number of readers that one call of a recall checks.
pub const BLOCK: u64 = 1_024;
pub const PASS: usize = 16;
/// Grants, and dead waiters dropped, in one call.
pub const GRANTS: usize = 32;

/// The tag of the lock's slot in calls that do not say otherwise.
pub const TAG: &str = "0";

/// The server's name in calls that do not say otherwise.
pub const HERE: &str = "here";

pub struct Lab {
    connection: Connection,
    url: String,
    key: String,
    digests: Digests,
    us: u64,
    /// The latest time of the clock since the key exists.
    latest: u64,
    /// The lock after the last call, if nothing else has changed it since.
    before: Option<LockHash>,
    given: bool,
    full: bool,
    /// False while a test makes the hash malformed.
    pub checked: bool,
    /// Whether scripts run without their fast paths.
    pub slow_path: bool,
    /// Whether to check if a call has written, which needs a server of the test's own; and whether
    /// the last call has.
    pub watched: bool,
    pub moved: bool,
}

type Digests = BTreeMap<String, String>;

/// An error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: String,
    pub detail: String,
}

pub type Answer = Result<Reply, Refusal>;

/// The envelope of a reply, and the words that belong to its status.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub now: u64,
    pub status: String,
    pub more: bool,
    pub rest: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub token: u64,
    pub deadline: u64,
}

impl Lab {
    /// A lock of its own on the server that all tests of this process share.
    pub fn new() -> Lab {
        static SERVER: OnceLock<Server> = OnceLock::new();
        Lab::on(SERVER.get_or_init(|| start("")))
    }

    /// A lock on a server of the test's own.
    pub fn on(server: &Server) -> Lab {
        Lab::with_clock(server, true)
    }

    /// A lock by the server's own clock.
    pub fn on_server_time(server: &Server) -> Lab {
        Lab::with_clock(server, false)
    }

    fn with_clock(server: &Server, given: bool) -> Lab {
        static LOCKS: AtomicU64 = AtomicU64::new(0);
        let mut connection = connect(&server.url());
        let digests = loaded(&server.url(), given, &mut connection);
        // The server ends a key by its own clock. An hour ahead of it, no key ends within a test.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600;
        let mut lab = Lab {
            connection,
            url: server.url(),
            key: format!("rwlease:{}", LOCKS.fetch_add(1, Ordering::Relaxed)),
            digests,
            us: now * 1_000_000,
            latest: 0,
            before: None,
            given,
            full: false,
            checked: true,
            slow_path: false,
            watched: false,
            moved: false,
        };
        lab.set_clock(lab.us);
        lab
    }

    /// The time that the test has set, in milliseconds.
    pub fn now(&self) -> u64 {
        self.us / 1000
    }

    pub fn now_us(&self) -> u64 {
        self.us
    }

    /// Lets time pass, and deletes a key whose life has ended.
    pub fn pass(&mut self, ms: u64) {
        self.set_clock((self.now() + ms) * 1000);
        if self.ends().is_some_and(|ends| ends <= self.now()) {
            self.delete();
        }
    }

    /// Sets the clock, forwards or backwards.
    pub fn set_clock(&mut self, us: u64) {
        self.us = us;
        self.latest = self.latest.max(us);
        let clock = format!("clock:{}", self.key);
        let full = std::mem::take(&mut self.full);
        if full {
            self.set_full(false);
        }
        self.command::<()>(cmd("SET").arg(clock).arg(us));
        if full {
            self.set_full(true);
        }
    }

    /// Fills the server's memory, or frees it.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
        let limit = u8::from(full);
        self.command::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg(limit));
    }

    /// Adds a microsecond between two calls within the same millisecond. Calls then take the usual
    /// paths.
    fn tick(&mut self) {
        if self.given && !(self.us + 1).is_multiple_of(1000) {
            self.set_clock(self.us + 1);
        }
    }

    /// Sends a call unchanged.
    pub fn send(&mut self, script: &str, args: &[impl AsRef<str>]) -> Answer {
        let keys = [self.key.clone()];
        self.send_keys(script, &keys, args)
    }

    pub fn send_keys(&mut self, script: &str, keys: &[String], args: &[impl AsRef<str>]) -> Answer {
        let args: &[&str] = &args.iter().map(AsRef::as_ref).collect::<Vec<_>>();
        self.tick();
        let written = self.watched.then(|| self.changes());
        let shut = self.slow_path.then(|| self.digests.get(&format!("{script}{SLOW_PATH}")));
        let digest = shut.flatten().unwrap_or_else(|| &self.digests[script]);
        let value = cmd("EVALSHA")
            .arg(digest)
            .arg(keys.len())
            .arg(keys)
            .arg(args)
            .query::<Value>(&mut self.connection);
        let words = value.as_ref().map(words).unwrap_or_default();
        let answer = value.map(|value| Reply::read(value, args)).map_err(|error| Refusal {
            code: error.code().unwrap_or_default().into(),
            detail: error.detail().unwrap_or_default().into(),
        });
        if let Some(written) = written {
            self.moved = self.changes() > written;
        }
        if self.checked {
            self.check(script, args, &words, &answer);
        } else {
            self.before = None;
        }
        answer
    }

    /// Judges a call by the hash after it and, if the clock is the test's, by the hash before it.
    fn check(&mut self, script: &str, args: &[&str], reply: &[String], answer: &Answer) {
        let (after, now) = (self.state(), self.now());
        let skew = self.latest / 1_000 - now;
        let before = self.before.take().map(|before| LockHash { now, ..before });
        let newest = before.as_ref().map(|before| before.number("fence"));
        let setting = Setting { newest, skew, is_memory_full: self.full, ..Setting::default() };
        let (args, before) = (args.to_vec(), before.as_ref());
        let step = Step { script, args, reply, before, after: &after, setting };
        let violation = match self.given && answer.is_ok() {
            true => first_violation(&step, |_| true),
            false => hash_violation(&after, &setting),
        };
        if let Some(violation) = violation {
            panic!(
                "{violation:?}\n{:?} gave {answer:?}\n{:#?}\nBEFORE {:#?}",
                step.args,
                after.stored,
                before.map(|it| it.stored.clone())
            );
        }
        self.before = Some(after);
    }

    /// Makes a call twice. The second call must return the same and change nothing.
    #[track_caller]
    pub fn twice(&mut self, call: impl Fn(&mut Lab) -> Answer) -> Answer {
        let first = call(self);
        let second = self.unchanged(call);
        assert_eq!(first, second, "sent twice");
        first
    }

    /// The answer of a call that must change nothing.
    #[track_caller]
    pub fn unchanged(&mut self, call: impl FnOnce(&mut Lab) -> Answer) -> Answer {
        let before = self.snapshot();
        let answer = call(self);
        assert_eq!(before, self.snapshot(), "changed by a call that answered {answer:?}");
        answer
    }

    pub fn request(&mut self, request: &Request) -> Answer {
        self.send(request.script(), &request.args())
    }

    pub fn read(&mut self, name: &str) -> Answer {
        self.request(&Request::read(name))
    }

    pub fn write(&mut self, name: &str) -> Answer {
        self.request(&Request::write(name))
    }

    /// Reads, or waits to.
    pub fn wait_read(&mut self, name: &str) -> Answer {
        self.request(&Request::read(name).waiting())
    }

    pub fn wait_write(&mut self, name: &str) -> Answer {
        self.request(&Request::write(name).waiting())
    }

    pub fn release(&mut self, name: &str) -> Answer {
        self.send("release", &[HERE, &id(name)])
    }

    /// Releases, but keeps a write until this time.
    pub fn release_until(&mut self, name: &str, until: u64) -> Answer {
        self.send("release", &[HERE, &id(name), &until.to_string()])
    }

    pub fn leave_upgrade(&mut self, name: &str) -> Answer {
        self.send("release", &[HERE, &id(name), "wait"])
    }

    /// Renews what the acquisition has.
    pub fn renew(&mut self, name: &str, lease: u64) -> Answer {
        let (mode, token) = self.held_by(name);
        self.renew_as(name, lease, mode, token)
    }

    /// Renews what its client believes that it has.
    pub fn renew_as(&mut self, name: &str, lease: u64, mode: &str, token: u64) -> Answer {
        self.send("renew", &[HERE, &id(name), &lease.to_string(), mode, &token.to_string()])
    }

    /// Renews a lease that stays cached, or claims a grant as cached.
    pub fn renew_cached(&mut self, name: &str, lease: u64, tokens: u64) -> Answer {
        let (mode, token) = self.held_by(name);
        let (lease, token, tokens) = (lease.to_string(), token.to_string(), tokens.to_string());
        self.send("renew", &[HERE, &id(name), &lease, mode, &token, &tokens])
    }

    pub fn downgrade_cached(&mut self, name: &str, token: u64, lease: u64) -> Answer {
        let (token, lease) = (token.to_string(), lease.to_string());
        self.send("downgrade", &[HERE, &id(name), &token, &lease, "k"])
    }

    pub fn downgrade(&mut self, name: &str, token: u64, lease: u64) -> Answer {
        let (token, lease) = (token.to_string(), lease.to_string());
        self.send("downgrade", &[HERE, &id(name), &token, &lease])
    }

    /// `taker` takes up what `from` holds in this mode (`r` or `w`) by this token, for ten seconds.
    pub fn accept_transfer(&mut self, from: &str, mode: &str, token: u64, taker: &str) -> Answer {
        let token = token.to_string();
        self.send("accept_transfer", &[HERE, "0", &id(taker), "10000", mode, &id(from), &token])
    }

    pub fn upgrade(&mut self, name: &str, token: u64) -> Answer {
        self.request(&Request::upgrade(name, token))
    }

    pub fn wait_upgrade(&mut self, name: &str, token: u64) -> Answer {
        self.request(&Request::upgrade(name, token).waiting())
    }

    pub fn grant_waiters(&mut self) -> Answer {
        self.send("grant_waiters", &[HERE, TAG])
    }

    /// Calls `grant_waiters` until nothing is left to do. Returns the number of calls.
    pub fn grant_all(&mut self) -> u64 {
        for calls in 1..2_000 {
            if !self.grant_waiters().unwrap().more {
                return calls;
            }
        }
        panic!("there is always more: {:#?}", self.state().fields);
    }

    pub fn revoke(&mut self) -> Answer {
        let token = self.last_token();
        self.revoke_up_to(token)
    }

    pub fn force(&mut self) -> Answer {
        let token = self.last_token();
        self.force_up_to(token)
    }

    pub fn revoke_up_to(&mut self, token: u64) -> Answer {
        self.send("revoke", &[HERE, &token.to_string(), TAG])
    }

    pub fn force_up_to(&mut self, token: u64) -> Answer {
        self.send("force_release", &[HERE, &token.to_string(), TAG])
    }

    /// The last token, or the lowest one if none was given.
    pub fn last_token(&mut self) -> u64 {
        let view = self.inspect().unwrap();
        if view.status == "lock" { view.number(0) } else { 1 }
    }

    pub fn raise_token(&mut self, name: &str, token: u64) -> Answer {
        self.send("raise_token", &[HERE, &id(name), &token.to_string()])
    }

    pub fn holds(&mut self, name: &str) -> Answer {
        self.send("holds", &[HERE, &id(name)])
    }

    pub fn inspect(&mut self) -> Answer {
        self.send("inspect", &[HERE, "0", "-", "-", "100"])
    }

    pub fn state(&mut self) -> LockHash {
        let (fields, ends) = self.look();
        LockHash::decode(fields, ends, self.now())
    }

    /// The fields as they are stored, and when the key's life ends.
    pub fn look(&mut self) -> (BTreeMap<String, String>, Option<u64>) {
        let key = self.key.clone();
        let script = format!("{EXPIRE_TIME}{LOOK}");
        let (fields, ends): (_, i64) = self.command(cmd("EVAL").arg(script).arg(1).arg(key));
        (fields, u64::try_from(ends).ok())
    }

    /// The shape with its flags, such as `W0`, and the fields beside the line; `-` without a key.
    pub fn shape(&mut self) -> (String, Vec<String>) {
        let state = self.state();
        let part = |field: &str| state.fields.get(field).map_or("", String::as_str);
        let shape = match state.stored.contains_key("s") {
            true => format!("{}{}", part("shape"), part("flags")),
            false => "-".into(),
        };
        (shape, state.stored.into_keys().filter(|field| field != "s").collect())
    }

    /// The token by which an acquisition holds.
    pub fn token_of(&mut self, name: &str) -> u64 {
        self.held_by(name).1
    }

    /// The mode in which an acquisition holds, and its token.
    fn held_by(&mut self, name: &str) -> (&'static str, u64) {
        let (state, id) = (self.state(), id(name));
        let held = state.record(&id).map(|it| (if it.writes { "w" } else { "r" }, it.token));
        held.unwrap_or(("r", 1))
    }

    /// Everything that is stored of the lock, byte for byte.
    pub fn snapshot(&mut self) -> (Option<Vec<u8>>, BTreeMap<String, String>, Option<u64>) {
        let fields = self.state().stored;
        // The dump of a table depends on its order, which is not guaranteed.
        let dump = match self.encoding().as_str() {
            "hashtable" => None,
            _ => self.at_key("DUMP", &[]),
        };
        (dump, fields, self.ends())
    }

    /// When the key's life ends, if it does.
    pub fn ends(&mut self) -> Option<u64> {
        self.look().1
    }

    pub fn encoding(&mut self) -> String {
        let key = self.key.clone();
        let encoding: Option<String> = self.command(cmd("OBJECT").arg("ENCODING").arg(key));
        encoding.unwrap_or_default()
    }

    pub fn set_field(&mut self, field: &str, value: &str) {
        self.at_key::<()>("HSET", &[field, value]);
        self.before = None;
    }

    /// Replaces the line.
    pub fn set_line(&mut self, change: impl FnOnce(&str) -> String) {
        let line = change(&self.state().stored["s"]);
        self.set_field("s", &line);
    }

    pub fn delete(&mut self) {
        self.at_key::<()>("DEL", &[]);
        (self.latest, self.before) = (self.us, None);
    }

    /// The number of changes since the server's start, which it sends to its replicas.
    pub fn changes(&mut self) -> u64 {
        let info: String = self.command(cmd("INFO").arg("persistence"));
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.unwrap().trim().parse().unwrap()
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// Runs a command on the key.
    pub fn at_key<T: FromRedisValue>(&mut self, command: &str, words: &[&str]) -> T {
        let command = cmd(command).arg(&self.key).arg(words).clone();
        self.command(&command)
    }

    pub fn command<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> T {
        command.query(&mut self.connection).unwrap()
    }

    /// The error that the server returns to a command that it must refuse.
    #[track_caller]
    pub fn refusal(&mut self, command: &redis::Cmd) -> String {
        command.query::<Value>(&mut self.connection).expect_err("it is refused").to_string()
    }

    /// Whether the server has sharded channels. Without them it does not know their commands.
    #[track_caller]
    pub fn has_push(&mut self) -> bool {
        let info: String = self.command(cmd("INFO").arg("server"));
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        let has_push = !version.unwrap().starts_with('6');
        if !has_push {
            for name in ["SPUBLISH", "SSUBSCRIBE"] {
                let refusal = self.refusal(cmd(name).arg(channel("bob")).arg("message"));
                assert!(refusal.contains("unknown command"), "{refusal}");
            }
        }
        has_push
    }

    /// A listener on the channel of a client.
    pub fn listen_as(&mut self, client: &str) -> Listener {
        let channel = channel(client);
        self.listen(&channel)
    }

    /// A connection for subscriptions. Without sharded channels it receives nothing.
    pub fn listen(&mut self, channel: &str) -> Listener {
        if !self.has_push() {
            return Listener(None);
        }
        let mut connection = connect(&self.url);
        connection
            .send_packed_command(&cmd("SSUBSCRIBE").arg(channel).get_packed_command())
            .unwrap();
        let joined = connection.recv_response().unwrap();
        assert!(format!("{joined:?}").contains("ssubscribe"), "{joined:?}");
        Listener(Some(connection))
    }
}

pub struct Listener(Option<Connection>);

impl Listener {
    /// Everything that was published before this call.
    pub fn heard(self) -> Vec<String> {
        let mut all = Vec::new();
        let Some(mut connection) = self.0 else {
            return all;
        };
        connection.send_packed_command(&cmd("PING").get_packed_command()).unwrap();
        loop {
            let message: Vec<Value> =
                redis::from_redis_value(connection.recv_response().unwrap()).unwrap();
            match message.len() {
                3 => all.push(redis::from_redis_value(message[2].clone()).unwrap()),
                _ => return all,
            }
        }
    }

    /// Everything that was published before this call must be this. A server without sharded
    /// channels publishes nothing.
    #[track_caller]
    pub fn hears(self, lab: &mut Lab, expected: Vec<String>) {
        assert_eq!(self.heard(), if lab.has_push() { expected } else { vec![] });
    }
}

/// The words of a reply that is a text.
fn words(reply: &Value) -> Vec<String> {
    match reply {
        Value::BulkString(text) => {
            String::from_utf8_lossy(text).split(' ').map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// The crate's own scripts or, for `make mutants`, those in a folder.
fn scripts() -> Vec<&'static Script> {
    let Some(folder) = std::env::var_os("RWLEASE_LUA") else {
        return rwlease::scripts().collect();
    };
    let changed = Client::builder().scripts_from(folder).unwrap();
    let locks = runtime().block_on(changed.connect_embedded(&EmbeddedCluster::new())).unwrap();
    locks.scripts().collect()
}

/// The digests of the scripts at a server, by name. Each server is sent the scripts once.
fn loaded(url: &str, given: bool, connection: &mut Connection) -> Digests {
    static LOADED: Mutex<BTreeMap<(String, bool), Digests>> = Mutex::new(BTreeMap::new());
    let mut all = LOADED.lock().unwrap();
    let at = (url.to_owned(), given);
    // Another server may have used this address before.
    if let Some(digests) = all.get(&at).filter(|digests| knows(digests, connection)) {
        return digests.clone();
    }
    let mut digests = Digests::new();
    for script in scripts() {
        let clock = if given { GIVEN_CLOCK } else { "" };
        let text = format!("{clock}{}", script.text());
        let kind = script.name().split_once('/').map(|(kind, _)| kind);
        if text.contains(USUAL_PATHS) && matches!(kind, None | Some("semaphore")) {
            let shut = text.replacen(USUAL_PATHS, NO_USUAL_PATHS, 1);
            digests.insert(format!("{}{SLOW_PATH}", script.name()), load(shut, connection));
        }
        digests.insert(script.name().into(), load(text, connection));
    }
    let shut = digests.keys().filter(|name| name.ends_with(SLOW_PATH)).count();
    assert_eq!(shut, 9, "the scripts with fast paths");
    all.insert(at, digests.clone());
    digests
}

fn knows(digests: &Digests, connection: &mut Connection) -> bool {
    let digests: Vec<&String> = digests.values().collect();
    let there: Vec<bool> =
        cmd("SCRIPT").arg("EXISTS").arg(digests).query(connection).unwrap_or_default();
    !there.is_empty() && there.into_iter().all(|is_there| is_there)
}

/// A server of the test's own, so that its lock receives no messages of other tests.
pub fn alone() -> (Server, Lab) {
    let server = start("");
    let lab = Lab::on(&server);
    (server, lab)
}

/// A server of the test's own, with one more line of configuration.
pub fn start(line: &str) -> Server {
    let settings = ServerSettings::default().line(line);
    runtime().block_on(Server::start(&settings)).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn load(script: String, connection: &mut Connection) -> String {
    cmd("SCRIPT").arg("LOAD").arg(script).query(connection).unwrap()
}

fn connect(url: &str) -> Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

/// Makes an acquisition id from a short name: letters for the client, digits for the acquisition
/// ("ann1").
pub fn id(name: &str) -> String {
    let client = name.trim_end_matches(|character: char| character.is_ascii_digit());
    format!("{client:_<11}{:0>5}", &name[client.len()..])
}

/// The channel of a client whose waiters name the tag `0`.
fn channel(client: &str) -> String {
    format!("{{0}}rwlease:{client:_<11}")
}

impl Reply {
    /// Parses a text of words, or a list of the same. A grant names the acquisition of the call,
    /// and that is left out.
    fn read(value: Value, args: &[&str]) -> Reply {
        let mut items = match value {
            Value::BulkString(text) => text
                .split(|byte| *byte == b' ')
                .map(|word| Value::BulkString(word.to_vec()))
                .collect::<Vec<_>>()
                .into_iter(),
            Value::Array(items) => items.into_iter(),
            other => panic!("{other:?}"),
        };
        let mut next = || items.next().unwrap();
        let status: String = redis::from_redis_value(next()).unwrap();
        let now = redis::from_redis_value(next()).unwrap();
        let more: u64 = redis::from_redis_value(next()).unwrap();
        assert!(more <= 1, "more is {more}");
        if status == "granted" {
            let id: String = redis::from_redis_value(next()).unwrap();
            let place = if args.len() > 2 && args[2] == id { 2 } else { 1 };
            assert_eq!(args[place], id, "the grant is for the caller");
        }
        Reply { status, now, more: more == 1, rest: items.collect() }
    }

    pub fn number(&self, at: usize) -> u64 {
        redis::from_redis_value(self.rest[at].clone()).unwrap()
    }

    pub fn text(&self, at: usize) -> String {
        redis::from_redis_value(self.rest[at].clone()).unwrap()
    }

    pub fn list(&self, at: usize) -> Vec<String> {
        redis::from_redis_value(self.rest[at].clone()).unwrap()
    }

    pub fn held(&self) -> Held {
        assert!(matches!(self.rest.len(), 2 | 4), "{self:?}");
        Held { token: self.number(0), deadline: self.number(1) }
    }
}

/// What a test expects from an answer.
pub trait Expect {
    fn status(&self) -> &str;
    fn granted(&self) -> Held;
    fn queued(&self) -> u64;
    fn refused_with(&self, code: &str);
}

impl Expect for Answer {
    #[track_caller]
    fn status(&self) -> &str {
        match self {
            Ok(reply) => &reply.status,
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    #[track_caller]
    fn granted(&self) -> Held {
        assert_eq!(self.status(), "granted", "{self:?}");
        self.as_ref().unwrap().held()
    }

    /// The ticket.
    #[track_caller]
    fn queued(&self) -> u64 {
        assert_eq!(self.status(), "queued", "{self:?}");
        self.as_ref().unwrap().number(0)
    }

    #[track_caller]
    fn refused_with(&self, code: &str) {
        match self {
            Err(refusal) => assert_eq!(refusal.code, code, "{refusal:?}"),
            Ok(reply) => panic!("{reply:?} instead of {code}"),
        }
    }
}
