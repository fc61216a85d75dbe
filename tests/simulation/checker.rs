//! What is looked at whenever a server has run a script.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rwlease::Locks;
use rwlease::embedded::{Served, Watcher};

use crate::book::{AFTERMATH, Book};
use crate::census::Census;
use crate::court::Court;
use crate::hash::{CLIENT, Hash};
use crate::queue::Queues;
use crate::reached;
use crate::users::key;
use crate::weather::Storm;
use std::sync::{Arc, Mutex};

/// The most calls of `redis.call` that one run of a script may make.
pub const MOST_CALLS: u32 = 500;

/// A clone is the same checker.
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
    /// Each lock as it was last seen at a server.
    seen: BTreeMap<(usize, usize), Hash>,
    /// The greatest token of each lock.
    tokens: BTreeMap<usize, u64>,
    /// Every lease that there was: lock, owner, token.
    granted: BTreeSet<(usize, String, u64)>,
    /// Locks whose next token may be lower: their history was cut off in a way that the tokens do not survive.
    forgiven: BTreeSet<usize>,
    /// Locks that two masters serve: each of them has tokens of its own.
    split: BTreeSet<usize>,
    /// Until when requests that came too late may have been carried out.
    ghosts_until: BTreeMap<usize, Duration>,
    queues: Queues,
    pub served: u64,
    pub most_calls: u32,
}

/// One run of a script, as the rules look at it.
pub struct Step<'a> {
    pub script: &'static str,
    pub lock: usize,
    /// The server's time in ms.
    pub now: u64,
    /// What comes after the envelope.
    pub args: Vec<&'a str>,
    pub reply: Vec<String>,
    /// The lock before, if it was seen at this server.
    pub before: Option<&'a Hash>,
    pub after: &'a Hash,
}

impl Step<'_> {
    pub fn status(&self) -> &str {
        self.reply.get(1).map_or("", String::as_str)
    }

    pub fn owner(&self) -> &str {
        self.args.first().copied().unwrap_or("")
    }
}

impl Checker {
    pub fn new(court: Court, census: Census, storm: Storm, book: Book, locks: usize) -> Checker {
        Checker(Arc::new(Mutex::new(Rules {
            queues: Queues::new(court.clone()),
            court,
            census,
            storm,
            book,
            scripts: BTreeMap::new(),
            clients: BTreeMap::new(),
            locks: (0..locks).map(|lock| (key(lock).into_bytes(), lock)).collect(),
            seen: BTreeMap::new(),
            tokens: BTreeMap::new(),
            granted: BTreeSet::new(),
            forgiven: BTreeSet::new(),
            split: BTreeSet::new(),
            ghosts_until: BTreeMap::new(),
            served: 0,
            most_calls: 0,
        })))
    }

    pub fn add_client(&self, locks: &Locks) {
        let mut rules = self.0.lock().unwrap();
        for script in locks.scripts() {
            rules.scripts.insert(script.digest().as_bytes().to_vec(), script.name());
            rules.scripts.insert(script.text().as_bytes().to_vec(), script.name());
        }
        rules.clients.insert(locks.id(), locks.clone());
    }

    pub fn remove_client(&self, id: &str) {
        self.0.lock().unwrap().clients.remove(id);
    }

    /// What was seen of a lock says nothing about it any more.
    pub fn forget(&self, lock: usize) {
        let mut rules = self.0.lock().unwrap();
        rules.seen.retain(|(other, _), _| *other != lock);
        rules.queues.forget(lock);
    }

    /// What a server had of a lock before it becomes its owner is of no use.
    pub fn forget_at(&self, lock: usize, server: usize) {
        self.0.lock().unwrap().seen.remove(&(lock, server));
    }

    /// A lock has moved, with all that was seen of it, unless it has been seen at its new place since.
    pub fn has_moved(&self, lock: usize, from: usize, to: usize) {
        let mut rules = self.0.lock().unwrap();
        if let Some(hash) = rules.seen.remove(&(lock, from)) {
            rules.seen.entry((lock, to)).or_insert(hash);
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

    /// Late requests of this lock may slip through until then.
    pub fn expect_ghosts(&self, lock: usize, until: Duration) {
        self.0.lock().unwrap().ghosts_until.insert(lock, until);
    }

    /// How many commands were served, and the most calls that a script made.
    pub fn effort(&self) -> (u64, u32) {
        let rules = self.0.lock().unwrap();
        (rules.served, rules.most_calls)
    }

    /// A lock as it was last seen at a server.
    pub fn seen(&self, lock: usize, server: usize) -> Option<Hash> {
        self.0.lock().unwrap().seen.get(&(lock, server)).cloned()
    }
}

impl Watcher for Checker {
    fn served(&mut self, served: &Served<'_>) {
        self.0.lock().unwrap().look(served);
    }
}

impl Rules {
    fn look(&mut self, served: &Served<'_>) {
        let words = served.words();
        let reply = served.reply();
        self.served += 1;
        reached::by_reply(&self.census, words, &reply);
        let [command, script, _, key, _, _, args @ ..] = words else {
            return;
        };
        if !command.starts_with(b"EVAL") {
            return;
        }
        let Some(&script) = self.scripts.get(*script) else {
            return;
        };
        self.court
            .note((served.server(), words, &reply), || tell(served, script, &reply));
        let Some(&lock) = self.locks.get(*key) else { return };
        if reply.first().is_some_and(|word| word.starts_with('-')) {
            self.check_error(script, &reply[0]);
            return;
        }
        self.most_calls = self.most_calls.max(served.calls());
        let (before, after) = (self.seen.remove(&(lock, served.server())), Hash::read(served));
        let args = args
            .iter()
            .map(|word| std::str::from_utf8(word).unwrap_or(""))
            .collect();
        let step = Step {
            script,
            lock,
            now: served.now() / 1000,
            args,
            reply,
            before: before.as_ref(),
            after: &after,
        };
        if served.calls() > MOST_CALLS {
            let calls = served.calls();
            self.court
                .accuse("bounded work", || format!("{} made {calls} calls", step.script));
        }
        if step.status() == "forced" {
            self.book.doubt(lock, self.court.now() + AFTERMATH, false); // this is what it is for
        }
        self.check_shape(&step);
        self.check_exclusion(&step);
        self.check_tokens(&step);
        self.check_leases(&step);
        self.check_owners(&step);
        self.queues.check(&step);
        reached::by_change(&self.census, &step);
        self.seen.insert((lock, served.server()), after);
    }

    /// Only these are expected.
    fn check_error(&self, script: &str, error: &str) {
        let expected = [
            "-MOVED",
            "-ASK",
            "-NOSCRIPT",
            "-TRYAGAIN",
            "-CLUSTERDOWN",
            "-OOM",
            "-LOADING",
        ];
        if !expected.iter().any(|expected| error.starts_with(expected)) {
            self.court.accuse("no script fails", || format!("{script}: {error}"));
        }
        let never_refused = ["release", "renew", "pump", "downgrade"];
        if error.starts_with("-OOM") && never_refused.contains(&script) {
            self.court.accuse("a full memory refuses only what takes a lock", || {
                format!("{script}: {error}")
            });
        }
    }

    fn check_shape(&self, step: &Step<'_>) {
        if let Some(malformed) = &step.after.malformed {
            self.court.accuse("a hash is well formed", || {
                format!("lock {} after {}: {malformed}", step.lock, step.script)
            });
        }
    }

    /// What the hash says must not overlap either.
    fn check_exclusion(&self, step: &Step<'_>) {
        let (writers, readers): (Vec<_>, Vec<_>) = step.after.leases(step.now).partition(|(_, writes, _)| *writes);
        if !writers.is_empty() && !readers.is_empty() {
            self.court.accuse("a hash has no reader beside a writer", || {
                format!("lock {}: {writers:?} {readers:?}", step.lock)
            });
        }
    }

    fn check_tokens(&mut self, step: &Step<'_>) {
        if let Some(before) = step.before
            && step.after.exists
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
            .filter(|(owner, _, record)| self.granted.insert((step.lock, (*owner).to_owned(), record.token)))
            .map(|(_, _, record)| record.token)
            .collect();
        minted.sort_unstable();
        for token in minted {
            let greatest = self.tokens.entry(step.lock).or_default();
            if self.forgiven.remove(&step.lock) {
                *greatest = token;
            } else if token > *greatest {
                *greatest = token;
            } else if !self.split.contains(&step.lock) {
                let greatest = *greatest;
                self.court.accuse("tokens rise", || {
                    format!("lock {}: {token} after {greatest}", step.lock)
                });
            }
        }
    }

    /// Nobody but its owner ends or shortens a lease.
    fn check_leases(&self, step: &Step<'_>) {
        let Some(before) = step.before else { return };
        for (owner, writes, record) in before.leases(step.now) {
            let its_own_release = step.script == "release" && step.owner() == owner && step.args.get(1) == Some(&"all");
            if its_own_release || step.script == "force_release" {
                continue;
            }
            let after = step.after.lease(owner, step.now);
            if after.is_none_or(|after| after.deadline < record.deadline) {
                let (lock, script) = (step.lock, step.script);
                self.court.accuse("no lease is shortened", || {
                    format!(
                        "lock {lock}: {script} of {} made {owner}'s {record:?} ({writes}) {after:?}",
                        step.owner()
                    )
                });
            }
        }
    }

    /// Nothing is at a server that its client does not know of.
    fn check_owners(&self, step: &Step<'_>) {
        if self.ghosts_until.contains_key(&step.lock) {
            return;
        }
        let owner = step.owner();
        let leaves_something = step.after.lease(owner, step.now).is_some() || step.after.waiters.contains_key(owner);
        let is_asking = step.script.starts_with("acquire");
        if !is_asking || !leaves_something || self.storm.has_doubled(owner) || owner.len() < CLIENT {
            return;
        }
        if let Some(client) = self.clients.get(&owner[..CLIENT])
            && !client.knows(owner)
        {
            self.court.accuse("no ghosts", || {
                format!("lock {}: {owner}, which its client has forgotten", step.lock)
            });
        }
    }
}

fn tell(served: &Served<'_>, script: &str, reply: &[String]) -> String {
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
