//! Judges a history independently: it knows nothing about the library except the events that the
//! workers logged.

use std::collections::{BTreeMap, HashMap};

use oracle::history::{self, Guilt, Rule, disagreement};

use super::history::{Grant, History, Hold, Nanos, Outcome};

/// How many examples of each kind are kept in words.
const EXAMPLES: usize = 5;

/// A master's last writes that its replicas may miss when it dies, as a time.
const JUST: Nanos = 1_000_000_000;

/// How long a process keeps a cached lock that none of its tasks uses. It checks once a second.
const KEPT: Nanos = 2_500_000_000;

/// How long a waiter stays in the queue when nothing renews it: the default of the client.
const WAITER_TTL: Nanos = 10_000_000_000;

/// The number of pieces of each lock's history that the search judges as well.
const PIECES: usize = 8;

/// The end of a request that was not granted in time.
const TIMED_OUT: &str = "TimedOut";

/// A start and an end.
type Span = (Nanos, Nanos);

/// Times in which no request for a lock has to succeed, and times in which none of a worker has to.
#[derive(Clone, Debug, Default)]
pub struct Excuses {
    pub names: HashMap<usize, Vec<Span>>,
    pub workers: HashMap<usize, Vec<Span>>,
    /// How long a process that a recall cannot reach keeps a cached lock.
    pub lease: Nanos,
    /// How long a client may not know that its subscription has ended.
    pub unaware: Nanos,
}

impl Excuses {
    /// The excuses of one worker for one lock, sorted and disjoint.
    fn of(&self, name: usize, worker: usize) -> Vec<Span> {
        let all = [self.names.get(&name), self.workers.get(&worker)];
        let mut spans: Vec<Span> = all.into_iter().flatten().flatten().copied().collect();
        spans.sort_unstable();
        let mut apart: Vec<Span> = Vec::new();
        for (from, until) in spans {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => apart.push((from, until)),
            }
        }
        apart
    }
}

/// A kind of finding: its count, and a few cases in words.
#[derive(Clone, Debug, Default)]
pub struct CaseCount {
    pub count: usize,
    pub examples: Vec<String>,
}

impl CaseCount {
    pub fn note(&mut self, example: impl FnOnce() -> String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// What the checker found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub requests: usize,
    pub grants: usize,
    pub writes: usize,
    /// Two holders relied on the lock at once, and one of them wrote; or holders relied on more
    /// permits than the limit.
    pub overlaps: CaseCount,
    /// A token that is not greater than that of a grant before its request, or of a holder that
    /// ended before its grant; or a token that two grants have.
    pub tokens: CaseCount,
    /// The same where one of the two was granted by a cached handle. If the server has ended a
    /// cached lease, the process gives out tokens of it until it knows.
    pub tokens_cached: CaseCount,
    /// Tries that were refused although no holder or waiter can have blocked them.
    pub denied: CaseCount,
    /// Permits that were granted ahead of a waiter that had queued before their request.
    pub passed: CaseCount,
    /// Pieces of a history on which the judge and the search disagree.
    pub disagreements: CaseCount,
    /// Writes that the store accepted after one with a newer token.
    pub stale: CaseCount,
    /// Writes that the store refused.
    pub refused: usize,
    /// Of those, the writes of holders that relied on the lock until the end: another process had a
    /// newer token by then.
    pub overtaken: CaseCount,
    /// Leases that ended before their holders released them, and whose holders noticed.
    pub lost: CaseCount,
    /// Of those, the losses that were noticed after a rival was granted. By its own clock, the
    /// guard reported the loss before.
    pub noticed_late: usize,
    /// Of those, the losses of processes that ran meanwhile: they logged another event after the
    /// end of the lease.
    pub late_though_awake: CaseCount,
    /// The losses that were noticed before a rival was granted.
    pub noticed_in_time: usize,
    /// Leases that a release or a renewal reported as lost before they could have ended: grants or
    /// renewals that the server acknowledged and then lost.
    pub vanished: CaseCount,
    /// Releases without a certain outcome.
    pub unknown: usize,
    /// Releases that failed.
    pub unreleased: CaseCount,
    /// Requests that waited long after the last holder had released the lock.
    pub stuck: CaseCount,
    /// Requests that timed out with less than half of their time excused.
    pub timed_out: CaseCount,
    /// Requests that failed, by the kind of the error.
    pub failed: BTreeMap<String, usize>,
    /// From request to grant of a lock, sorted.
    pub waits: Vec<Nanos>,
    /// The same for permits.
    pub waits_for_permits: Vec<Nanos>,
}

impl Findings {
    /// `wait_limit` is how long a waiter may wait for a lock that nobody holds.
    pub fn of(history: &History, excuses: &Excuses, wait_limit: Nanos) -> Findings {
        let mut findings = Findings::default();
        let mut names: HashMap<usize, LockHistory<'_>> = HashMap::new();
        for hold in history.holds() {
            findings.count(hold);
            let LockHistory { holds: held, waits, others } = names.entry(hold.name).or_default();
            others.extend(hold.granted.is_none().then_some(hold));
            held.extend(JudgedHold::of(hold, history, excuses.lease));
            let failed = hold.failed.as_ref().map(|(at, _)| *at);
            let until = hold.granted.map(|grant| grant.at).or(failed);
            waits.extend(until.map(|until| (hold, until)));
        }
        findings.waits.sort_unstable();
        findings.waits_for_permits.sort_unstable();
        for (name, lock) in &mut names {
            lock.holds.sort_by_key(|held| held.grant.at);
            lock.waits.sort_by_key(|(_, until)| *until);
            let excuses_of = |worker| excuses.of(*name, worker);
            findings.judge(lock.as_judged(history, excuses_of, excuses), lock);
            let LockHistory { holds, waits, .. } = lock;
            findings.stale_writes(holds);
            findings.losses(holds, history);
            findings.stuck(holds, waits, excuses_of, wait_limit);
        }
        findings
    }

    fn count(&mut self, hold: &Hold) {
        self.requests += 1;
        if let Some(grant) = hold.granted {
            self.grants += 1;
            let wait = grant.at.saturating_sub(hold.requested);
            match hold.permits {
                Some(_) => self.waits_for_permits.push(wait),
                None => self.waits.push(wait),
            }
        }
        if let Some((_, kind)) = &hold.failed {
            *self.failed.entry(kind.clone()).or_default() += 1;
        }
        self.writes += hold.writes.iter().flatten().count();
        let refused = hold.writes.iter().filter(|sequence| sequence.is_none()).count();
        self.refused += refused;
        if refused > 0 && hold.lost.is_none() && hold.ended.is_some_and(|(_, believed)| believed) {
            self.overtaken
                .note(|| format!("the store refused a write of {}, which held", shown(hold)));
        }
        match hold.released {
            Some((_, Outcome::Unknown)) => self.unknown += 1,
            Some((at, Outcome::Failed)) => {
                self.unreleased.note(|| format!("the release of {} at {at} failed", shown(hold)))
            }
            _ => {}
        }
    }

    /// Judges the lock by its tokens. Each case names the guilty pair.
    fn judge(&mut self, mut judged: history::History, lock: &LockHistory<'_>) {
        let told = |id: usize| lock.told(id);
        if let Some(piece) = disagreement(&judged, PIECES) {
            self.disagreements.note(|| format!("{piece:?}"));
        }
        let mut guilty = judged.judge();
        let is_cached = |id: usize| lock.holds.get(id).is_some_and(|held| held.grant.cached);
        let is_of_cache =
            |guilt: &Guilt| is_cached(guilt.first) || guilt.second.is_some_and(is_cached);
        if guilty.iter().any(|guilt| guilt.rule == Rule::Order && is_of_cache(guilt)) {
            // The judge names one pair for each hold. It may hide a pair of plain handles.
            judged.holds.retain(|hold| !is_cached(hold.id));
            guilty.retain(|guilt| guilt.rule != Rule::Order || is_of_cache(guilt));
            guilty.extend(judged.judge().into_iter().filter(|guilt| guilt.rule == Rule::Order));
        }
        let limit = judged.limit.unwrap_or_default();
        for guilt in guilty {
            let first = told(guilt.first);
            let second = || guilt.second.map(told).unwrap_or_default();
            let found = match guilt.rule {
                Rule::Overlap | Rule::TooMany(_) => &mut self.overlaps,
                Rule::Order if is_of_cache(&guilt) => &mut self.tokens_cached,
                Rule::Order | Rule::SameToken => &mut self.tokens,
                Rule::Refused => &mut self.denied,
                Rule::Passed => &mut self.passed,
            };
            found.note(|| match guilt.rule {
                Rule::Overlap => format!("{first}, and {}", second()),
                Rule::TooMany(relied) => {
                    format!("{relied} of {limit} permits are held with {first}")
                }
                Rule::Order => format!("{first}, though after {}", second()),
                Rule::SameToken => format!("the same token: {first}, and {}", second()),
                Rule::Refused => format!("{first} was refused, with nobody in its way"),
                Rule::Passed => format!("{first} went before {}", second()),
            });
        }
    }

    /// Compares the store's order with the order of the tokens.
    fn stale_writes(&mut self, holds: &[JudgedHold<'_>]) {
        let mut accepted: Vec<(u64, &JudgedHold<'_>)> = holds
            .iter()
            .flat_map(|held| {
                held.hold.writes.iter().flatten().map(move |sequence| (*sequence, held))
            })
            .collect();
        accepted.sort_by_key(|(sequence, _)| *sequence);
        let mut last = 0;
        for (sequence, held) in accepted {
            if held.grant.token < last {
                self.stale.note(|| {
                    format!(
                        "write {sequence} of {} with token {} after {last}",
                        shown(held.hold),
                        held.grant.token
                    )
                });
            }
            last = last.max(held.grant.token);
        }
    }

    fn losses(&mut self, holds: &[JudgedHold<'_>], history: &History) {
        for (number, held) in holds.iter().enumerate() {
            let known =
                held.hold.lost.is_some() || held.hold.ended.is_some_and(|(_, believed)| !believed);
            let noticed = held.hold.lost.or(held.hold.ended.map(|(at, _)| at)).unwrap_or(held.end);
            if known {
                // A request that waited for it.
                let is_rival = |other: &&JudgedHold<'_>| {
                    held.excludes(other) && other.hold.requested < noticed
                };
                if let Some(rival) = holds[number + 1..].iter().find(is_rival) {
                    let late = rival.grant.at < noticed;
                    self.noticed_late += usize::from(late);
                    self.noticed_in_time += usize::from(!late);
                    if late && history.was_awake(held.hold.worker, held.end, noticed) {
                        self.late_though_awake
                            .note(|| format!("{} noticed its loss at {noticed}", shown(held.hold)));
                    }
                }
                self.lost.note(|| format!("{} noticed its loss at {noticed}", shown(held.hold)));
            }
            // A lease whose release came late may have ended on the way.
            let released = matches!(held.hold.released, Some((at, Outcome::AlreadyLost)) if at < held.grant.deadline);
            // The logged deadline is a lower bound.
            let renewed = known && noticed < held.grant.deadline;
            if released || renewed {
                self.vanished.note(|| {
                    format!(
                        "{} was gone at {noticed}, before its lease could have ended",
                        shown(held.hold)
                    )
                });
            }
        }
    }

    /// No request waits long for a lock that nobody holds.
    fn stuck(
        &mut self,
        holds: &[JudgedHold<'_>],
        waits: &[(&Hold, Nanos)],
        excuses: impl Fn(usize) -> Vec<Span>,
        wait_limit: Nanos,
    ) {
        let mut granted = holds.iter().peekable();
        let (mut all_gone, mut writers_gone) = (0, 0);
        for &(hold, until) in waits {
            while let Some(held) = granted.next_if(|held| held.grant.at < until) {
                let gone = held.gone_for_certain(&excuses(held.hold.worker));
                all_gone = gone.max(all_gone);
                if held.hold.is_write {
                    writers_gone = gone.max(writers_gone);
                }
            }
            let is_read = !hold.is_write && hold.permits.is_none();
            let gone = if is_read { writers_gone } else { all_gone };
            let (requested, excuses) = (hold.requested, excuses(hold.worker));
            let is_timed_out = hold.failed.as_ref().is_some_and(|(_, kind)| kind == TIMED_OUT);
            if is_timed_out && excused((requested, until), &excuses) < (until - requested) / 2 {
                self.timed_out.note(|| format!("{} was given up at {until}", shown(hold)));
            }
            let from = gone.max(requested);
            if until > from && until - from > wait_limit + excused((from, until), &excuses) {
                self.stuck.note(|| {
                    format!("{} waited until {until}, and nobody had it since {from}", shown(hold))
                });
            }
        }
    }
}

/// The part of a time that the excuses cover.
fn excused((from, until): Span, excuses: &[Span]) -> Nanos {
    let within = |(begin, end): &Span| (*end).min(until).saturating_sub((*begin).max(from));
    excuses.iter().map(within).sum()
}

/// The history of one lock.
#[derive(Default)]
struct LockHistory<'a> {
    holds: Vec<JudgedHold<'a>>,
    /// The requests that were granted or failed, and when.
    waits: Vec<(&'a Hold, Nanos)>,
    /// The requests that were not granted.
    others: Vec<&'a Hold>,
}

impl LockHistory<'_> {
    /// Its history for the judge.
    fn as_judged(
        &self,
        history: &History,
        excuses_of: impl Fn(usize) -> Vec<Span>,
        &Excuses { lease, unaware, .. }: &Excuses,
    ) -> history::History {
        let all = self.holds.iter().map(|held| held.hold).chain(self.others.iter().copied());
        let limit = all.filter_map(|hold| hold.permits).next().map(|permits| permits.limit);
        let numbered = self.holds.iter().enumerate();
        let holds = numbered.map(|(id, held)| held.as_judged(id, &excuses_of(held.hold.worker)));
        let mut judged =
            history::History { limit, unaware, holds: holds.collect(), ..Default::default() };
        let caches = self.holds.iter().any(|held| held.grant.cached);
        for (id, hold) in self.others.iter().enumerate() {
            let requested = hold.requested;
            match hold.refused {
                Some(answered) => judged.refusals.push(history::Refusal {
                    id: self.holds.len() + id,
                    writes: hold.is_write,
                    permits: hold.permits.map_or(0, |permits| permits.wanted),
                    requested,
                    answered,
                    // A try waits for holders that only cache the lock.
                    waited: caches.then_some(answered + WAITER_TTL),
                }),
                None => {
                    let gone = may_be_there_until(hold, history, lease);
                    judged.attempts.push(history::Attempt { requested, gone });
                }
            }
        }
        judged
    }

    /// Tells of a hold, or of a request that was not granted, by its number for the judge.
    fn told(&self, id: usize) -> String {
        match self.holds.get(id) {
            Some(held) => format!("{} from {} until {}", shown(held.hold), held.grant.at, held.end),
            None => shown(self.others[id - self.holds.len()]),
        }
    }
}

/// A hold, and the time until which its holder relied on it.
struct JudgedHold<'a> {
    hold: &'a Hold,
    grant: Grant,
    end: Nanos,
    /// When the hold has ended at the latest: its release or, without a certain one, its deadline.
    gone: Nanos,
    /// The same where a server loses its last writes, or where a recall cannot reach the holder.
    expired: Nanos,
}

impl<'a> JudgedHold<'a> {
    fn of(hold: &'a Hold, history: &History, lease: Nanos) -> Option<JudgedHold<'a>> {
        // The holder of a guard that came too late knew it.
        let grant = hold.granted.filter(|grant| grant.deadline > grant.at)?;
        let end = match hold.ended {
            Some((at, true)) => at,
            // The logged deadline is a lower bound, and so is this.
            Some((at, false)) => {
                [Some(at), hold.lost].into_iter().flatten().fold(grant.deadline, Nanos::min)
            }
            None => grant.deadline.min(history.lived_until(hold.worker)),
        };
        let gone = match hold.released {
            Some((at, Outcome::Released | Outcome::AlreadyLost)) => at,
            Some((at, _)) => grant.deadline.max(at),
            None => grant.deadline,
        };
        // A cached lock may be renewed for as long as it is kept.
        let kept = if grant.cached { KEPT + lease } else { 0 };
        let expired = gone.max(grant.deadline).max(gone + kept);
        let dies = history.when_killed(hold.worker);
        let dies_with_it = dies.is_some_and(|at| grant.cached && at <= gone + KEPT);
        Some(JudgedHold {
            hold,
            grant,
            end,
            gone: if dies_with_it { expired } else { gone },
            expired,
        })
    }

    /// The new master may not know of a release just before a fault, or during it: then the end of
    /// the lease ends the hold.
    fn gone_for_certain(&self, excuses: &[Span]) -> Nanos {
        let may_be_forgotten =
            |(from, until): &Span| self.gone + JUST >= *from && self.gone <= *until;
        match excuses.iter().any(may_be_forgotten) {
            true => self.expired,
            false => self.gone,
        }
    }

    /// Whether it may share its token.
    fn is_shared(&self) -> bool {
        self.grant.cached && !self.hold.is_write
    }

    fn as_judged(&self, id: usize, excuses: &[Span]) -> history::Hold {
        let Hold { is_write, requested, worker, permits, ref kept, .. } = *self.hold;
        let granted = self.grant.at;
        history::Hold {
            id,
            writes: is_write,
            token: self.grant.token,
            shares: self.is_shared().then_some(worker),
            requested,
            granted,
            end: self.end,
            // Where no recall arrives, a cached lock may be kept until its lease ends.
            gone: if self.grant.cached { self.expired } else { self.gone_for_certain(excuses) },
            permits: permits.map_or(0, |permits| permits.wanted),
            kept: kept.clone(),
            is_excused: excused((requested, granted), excuses) > 0,
        }
    }

    fn excludes(&self, other: &JudgedHold<'_>) -> bool {
        self.hold.is_write || other.hold.is_write
    }
}

/// A grant or a waiter that no client knows of stays until it expires.
fn may_be_there_until(hold: &Hold, history: &History, lease: Nanos) -> Nanos {
    let failed = hold.failed.as_ref().map(|(at, _)| *at);
    let ended = failed.or(history.when_killed(hold.worker));
    ended.map_or(Nanos::MAX, |at| at + lease.max(WAITER_TTL))
}

fn shown(hold: &Hold) -> String {
    let token = hold.granted.map_or(0, |grant| grant.token);
    let what = match hold.permits {
        Some(permits) => format!("{} permits", permits.wanted),
        None if hold.is_write => "write".into(),
        None => "read".into(),
    };
    format!(
        "worker {}'s {what} of lock {} (token {token}, requested at {})",
        hold.worker, hold.name, hold.requested
    )
}
