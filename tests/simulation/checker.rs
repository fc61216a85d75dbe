//! The checks after each script that a server has run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use oracle::step::{Fairness, Setting};
use oracle::{LockHash, client_of, step};
use rwlease::Client;
use rwlease::embedded::{CommandObserver, ServedCommand};

use crate::census::Census;
use crate::ledger::{AFTERMATH, Book};
use crate::network_model::Storm;
use crate::plan::{Plan, SEMAPHORE};
use crate::reached;
use crate::recall_races::Crossings;
use crate::users::key;
use crate::verdict::Court;

/// The most calls of `redis.call` that one run of a script may make.
pub const MOST_CALLS: u32 = 120;

/// The most by which two servers' clocks differ if they are trusted, in ms.
const SKEW_MS: u64 = 1_000;

/// Clones share the rules.
#[derive(Clone)]
pub struct Checker(pub Arc<Mutex<Rules>>);

pub struct Rules {
    court: Court,
    census: Census,
    storm: Storm,
    book: Book,
    scripts: BTreeMap<Vec<u8>, &'static str>,
    clients: BTreeMap<String, Client>,
    locks: BTreeMap<Vec<u8>, usize>,
    /// The last seen state of each lock at a server.
    seen: BTreeMap<(usize, usize), LockHash>,
    /// The greatest token of each lock.
    tokens: BTreeMap<usize, u64>,
    /// All leases of each lock so far: acquisition, token.
    granted: BTreeMap<usize, BTreeSet<(String, u64)>>,
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
    /// The waits of each lock at a server.
    fairness: BTreeMap<(usize, usize), Fairness>,
    crossings: Crossings,
    pub served: u64,
    pub most_calls: u32,
}

/// One run of a script, and where it ran.
pub struct Step<'a> {
    pub lock: usize,
    pub server: usize,
    /// Its replica receives nothing.
    pub replica_lags: bool,
    run: oracle::step::Step<'a>,
}

impl<'a> Deref for Step<'a> {
    type Target = oracle::step::Step<'a>;

    fn deref(&self) -> &Self::Target {
        &self.run
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
            fairness: BTreeMap::new(),
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
            granted: BTreeMap::new(),
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

    pub fn add_client(&self, locks: &Client, host: usize) {
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
        rules.fairness.retain(|(other, _), _| *other != lock);
    }

    /// Forgets a lock at a server that is about to receive it.
    pub fn forget_at(&self, lock: usize, server: usize) {
        let mut rules = self.0.lock().unwrap();
        rules.seen.remove(&(lock, server));
        rules.fairness.remove(&(lock, server));
    }

    /// A lock has moved. Its last seen state moves too, unless a newer one was seen at the target.
    /// (By a clock that is far ahead, its key may have expired on the way.)
    pub fn has_moved(&self, lock: usize, from: usize, to: usize) {
        let mut rules = self.0.lock().unwrap();
        if let Some(hash) = rules.seen.remove(&(lock, from)).filter(|_| rules.trusts_clocks) {
            rules.seen.entry((lock, to)).or_insert(hash);
            if let Some(waits) = rules.fairness.remove(&(lock, from)) {
                rules.fairness.entry((lock, to)).or_insert(waits);
            }
        }
    }

    /// A server's clock was set. By its old time, keys may have expired, which do not come back
    /// when the clock is set back.
    pub fn clock_was(&self, server: usize, ms: u64) {
        let mut rules = self.0.lock().unwrap();
        let has_ended = |hash: &LockHash| hash.expires.is_some_and(|expires| expires <= ms);
        let ended: Vec<usize> = rules
            .seen
            .iter()
            .filter(|((_, at), hash)| *at == server && has_ended(hash))
            .map(|((lock, _), _)| *lock)
            .collect();
        for lock in ended {
            rules.seen.remove(&(lock, server));
            rules.fairness.remove(&(lock, server));
            rules.forgiven.insert(lock);
            rules.book.spoil(lock);
        }
    }

    /// The next token of the lock may be lower.
    pub fn forgive(&self, lock: usize) {
        self.0.lock().unwrap().forgiven.insert(lock);
    }

    pub fn split(&self, lock: usize, is_split: bool) {
        set_member(&mut self.0.lock().unwrap().split, lock, is_split);
    }

    /// A late request for this lock may have run, or a released lease may have come back.
    pub fn expect_in_doubt(&self, lock: usize) {
        self.0.lock().unwrap().in_doubt.insert(lock);
    }

    pub fn set_full_memory(&self, server: usize, is_full: bool) {
        set_member(&mut self.0.lock().unwrap().full, server, is_full);
    }

    pub fn set_lagging(&self, master: usize, lags: bool) {
        set_member(&mut self.0.lock().unwrap().lagging, master, lags);
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
    pub fn seen(&self, lock: usize, server: usize) -> Option<LockHash> {
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
        if reply.first().is_some_and(|word| word.starts_with('-')) {
            if let [id, _lease, _mode, _token, _tokens] = args
                && script == "renew"
                && reply[0].starts_with("-ASK")
            {
                self.crossings.met_ask(lock, text(id));
            }
            self.check_error(script.strip_prefix("semaphore/").unwrap_or(script), &reply[0]);
            return;
        }
        self.most_calls = self.most_calls.max(served.calls());
        if served.calls() > MOST_CALLS {
            let calls = served.calls();
            self.court.accuse("bounded work", || format!("{script} made {calls} calls"));
        }
        let now = served.now() / 1000;
        let place = (lock, served.server());
        let before = self.seen.remove(&place).map(|before| LockHash { now, ..before });
        // After a clock was set, a key may expire early.
        let has_ended = |before: &LockHash| !self.trusts_clocks && before.is_expired();
        if before.as_ref().is_some_and(has_ended) {
            self.forgiven.insert(lock);
            self.book.spoil(lock);
        }
        let before = before.filter(|before| !has_ended(before));
        let words = served.fields().map(|(field, value)| (lossy(field), lossy(value)));
        let after = LockHash::decode(words.collect(), served.expires(), now);
        let (args, reply) = ([&[*here], args].concat(), in_words(reply));
        let (granted, absent) = (self.granted.remove(&lock).unwrap_or_default(), &self.absent);
        // A client that claims to be subscribed is subscribed until the first fault.
        let hears =
            |client: &str| (self.is_undisturbed && !absent.contains(client)).then_some(true);
        let newest = match self.forgiven.contains(&lock) {
            true => 0,
            false => self.tokens.get(&lock).copied().unwrap_or(0),
        };
        let setting = Setting {
            hears: Some(&hears),
            newest: (!self.split.contains(&lock)).then_some(newest),
            given: Some(&granted),
            skew: SKEW_MS,
            distrusts_clocks: !self.trusts_clocks,
            is_memory_full: self.full.contains(&served.server()),
            ..Setting::default()
        };
        let step = Step {
            lock,
            server: served.server(),
            replica_lags: self.lagging.contains(&served.server()),
            run: oracle::step::Step {
                script,
                args: args.iter().map(|word| text(word)).collect(),
                reply: &reply,
                before: before.as_ref(),
                after: &after,
                setting,
            },
        };
        self.book.saw_fence(lock, after.number("fence"));
        if ["granted", "renewed"].contains(&step.status()) {
            self.book.saw_contact(lock, client_of(step.id()));
        }
        if step.status() == "forced" {
            self.book.doubt(lock, self.court.now() + AFTERMATH, false); // it breaks exclusion
        }
        let mut violation = step::first_violation(&step, |rule| self.court.judges(rule));
        if lock != SEMAPHORE {
            let fairness = self.fairness.entry(place).or_default().judge(&step);
            violation = violation.or(fairness);
        }
        if let Some(violation) = violation {
            self.court.accuse(violation.rule, || {
                format!("lock {lock} at server {}: {}", step.server, violation.what)
            });
        }
        self.check_owners(&step);
        match lock {
            SEMAPHORE => reached::by_permits(&self.census, &step),
            _ => {
                self.crossings.look(&step, self.court.now());
                reached::by_change(&self.census, &step);
            }
        }
        let minted = step.granted().map(|holder| holder.token).max();
        // Such a release may have overtaken its call, whose answer no client waits for.
        let absent = (step.name(), step.status()) == ("release", "not_found");
        let absent = absent.then(|| client_of(step.id()).to_owned());
        self.absent.extend(absent);
        if let Some(minted) = minted {
            let greatest = self.tokens.entry(lock).or_default();
            let is_forgiven = self.forgiven.remove(&lock);
            *greatest = if is_forgiven { minted } else { minted.max(*greatest) };
        }
        let mut granted = granted;
        granted.extend(after.holders().map(|holder| (holder.id.clone(), holder.token)));
        self.granted.insert(lock, granted);
        self.seen.insert(place, after);
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
            "-LOCKARGS invalid id: it holds the lock in the other mode",
            "-LOCKARGS invalid id: it waits in the other mode",
        ];
        if !expected.iter().any(|expected| error.starts_with(expected)) {
            self.court.accuse("no script fails", || format!("{script}: {error}"));
        }
        let never_refused = [
            "release",
            "renew",
            "grant_waiters",
            "downgrade",
            "accept_transfer",
            "release_permits",
        ];
        if error.starts_with("-OOM") && never_refused.contains(&script) {
            self.court.accuse("a full memory refuses only what takes a lock", || {
                format!("{script}: {error}")
            });
        }
    }

    /// Checks that no server has a record that its client does not know.
    fn check_owners(&self, step: &Step<'_>) {
        if self.in_doubt.contains(&step.lock) {
            return;
        }
        let holders = step.after.holders().map(|holder| &holder.id);
        for id in holders.chain(step.after.waiters.keys()) {
            let client = self.clients.get(client_of(id));
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

fn set_member(set: &mut BTreeSet<usize>, member: usize, is_member: bool) {
    match is_member {
        true => set.insert(member),
        false => set.remove(&member),
    };
}

fn text(word: &[u8]) -> &str {
    std::str::from_utf8(word).unwrap_or("")
}

fn lossy(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
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
