//! Recalls that cross a call of a cached holder, and answers that it misses: rare states that no
//! change of the hash shows.

use std::collections::BTreeMap;
use std::time::Duration;

use oracle::client_of;

use crate::census::Census;
use crate::checker::Step;
use crate::ledger::Book;
use crate::network_model::Storm;

pub struct Crossings {
    census: Census,
    storm: Storm,
    book: Book,
    /// The host of each client.
    pub hosts: BTreeMap<String, usize>,
    /// When each holder was recalled, by lock and acquisition.
    called_back: BTreeMap<(usize, String), Duration>,
}

impl Crossings {
    pub fn new(census: Census, storm: Storm, book: Book) -> Crossings {
        Crossings { census, storm, book, hosts: BTreeMap::new(), called_back: BTreeMap::new() }
    }

    /// ASK has redirected the contact of a cached holder.
    pub fn met_ask(&self, lock: usize, id: &str) {
        let host = self.hosts.get(client_of(id));
        if host.is_some_and(|host| !self.book.is_used(lock, *host)) {
            self.census.count("ASK met an idle cached holder");
        }
    }

    pub fn look(&mut self, step: &Step<'_>, now: Duration) {
        self.by_recall(step);
        self.by_answer(step);
        for holder in step.after.holders().filter(|holder| holder.state == 'c') {
            self.called_back.entry((step.lock, holder.id.clone())).or_insert(now);
        }
    }

    /// Counts calls that were sent before the recall of their holder.
    fn by_recall(&mut self, step: &Step<'_>) {
        let of = (step.lock, step.id().to_owned());
        let Some(called) = self.called_back.get(&of) else { return };
        if self.storm.last_of(&of.1).is_none_or(|sent| sent.at >= *called) {
            return;
        }
        match step.script {
            "renew" => self.census.count("a recall crossed a contact"),
            "downgrade" => self.census.count("a recall crossed a downgrade"),
            "release" => self.census.count("a recall crossed a release"),
            _ => {}
        }
    }

    /// Counts contacts that minted tokens for a cached write, and whose answer was lost.
    fn by_answer(&self, step: &Step<'_>) {
        let fence = |hash: &oracle::LockHash| hash.number("fence");
        let minted = step.before.is_some_and(|before| fence(step.after) > fence(before));
        let has = step.after.holder(step.id());
        let is_contact = step.script == "renew" && has.is_some_and(|has| has.is_cached());
        let is_heard = self.storm.last_of(step.id()).is_none_or(|sent| sent.is_answered);
        if is_contact && minted && !is_heard {
            self.census.count("tokens were lost with the answer of a contact");
        }
    }
}
