//! The checks after each script that a server has run.

use std::collections::{BTreeMap, BTreeSet};

use rwlease::Locks;
use rwlease::embedded::{CommandObserver, ServedCommand};

use crate::book::{AFTERMATH, Book};
use crate::census::Census;
use crate::contract;
use crate::court::Court;
use crate::crossings::Crossings;
use crate::hash::{CLIENT, Hash, Record};
use crate::plan::{Plan, SEMAPHORE};
use crate::queue::Queues;
use crate::reached;
use crate::users::key;
use crate::weather::Storm;
use std::sync::{Arc, Mutex};

/// The most calls of `redis.call` that one run of a script may make.
pub const MOST_CALLS: u32 = 120;

/// Clones share the rules.
#[derive(Clone)]
pub struct Checker(pub Arc<Mutex<Rules>>);

pub struct Rules {
    court: Court,
    census: Census,
    storm: Storm,
    book: Book,
    scripts: BTreeMap<Vec<u8>, &'static str>,
    clients: BTreeMap<String, Locks>,
    locks: BTreeMap<Vec<u8>, usize>,
    /// The last seen state of each lock at a server.
    seen: BTreeMap<(usize, usize), Hash>,
    /// The greatest token of each lock.
    tokens: BTreeMap<usize, u64>,
    /// All leases so far: lock, acquisition, token.
    granted: BTreeSet<(usize, String, u64)>,
    /// Locks whose next token may be lower, because a broken assumption has lost their last tokens.
    forgiven: BTreeSet<usize>,
    /// Locks that two masters serve. Each master mints its own tokens.
    split: BTreeSet<usize>,
    /// Locks that may have records unknown to any client.
    in_doubt: BTreeSet<usize>,
    /// Servers whose memory is full.
    full: BTreeSet<usize>,
    /// Masters whose replica lags.
    lagging: BTreeSet<usize>,
    /// No fault has happened yet.
    is_undisturbed: bool,
    /// Clients whose release has found nothing. It may have overtaken the call that it releases, on
    /// another connection.
    absent: BTreeSet<String>,
    trusts_clocks: bool,
    queues: Queues,
    crossings: Crossings,
    pub served: u64,
    pub most_calls: u32,
}

/// One run of a script.
pub struct Step<'a> {
    pub script: &'static str,
    pub lock: usize,
    pub server: usize,
    /// The server's time in ms.
    pub now: u64,
    /// The time until which it may run, in the server's ms; 0 without a limit.
    pub not_after: u64,
    /// The arguments after the envelope.
    pub args: Vec<&'a str>,
    pub reply: Vec<String>,
    /// The lock's hash before the run, if this server's was seen.
    pub before: Option<&'a Hash>,
    pub after: &'a Hash,
    /// The name of the server.
    pub here: &'a str,
    pub memory_is_full: bool,
    /// Its replica receives nothing.
    pub replica_lags: bool,
    /// The servers' clocks are close to each other and are not set.
    pub trusts_clocks: bool,
}

impl Step<'_> {
    /// Whether the reply has this token and deadline.
    pub fn says(&self, record: Option<Record>) -> bool {
        // A grant names the acquisition first.
        let is_grant = self.status() == "granted";
        if is_grant && self.reply.get(3).map(String::as_str) != Some(self.id()) {
            return false;
        }
        let at = 3 + usize::from(is_grant);
        record.is_some_and(|record| {
            self.number(at) == Some(record.token) && self.number(at + 1) == Some(record.deadline)
        })
    }

    /// A number of the reply.
    pub fn number(&self, at: usize) -> Option<u64> {
        self.reply.get(at)?.parse().ok()
    }

    pub fn status(&self) -> &str {
        self.reply.first().map_or("", String::as_str)
    }

    pub fn id(&self) -> &str {
        self.args.first().copied().unwrap_or("")
    }

    /// Whether this call takes up the lease of another acquisition.
    pub fn takes_up(&self, id: &str) -> bool {
        self.script == "take_up" && self.id() == id
    }

    /// The acquisition that has the lease of `id` afterwards: one that has taken it up, or `id`
    /// itself.
    pub fn heir_of<'b>(&'b self, id: &'b str) -> &'b str {
        let hands_on = self.script == "take_up" && self.status() == "granted";
        if hands_on && self.args.get(3) == Some(&id) { self.id() } else { id }
    }

    /// The ticket of a repeated acquire.
    pub fn ticket(&self) -> Option<u64> {
        self.args.get(6).filter(|_| self.script.starts_with("acquire"))?.parse().ok()
    }

    /// The most waiters that an acquire allows.
    pub fn limit(&self) -> Option<usize> {
        let place = self.args.get(5).filter(|_| self.script.starts_with("acquire"))?;
        place.split(' ').nth(2)?.parse().ok()
    }
}

/// The words of a reply, which is a text or a list.
fn in_words(reply: Vec<String>) -> Vec<String> {
    match &reply[..] {
        [text] => text.split(' ').map(str::to_owned).collect(),
        _ => reply,
    }
}

impl Checker {
    pub fn new(court: Court, census: Census, storm: Storm, book: Book, plan: &Plan) -> Checker {
        Checker(Arc::new(Mutex::new(Rules {
            queues: Queues::new(court.clone()),
            crossings: Crossings::new(census.clone(), storm.clone(), book.clone()),
            court,
            census,
            storm,
            book,
            scripts: BTreeMap::new(),
            clients: BTreeMap::new(),
            locks: plan.all().map(|lock| (key(lock).into_bytes(), lock)).collect(),
            seen: BTreeMap::new(),
            tokens: BTreeMap::new(),
            granted: BTreeSet::new(),
            forgiven: BTreeSet::new(),
            split: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            full: BTreeSet::new(),
            lagging: BTreeSet::new(),
            is_undisturbed: true,
            absent: BTreeSet::new(),
            trusts_clocks: !plan.is_out_of_time(),
            served: 0,
            most_calls: 0,
        })))
    }

    pub fn add_client(&self, locks: &Locks, host: usize) {
        let mut rules = self.0.lock().unwrap();
        for script in locks.scripts() {
            rules.scripts.insert(script.digest().as_bytes().to_vec(), script.name());
            rules.scripts.insert(script.text().as_bytes().to_vec(), script.name());
        }
        rules.clients.insert(locks.client_id(), locks.clone());
        rules.crossings.hosts.insert(locks.client_id(), host);
    }

    pub fn remove_client(&self, id: &str) {
        self.0.lock().unwrap().clients.remove(id);
    }

    /// Forgets the seen states of a lock.
    pub fn forget(&self, lock: usize) {
        let mut rules = self.0.lock().unwrap();
        rules.seen.retain(|(other, _), _| *other != lock);
        rules.queues.forget(lock);
    }

    /// Forgets a lock at a server that is about to receive it.
    pub fn forget_at(&self, lock: usize, server: usize) {
        let mut rules = self.0.lock().unwrap();
        rules.seen.remove(&(lock, server));
        rules.queues.forget_at(lock, server);
    }

    /// A lock has moved. Its last seen state moves too, unless a newer one was seen at the target.
    /// (By a clock that is far ahead, its key may have expired on the way.)
    pub fn has_moved(&self, lock: usize, from: usize, to: usize) {
        let mut rules = self.0.lock().unwrap();
        if let Some(hash) = rules.seen.remove(&(lock, from)).filter(|_| rules.trusts_clocks) {
            rules.seen.entry((lock, to)).or_insert(hash);
            rules.queues.has_moved(lock, from, to);
        }
    }

    /// A server's clock was set. By its old time, keys may have expired, which do not come back
    /// when the clock is set back.
    pub fn clock_was(&self, server: usize, ms: u64) {
        let mut rules = self.0.lock().unwrap();
        let has_ended = |hash: &Hash| hash.expires.is_some_and(|expires| expires <= ms);
        let ended: Vec<usize> = rules
            .seen
            .iter()
            .filter(|((_, at), hash)| *at == server && has_ended(hash))
            .map(|((lock, _), _)| *lock)
            .collect();
        for lock in ended {
            rules.seen.remove(&(lock, server));
            rules.queues.forget_at(lock, server);
            rules.forgiven.insert(lock);
            rules.book.spoil(lock);
        }
    }

    /// The next token of the lock may be lower.
    pub fn forgive(&self, lock: usize) {
        self.0.lock().unwrap().forgiven.insert(lock);
    }

    pub fn split(&self, lock: usize, is_split: bool) {
        let mut rules = self.0.lock().unwrap();
        if is_split {
            rules.split.insert(lock);
        } else {
            rules.split.remove(&lock);
        }
    }

    /// A late request for this lock may have run, or a released lease may have come back.
    pub fn expect_in_doubt(&self, lock: usize) {
        self.0.lock().unwrap().in_doubt.insert(lock);
    }

    pub fn set_full_memory(&self, server: usize, is_full: bool) {
        let full = &mut self.0.lock().unwrap().full;
        if is_full {
            full.insert(server);
        } else {
            full.remove(&server);
        }
    }

    pub fn set_lagging(&self, master: usize, lags: bool) {
        let lagging = &mut self.0.lock().unwrap().lagging;
        if lags {
            lagging.insert(master);
        } else {
            lagging.remove(&master);
        }
    }

    /// From now on, faults happen.
    pub fn disturb(&self) {
        self.0.lock().unwrap().is_undisturbed = false;
    }

    /// The number of served commands, and the most calls of a script.
    pub fn effort(&self) -> (u64, u32) {
        let rules = self.0.lock().unwrap();
        (rules.served, rules.most_calls)
    }

    /// The last seen state of a lock at a server.
    pub fn seen(&self, lock: usize, server: usize) -> Option<Hash> {
        self.0.lock().unwrap().seen.get(&(lock, server)).cloned()
    }
}

impl CommandObserver for Checker {
    fn on_command(&mut self, served: &ServedCommand<'_>) {
        self.0.lock().unwrap().look(served);
    }
}

impl Rules {
    fn look(&mut self, served: &ServedCommand<'_>) {
        let words = served.words();
        let reply = served.reply();
        self.served += 1;
        reached::by_reply(&self.census, words, &reply);
        let [command, script, _, key, here, args @ ..] = words else {
            return;
        };
        if !command.starts_with(b"EVAL") {
            return;
        }
        let Some(&script) = self.scripts.get(*script) else {
            return;
        };
        self.court.note((served.server(), words, &reply), || tell(served, script, &reply));
        let Some(&lock) = self.locks.get(*key) else {
            return;
        };
        let script = script.strip_prefix("semaphore/").unwrap_or(script);
        if reply.first().is_some_and(|word| word.starts_with('-')) {
            if let [id, _lease, _mode, _token, _tokens] = args
                && script == "renew"
                && reply[0].starts_with("-ASK")
            {
                self.crossings.met_ask(lock, text(id));
            }
            self.check_error(script, &reply[0]);
            return;
        }
        self.most_calls = self.most_calls.max(served.calls());
        let now = served.now() / 1000;
        let (before, after) = (self.seen.remove(&(lock, served.server())), Hash::read(served));
        // After a clock was set, a key may expire early.
        let has_ended = |before: &Hash| {
            !self.trusts_clocks && before.expires.is_some_and(|expires| expires <= now)
        };
        if before.as_ref().is_some_and(has_ended) {
            self.forgiven.insert(lock);
            self.book.spoil(lock);
        }
        let before = before.filter(|before| !has_ended(before));
        let (not_after, args) = match args {
            [not_after, args @ ..]
                if script.contains("acquire")
                    || matches!(script, "upgrade" | "take_up" | "set_limit") =>
            {
                (text(not_after).parse().unwrap_or(0), args)
            }
            _ => (0, args),
        };
        let args = args.iter().map(|word| text(word)).collect();
        let step = Step {
            script,
            lock,
            server: served.server(),
            now,
            not_after,
            args,
            reply: in_words(reply),
            before: before.as_ref(),
            after: &after,
            here: text(here),
            memory_is_full: self.full.contains(&served.server()),
            replica_lags: self.lagging.contains(&served.server()),
            trusts_clocks: self.trusts_clocks,
        };
        self.book.saw_fence(lock, after.fence);
        if ["granted", "renewed"].contains(&step.status()) {
            self.book.saw_contact(lock, step.id().get(..CLIENT).unwrap_or(""));
        }
        if served.calls() > MOST_CALLS {
            let calls = served.calls();
            self.court.accuse("bounded work", || format!("{} made {calls} calls", step.script));
        }
        if step.status() == "forced" {
            self.book.doubt(lock, self.court.now() + AFTERMATH, false); // it breaks exclusion
        }
        self.note_overtaken(&step);
        contract::check(&self.court, &step);
        self.check_tokens(&step);
        self.check_owners(&step);
        self.check_hearing(&step);
        if lock == SEMAPHORE {
            reached::by_permits(&self.census, &step);
        } else {
            self.queues.check(&step);
            self.crossings.look(&step, self.court.now());
            reached::by_change(&self.census, &step);
        }
        self.seen.insert((lock, served.server()), after);
    }

    /// Checks that an error is one of those that are expected.
    fn check_error(&self, script: &str, error: &str) {
        let expected = [
            "-MOVED",
            "-ASK",
            "-NOSCRIPT",
            "-CLUSTERDOWN",
            "-OOM",
            "-LOADING",
            // A late acquire gets one of these after its acquisition has changed its mode, or waits
            // to change it.
            "-LOCKARGS id holds in the other mode",
            "-LOCKARGS id waits in the other mode",
        ];
        if !expected.iter().any(|expected| error.starts_with(expected)) {
            self.court.accuse("no script fails", || format!("{script}: {error}"));
        }
        let never_refused = ["release", "renew", "pump", "downgrade", "take_up", "shrink"];
        if error.starts_with("-OOM") && never_refused.contains(&script) {
            self.court.accuse("a full memory refuses only what takes a lock", || {
                format!("{script}: {error}")
            });
        }
    }

    fn check_tokens(&mut self, step: &Step<'_>) {
        // `set_limit` recreates an expired semaphore without a token. The next token is taken from
        // the clock, so it is greater.
        let lives = |before: &&Hash| before.expires.is_none_or(|expires| expires > step.now);
        if let Some(before) = step.before.filter(lives)
            && step.after.exists
            && step.trusts_clocks
            && step.after.fence < before.fence
        {
            let fences = (before.fence, step.after.fence);
            self.court.accuse("the last token is never forgotten", || {
                format!("lock {}: {fences:?}", step.lock)
            });
        }
        let mut minted: Vec<u64> = step
            .after
            .leases(step.now)
            .filter(|(id, _, record)| {
                self.granted.insert((step.lock, (*id).to_owned(), record.token))
            })
            .filter(|(id, _, _)| !step.takes_up(id)) // it has the token of the other acquisition
            .map(|(_, _, record)| record.token)
            .collect();
        minted.sort_unstable();
        for token in minted {
            let greatest = self.tokens.entry(step.lock).or_default();
            let is_forgiven = self.forgiven.remove(&step.lock);
            if is_forgiven || token > *greatest {
                *greatest = token;
            } else if !self.split.contains(&step.lock) {
                let greatest = *greatest;
                self.court.accuse("tokens rise", || {
                    format!("lock {}: {token} after {greatest}", step.lock)
                });
            }
        }
    }

    /// Notes a release that has overtaken its call. No client waits for the answer to that call.
    fn note_overtaken(&mut self, step: &Step<'_>) {
        if step.script == "release" && step.status() == "absent" {
            self.absent.insert(step.id().get(..CLIENT).unwrap_or("").to_owned());
        }
    }

    /// A client that claims to be subscribed is subscribed until the first fault. So no grant may
    /// pass over a living waiter.
    fn check_hearing(&self, step: &Step<'_>) {
        let Some(before) = step.before.filter(|_| self.is_undisturbed) else {
            return;
        };
        for (id, waiter) in &before.waiters {
            let is_gone =
                !step.after.waiters.contains_key(id) && step.after.lease(id, step.now).is_none();
            let wants_too_much = step.after.limit.is_some_and(|limit| waiter.permits > limit);
            let is_another = step.id() != id && waiter.mode != 'u' && !wants_too_much;
            let may_lapse = id.get(..CLIENT).is_some_and(|client| self.absent.contains(client));
            if is_gone && is_another && !may_lapse && before.is_alive(id, waiter, step.now) {
                self.court.accuse("who hears is not passed over", || {
                    format!("lock {} after {}: {id} {waiter:?}", step.lock, step.script)
                });
            }
        }
    }

    /// Checks that no server has a record that its client does not know.
    fn check_owners(&self, step: &Step<'_>) {
        if self.in_doubt.contains(&step.lock) {
            return;
        }
        let leases = step.after.leases(step.now).map(|(id, _, _)| id);
        for id in leases.chain(step.after.waiters.keys().map(String::as_str)) {
            let client = id.get(..CLIENT).and_then(|id| self.clients.get(id));
            let is_unknown = client.is_some_and(|client| !client.knows(id));
            if is_unknown && !self.storm.has_doubled(id) && !self.book.is_kept(id) {
                let (lock, script) = (step.lock, step.script);
                self.court.accuse("no call in doubt is granted later", || {
                    format!("lock {lock} after {script}: {id}, which its client has forgotten")
                });
            }
        }
    }
}

fn text(word: &[u8]) -> &str {
    std::str::from_utf8(word).unwrap_or("")
}

fn tell(served: &ServedCommand<'_>, script: &str, reply: &[String]) -> String {
    let words = served.words();
    let args: Vec<_> = words[3..].iter().map(|word| String::from_utf8_lossy(word)).collect();
    format!(
        "server {} at {}: {script} {} -> {}",
        served.server(),
        served.now(),
        args.join(" "),
        reply.join(" ")
    )
}
