//! Rules for each run of a script. Each rule says what is wrong with a step, if anything is.

use crate::checker::call::{Answer, Request};
use crate::checker::permits;
use crate::checker::time::SERVER_NOW;
use crate::checker::view::{Record, View, Waiter};
use crate::client::acquisition::Sending;
use crate::protocol::{Acquire, Acquired, Ended, Envelope, Goal, Grant, Mode, Push, Renewed};

/// How long the key of an idle lock lives at most, in ms.
const KEEP: u64 = 60_000;

/// How long a key outlives its last record, in ms.
const GRACE: u64 = 10_000;

/// One run of a script.
#[derive(Debug)]
pub(super) struct Step<'a> {
    /// The acquisition that it is for.
    pub(super) id: String,
    pub(super) request: &'a Request,
    pub(super) not_after: u64,
    pub(super) before: &'a View,
    pub(super) after: &'a View,
    pub(super) changed: bool,
    pub(super) envelope: Envelope,
    pub(super) answer: &'a Answer,
    pub(super) pushes: &'a [Push],
    /// The acquisitions that are told to give up a cached lease.
    pub(super) recalls: &'a [String],
    /// The acquisitions that are told that a forced release ended their lease, with its token.
    pub(super) ended: &'a [(String, u64)],
    pub(super) hears: u32,
    pub(super) server: String,
    /// The greatest token before the step.
    pub(super) newest: u64,
    pub(super) lost_history: bool,
}

pub(super) type Rule = fn(&Step<'_>) -> Option<String>;

const RULES: [(&str, Rule); 31] = [
    ("the array of readers is dense", readers_are_dense),
    ("waiters are counted and linked", waiters_are_linked),
    ("fields go with what they tell of", fields_go),
    ("the line tells the life of the key", line_tells_life),
    ("the line tells which fields there are", |step| step.after.misplaced.clone()),
    ("no first end of the readers is overlooked", read_min_is_not_late),
    ("a key outlives what it says", key_lives),
    ("a writer is alone", writer_is_alone),
    ("tokens rise", tokens_rise),
    ("a read's token is no write's", token_keeps_its_mode),
    ("the last token is kept", last_token_is_kept),
    ("nobody's lease is touched by others", leases_of_others),
    ("what is revoked is not made longer", revoked_is_not_made_longer),
    ("a lease lasts as long as was asked", lease_lasts),
    ("the living keep their places", living_wait_on),
    ("the dead are not granted", dead_are_not_granted),
    ("who is gone gets nothing", gone_are_passed_over),
    ("who comes too late gets nothing", late_is_stale),
    ("a reply says what is so", reply_is_true),
    ("a release ends all", release_ends_all),
    ("a change names the token", change_names_token),
    ("a message says what is so", messages_are_true),
    ("who is granted is told", grantees_are_told),
    ("who is ended by force is told", ended_are_told),
    ("a grant lasts for its window", grant_lasts_its_window),
    ("a phase is closed when a write ends", phase_is_closed),
    ("the order of the queue is kept", order_is_kept),
    ("whatever frees, frees the next", next_is_freed),
    ("marks fall", marks_fall),
    ("who is cached is marked and counted", cached_are_counted),
    ("the first in line asks who is in its way", first_asks),
];

/// The first rule that a step breaks, and how.
pub(super) fn broken(step: &Step<'_>, judges: impl Fn(&str) -> bool) -> Option<String> {
    let mut rules = RULES.iter().chain(&permits::RULES).filter(|(name, _)| judges(name));
    rules.find_map(|(name, rule)| Some(format!("{name}: {}", rule(step)?)))
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().chain(&permits::RULES).map(|(name, _)| *name)
}

/// The newest token of the holders, or of a forced release.
pub(super) fn newest_token(view: &View) -> u64 {
    let tokens = view.holders().map(|(_, record)| record.token);
    tokens.max().unwrap_or(0).max(view.number("fence"))
}

impl Step<'_> {
    pub(super) fn is_mine(&self, id: &str) -> bool {
        self.id == id
    }

    /// New records: those without an older one that has the same token.
    pub(super) fn granted(&self) -> Vec<(&str, &Record)> {
        let is_new = |(id, record): &(&str, &Record)| {
            self.before.holder(id).is_none_or(|old| old.token != record.token)
        };
        self.after.holders().filter(is_new).collect()
    }

    fn client_hears(&self, id: &str) -> bool {
        self.hears >> (id.as_bytes()[0] - b'0') & 1 == 1
    }

    /// It subscribed here, and is not subscribed any more.
    fn is_gone(&self, id: &str, waiter: &Waiter) -> bool {
        waiter.node == self.server && !self.client_hears(id)
    }

    /// The living waiters in the queue after the step, or before it.
    fn living_after(&self, mode: char) -> impl Iterator<Item = (&str, &Waiter)> {
        self.after.living_waiters().filter(move |(_, waiter)| waiter.mode == mode)
    }

    /// A write ended in this step: it was removed, or had expired.
    fn write_ended(&self) -> bool {
        let Some((id, old)) = &self.before.writer else { return false };
        !self.after.writer.as_ref().is_some_and(|(now, new)| now == id && new.token == old.token)
    }

    /// The ticket that a late request has, or was given.
    pub(super) fn ticket(&self, id: &str) -> Option<u64> {
        match (self.before.waiters.get(id), self.request) {
            (Some(waiter), _) => Some(waiter.ticket),
            (None, Request::Acquire(Acquire { wait: Some(wait), .. })) if self.is_mine(id) => {
                Some(wait.ticket).filter(|ticket| *ticket > 0)
            }
            _ => None,
        }
    }
}

// Rules for the contents of the hash.

fn readers_are_dense(step: &Step<'_>) -> Option<String> {
    let View { readers, array, .. } = step.after;
    let count = step.after.number("readers");
    if readers.len() as u64 != count || array.len() as u64 != count {
        return Some(format!(
            "{count} readers, {} records, {} indices",
            readers.len(),
            array.len()
        ));
    }
    let is_at_home = |(index, id): (&u64, &String)| {
        readers.get(id).is_some_and(|record| record.index == *index) && *index < count
    };
    (!array.iter().all(is_at_home)).then(|| format!("{array:?}"))
}

fn waiters_are_linked(step: &Step<'_>) -> Option<String> {
    let view = step.after;
    let count = |name: &str, wanted: usize| {
        let told = view.number(name);
        (told != wanted as u64).then(|| format!("{name} says {told}, and there are {wanted}"))
    };
    let fair = view.waiters.values().filter(|waiter| waiter.mode == 'w' && waiter.is_fair).count();
    let upgrader = view.word("upgrader").filter(|id| !view.waiters.contains_key(*id));
    count("waiters", view.waiters.len())
        .or_else(|| count("fair", fair))
        .or_else(|| upgrader.map(|id| format!("the upgrader {id} does not wait")))
        .or_else(|| list_is_linked(view, 'w', "writers_head", "writers_tail"))
        .or_else(|| list_is_linked(view, 'r', "readers_head", "readers_tail"))
        .or_else(|| list_is_linked(view, 'p', "head", "tail"))
}

fn list_is_linked(view: &View, mode: char, head: &str, tail: &str) -> Option<String> {
    let wanted = view.waiters.values().filter(|waiter| waiter.mode == mode).count();
    let (mut at, mut before, mut ticket, mut found) = (view.word(head).unwrap_or("-"), "-", 0, 0);
    while at != "-" {
        let Some(waiter) = view.waiters.get(at) else {
            return Some(format!("{at} is linked and does not wait"));
        };
        found += 1;
        if waiter.mode != mode || waiter.previous != before || found > wanted {
            return Some(format!("{at} is linked wrongly"));
        }
        if waiter.ticket < ticket {
            return Some(format!("{at} stands behind a higher ticket"));
        }
        (before, at, ticket) = (at, &waiter.next, waiter.ticket);
    }
    let ends = view.word(tail).unwrap_or("-");
    (found != wanted || ends != before)
        .then(|| format!("{found} of {wanted} in the list to {tail} {ends}"))
}

fn fields_go(step: &Step<'_>) -> Option<String> {
    let view = step.after;
    let nobody_reads = view.readers.is_empty();
    let readers = ["read_min", "forced"].into_iter().find(|field| view.number(field) > 0);
    let sweep = view.word("sweep").map(|_| "sweep");
    let of_readers = readers.or(sweep).filter(|_| nobody_reads);
    let is_idle = nobody_reads && view.waiters.is_empty() && view.writer.is_none();
    let life = view.ends.filter(|ends| is_idle && *ends > SERVER_NOW + KEEP);
    of_readers
        .map(|field| format!("{field} without readers"))
        .or_else(|| life.map(|ends| format!("an idle lock lives until {ends}")))
}

fn line_tells_life(step: &Step<'_>) -> Option<String> {
    let (view, told) = (step.after, step.after.number("life"));
    (!view.is_empty() && view.ends != Some(told))
        .then(|| format!("the line tells {told}, the key ends at {:?}", view.ends))
}

fn read_min_is_not_late(step: &Step<'_>) -> Option<String> {
    let least = step.after.readers.values().map(|record| record.deadline).min()?;
    let told = step.after.number("read_min");
    (told > least).then(|| format!("{told}, and one ends at {least}"))
}

fn key_lives(step: &Step<'_>) -> Option<String> {
    let view = step.after;
    if view.is_empty() {
        return None;
    }
    let Some(ends) = view.ends else { return Some("it never ends".into()) };
    let deadlines = view.holders().map(|(_, record)| record.deadline);
    let last = deadlines.max().filter(|last| ends < last + GRACE);
    let is_used = view.holders().next().is_some() || !view.waiters.is_empty();
    let short = ends < SERVER_NOW + GRACE && step.changed && is_used;
    let waiters = view.living_waiters().map(|(_, waiter)| waiter.ends());
    let place = waiters.max().filter(|last| ends < last + GRACE);
    last.map(|last| format!("it ends at {ends}, a lease at {last}"))
        .or_else(|| place.map(|last| format!("it ends at {ends}, a place in the queue at {last}")))
        .or_else(|| short.then(|| format!("it ends at {ends}, before the grace is over")))
}

fn writer_is_alone(step: &Step<'_>) -> Option<String> {
    let holders = step.after.holders().count();
    (step.after.writes() && holders > 1)
        .then(|| format!("{:?}", step.after.holders().collect::<Vec<_>>()))
}

// Rules for tokens.

fn tokens_rise(step: &Step<'_>) -> Option<String> {
    let mut tokens: Vec<u64> = step.granted().iter().map(|(_, record)| record.token).collect();
    tokens.sort_unstable();
    let mut newest = step.newest;
    for token in tokens {
        if token <= newest {
            return Some(format!("{token} after {newest}"));
        }
        newest = token;
    }
    None
}

fn token_keeps_its_mode(step: &Step<'_>) -> Option<String> {
    let turned = |(id, new): (&str, &Record)| {
        let old = step.before.holder(id)?;
        (old.token == new.token && !old.writes && new.writes).then(|| id.to_owned())
    };
    step.after.holders().find_map(turned)
}

/// After a failover the hash may lack it.
fn last_token_is_kept(step: &Step<'_>) -> Option<String> {
    let newest = step.newest.max(newest_token(step.after));
    let fence = step.after.number("fence");
    let is_forgotten = !step.after.is_empty()
        && !step.before.is_empty() // an expired key takes its history along
        && !step.lost_history
        && fence < newest;
    is_forgotten.then(|| format!("fence is {fence}, and {newest} was given"))
}

// Other rules.

fn leases_of_others(step: &Step<'_>) -> Option<String> {
    step.before.holders().find_map(|(id, old)| {
        let mine = step.is_mine(id);
        let Some(new) = step.after.holder(id) else {
            let is_taken = matches!(step.request, Request::Force(token) if old.token <= *token);
            return (!mine && !is_taken).then(|| format!("{id} holds no more"));
        };
        if new.deadline < old.deadline {
            Some(format!("{id} holds for less time"))
        } else if new.token != old.token {
            let upgrades = !old.writes && new.writes && step.before.waiters.contains_key(id);
            (!mine && !upgrades).then(|| format!("{id} has another lease"))
        } else if old.claimed && !new.claimed {
            Some(format!("{id} has not claimed its lease any more"))
        } else {
            (!mine && (new.deadline, new.claimed) != (old.deadline, old.claimed))
                .then(|| format!("{id} has another end"))
        }
    })
}

fn revoked_is_not_made_longer(step: &Step<'_>) -> Option<String> {
    if let Request::Revoke(token) = step.request {
        let told = step.after.number("revoked");
        let left = |record: &Record| record.token <= *token && record.token > told;
        let is_left = step.after.holders().any(|(_, record)| left(record));
        return is_left.then(|| format!("{token} is, and it says {told}"));
    }
    let revoked = step.before.number("revoked");
    let mut old = step.before.holders().filter(|(_, old)| old.token <= revoked);
    old.find_map(|(id, old)| {
        let new = step.after.holder(id)?;
        let is_more = new.deadline > old.deadline || (new.writes && !old.writes);
        (is_more && new.token <= revoked).then(|| format!("{id}, {old:?}, {new:?}"))
    })
}

/// A repeated acquire finds the lease that it has; any other call renews it.
fn lease_lasts(step: &Step<'_>) -> Option<String> {
    let lease = match step.request {
        Request::Acquire(acquire) => acquire.lease,
        Request::Work(Sending::Renew { renew, .. }) => renew.lease,
        Request::Work(Sending::Downgrade(downgrade)) => downgrade.lease,
        _ => return None,
    };
    let record = step.after.holder(&step.id).filter(|record| record.claimed)?;
    let asked = SERVER_NOW + lease.as_millis() as u64;
    let old = step.before.holder(&step.id);
    let most = old.map_or(0, |old| old.deadline).max(asked);
    let is_new = old.is_none_or(|old| !old.claimed || (old.writes != record.writes));
    let revoked = step.before.number("revoked").max(step.after.number("revoked"));
    let is_anew = record.token > revoked
        && (is_new || matches!(step.answer, Answer::Renewed(Renewed::Held(_))));
    let is_wrong = record.deadline > most || (is_anew && record.deadline < asked);
    is_wrong.then(|| format!("{asked} was asked, and it has {}", record.deadline))
}

fn living_wait_on(step: &Step<'_>) -> Option<String> {
    step.before.living_waiters().find_map(|(id, waiter)| {
        let is_granted = step.after.holder(id).is_some_and(|it| waiter.mode != 'u' || it.writes);
        let stays = is_granted || step.after.waiters.contains_key(id);
        // An upgrader waits only while it reads, and its lease may be renewed.
        let reads =
            |view: &View| view.holder(id).is_some_and(|it| it.token > step.after.number("revoked"));
        let may_not_upgrade = waiter.mode == 'u' && !(reads(step.before) && reads(step.after));
        let leaves = step.is_mine(id)
            && matches!(
                step.request,
                Request::Acquire(_) | Request::GiveBack | Request::Work(Sending::Release(_))
            );
        let may_go = leaves || may_not_upgrade || step.is_gone(id, waiter);
        (!stays && !may_go).then(|| format!("{id} is dropped"))
    })
}

fn dead_are_not_granted(step: &Step<'_>) -> Option<String> {
    step.granted().into_iter().find_map(|(id, _)| {
        let waiter = step.before.waiters.get(id)?;
        (!step.is_mine(id) && !step.before.is_waiter_alive(id, waiter)).then(|| id.to_owned())
    })
}

/// A grant without a subscriber would get no message. But an upgrader's read has become the write.
fn gone_are_passed_over(step: &Step<'_>) -> Option<String> {
    step.granted().into_iter().find_map(|(id, _)| {
        let waiter = step.before.waiters.get(id).filter(|waiter| waiter.mode != 'u')?;
        (!step.is_mine(id) && step.is_gone(id, waiter)).then(|| id.to_owned())
    })
}

// Rules for replies and messages.

fn late_is_stale(step: &Step<'_>) -> Option<String> {
    let is_late = step.not_after > 0 && SERVER_NOW > step.not_after;
    let is_stale = matches!(step.answer, Answer::Acquired(Acquired::Stale));
    match (is_late, is_stale) {
        (true, false) => Some("it was carried out".into()),
        (false, true) => Some("it was in time".into()),
        _ => (is_stale && step.changed).then(|| "something was done".into()),
    }
}

fn reply_is_true(step: &Step<'_>) -> Option<String> {
    let grant = match step.answer {
        Answer::Acquired(Acquired::Granted(grant))
        | Answer::Renewed(Renewed::Held(grant))
        | Answer::Downgraded(Renewed::Held(grant)) => *grant,
        Answer::Acquired(Acquired::Queued { .. }) => return queued_is_true(step),
        Answer::Acquired(Acquired::Refused) => return refused_is_true(step),
        Answer::Acquired(Acquired::Conflict) => {
            let mut upgraders = step.before.living_waiters().filter(|(_, it)| it.mode == 'u');
            let is_alone = upgraders.all(|(id, _)| step.is_mine(id));
            return is_alone.then(|| "nobody else waits to upgrade".into());
        }
        Answer::Renewed(Renewed::Revoked(grant)) => {
            let is_so = step.after.number("revoked") >= grant.token;
            return (!is_so).then(|| "it was not revoked".into());
        }
        Answer::Downgraded(Renewed::Lost) | Answer::Acquired(Acquired::Lost) => {
            return lost_is_true(step);
        }
        // The pump after a renewal may grant the turn of a waiter whose lease was lost in a
        // failover.
        Answer::Renewed(Renewed::Lost) => {
            return step.before.holder(&step.id).map(|_| "lost, and it held".into());
        }
        _ => return None,
    };
    if matches!(step.answer, Answer::Renewed(_)) && step.before.holder(&step.id).is_none() {
        return Some("what is over is renewed".into());
    }
    let Some(record) = step.after.holder(&step.id) else {
        return Some("it holds nothing".into());
    };
    // The pump after the renewal of an upgrader may grant its upgrade; the reply names the read.
    let upgrades = step.before.waiters.get(&step.id).is_some_and(|waiter| waiter.mode == 'u');
    if upgrades && record.writes && grant.token < record.token {
        return None;
    }
    let Record { token, deadline, claimed, state, .. } = *record;
    // A call that keeps a cached lease cached gets the last token in any case.
    let knows_last = grant.fence == step.after.number("fence");
    let is_told = knows_last || (!matches!(state, 'k' | 'c') && grant.fence == token);
    let is_so = (grant.token, grant.deadline) == (token, deadline) && is_told;
    (!claimed || !is_so).then(|| format!("{grant:?}, and {record:?}"))
}

fn queued_is_true(step: &Step<'_>) -> Option<String> {
    let waits = step.after.waiters.contains_key(&step.id);
    (!waits).then(|| "queued, and it does not wait".into())
}

fn refused_is_true(step: &Step<'_>) -> Option<String> {
    let Request::Acquire(Acquire { goal: Goal::Take(mode, _), .. }) = step.request else {
        return None;
    };
    let is_in_the_way = match mode {
        Mode::Read => step.before.writes(),
        Mode::Write => step.before.holders().next().is_some(),
    };
    let is_free = !is_in_the_way && step.before.living_waiters().next().is_none();
    (is_free && !step.envelope.more).then(|| "refused, and it is free".into())
}

fn lost_is_true(step: &Step<'_>) -> Option<String> {
    let named = named_token(step)?;
    let upgrades = matches!(step.request, Request::Acquire(_));
    let held = step.before.holder(&step.id)?;
    (held.token == named && held.writes != upgrades).then(|| "lost, and it held".into())
}

/// The token of the lease to change.
fn named_token(step: &Step<'_>) -> Option<u64> {
    match step.request {
        Request::Work(Sending::Downgrade(downgrade)) => Some(downgrade.token),
        Request::Acquire(Acquire { goal: Goal::Upgrade { token }, .. }) => Some(*token),
        _ => None,
    }
}

fn release_ends_all(step: &Step<'_>) -> Option<String> {
    if let Answer::Released { only_wait: true, .. } = step.answer {
        let waits = step.after.waiters.contains_key(&step.id);
        return waits.then(|| "it still waits".into());
    }
    let (Answer::Released { ended, .. } | Answer::GivenBack(ended)) = step.answer else {
        return None;
    };
    let (held, waits) = (step.before.stood(&step.id), step.before.waiters.get(&step.id));
    if step.after.holder(&step.id).is_some() || step.after.waiters.contains_key(&step.id) {
        return Some("it is still there".into());
    }
    if held != (*ended == Ended::Released) {
        return Some(format!("{ended:?}, and its record stood: {held}"));
    }
    // The end of an upgrader's lease is reported before that of its wait.
    let left = !held && waits.is_some_and(|waiter| waiter.mode != 'u');
    (left && *ended != Ended::Left).then(|| format!("{ended:?}, and it waited"))
}

fn change_names_token(step: &Step<'_>) -> Option<String> {
    let (old, new) = (step.before.holder(&step.id)?, step.after.holder(&step.id)?);
    let named = named_token(step)?;
    (old.writes != new.writes && old.token != named)
        .then(|| format!("{named} was named, and {} changed", old.token))
}

fn messages_are_true(step: &Step<'_>) -> Option<String> {
    let grants = step.pushes.iter().flat_map(|push| &push.grants);
    let is_so = |id: &str, grant: &Grant| {
        let record = step.after.holder(id);
        record.is_some_and(|it| (it.token, it.deadline) == (grant.token, grant.deadline))
    };
    if let Some(wrong) = grants.into_iter().find(|(id, grant)| !is_so(id, grant)) {
        return Some(format!("{wrong:?}"));
    }
    let holds = |id: &str, token: u64| step.after.holder(id).is_some_and(|it| it.token == token);
    let wrong = step.ended.iter().find(|(id, token)| holds(id, *token));
    wrong.map(|wrong| format!("{wrong:?} still holds"))
}

/// The call that ends them tells them; but with many readers it tells only a few.
fn ended_are_told(step: &Step<'_>) -> Option<String> {
    if !matches!(step.request, Request::Force(_)) {
        return None;
    }
    // This call may grant the upgrade of a reader that waits to write.
    let upgrader = step.before.word("upgrader");
    let is_over = |id: &str, old: &Record| {
        let new = step.after.holder(id);
        new.is_none_or(|new| new.token != old.token && upgrader.is_none_or(|it| it != id))
    };
    let is_told = |id: &str, old: &Record| {
        step.ended.iter().any(|told| (told.0.as_str(), told.1) == (id, old.token))
    };
    let mut over = step.before.holders().filter(|(id, old)| is_over(id, old));
    match step.before.writes() {
        true => over.find(|(id, old)| !is_told(id, old)).map(|(id, _)| id.to_owned()),
        false => over.next().filter(|_| step.ended.is_empty()).map(|(id, _)| id.to_owned()),
    }
}

fn grantees_are_told(step: &Step<'_>) -> Option<String> {
    let is_told =
        |id: &str| step.pushes.iter().flat_map(|push| &push.grants).any(|(told, _)| told == id);
    step.granted().into_iter().find_map(|(id, _)| {
        let waiter = step.before.waiters.get(id)?;
        let hears = waiter.node == step.server && step.client_hears(id) && !step.is_mine(id);
        (hears && !is_told(id)).then(|| id.to_owned())
    })
}

fn grant_lasts_its_window(step: &Step<'_>) -> Option<String> {
    step.granted().into_iter().find_map(|(id, record)| {
        let waiter = step.before.waiters.get(id)?;
        if step.is_mine(id) {
            return None;
        }
        // An upgrader's lease lasts at least as long as its read did.
        let read = step.before.holder(id).map_or(0, |read| read.deadline);
        let wrong = record.claimed || record.deadline != read.max(SERVER_NOW + waiter.window);
        wrong.then(|| format!("{id} until {}", record.deadline))
    })
}

// Rules for the queue.

fn phase_is_closed(step: &Step<'_>) -> Option<String> {
    let (old, new) = (step.before.number("phase"), step.after.number("phase"));
    // The call may have queued its own acquisition before it saw that the write is over.
    let tickets = [step.before.number("ticket"), step.after.number("ticket")];
    let is_idle = step.after.number("waiters") == 0 && step.after.holders().next().is_none();
    let is_wrong = new != old && !is_idle && !(step.write_ended() && tickets.contains(&new));
    let mut waited = step.before.living_waiters().filter(|(id, waiter)| {
        waiter.mode == 'r' && waiter.ticket > new && step.after.waiters.contains_key(*id)
    });
    let is_open = step.write_ended() && waited.next().is_some() && !step.after.writes();
    ((is_wrong && new > 0) || is_open)
        .then(|| format!("from {old} to {new}, the last ticket is {}", tickets[0]))
}

fn order_is_kept(step: &Step<'_>) -> Option<String> {
    let granted = step.granted();
    granted.into_iter().find_map(|(id, record)| {
        let waits_to_upgrade = step.before.waiters.get(id).is_some_and(|waiter| waiter.mode == 'u');
        let upgrades =
            matches!(step.request, Request::Acquire(Acquire { goal: Goal::Upgrade { .. }, .. }));
        if waits_to_upgrade || (upgrades && step.is_mine(id)) {
            return None;
        }
        let wrong = upgrader_first(step).or_else(|| match record.writes {
            true => writer_in_order(step, id),
            false => reader_in_order(step, id),
        });
        wrong.map(|what| format!("{id}, and {what}"))
    })
}

fn upgrader_first(step: &Step<'_>) -> Option<&'static str> {
    let mut upgraders = step.living_after('u');
    upgraders.any(|(id, _)| step.after.holder(id).is_some()).then_some("an upgrader waits")
}

fn writer_in_order(step: &Step<'_>, id: &str) -> Option<&'static str> {
    let ticket = step.ticket(id).unwrap_or(u64::MAX);
    let waited_already = |reader: &str| step.before.waiters.contains_key(reader);
    if step.write_ended() && step.living_after('r').any(|(reader, _)| waited_already(reader)) {
        Some("readers have waited for the write to end")
    } else if step.living_after('w').any(|(_, waiter)| waiter.ticket < ticket) {
        Some("another writer came before it")
    } else {
        let phase = step.after.number("phase");
        let is_due = |waiter: &Waiter| waiter.ticket <= phase || ticket == u64::MAX;
        step.living_after('r')
            .any(|(_, waiter)| is_due(waiter))
            .then_some("it is the readers' turn")
    }
}

fn reader_in_order(step: &Step<'_>, id: &str) -> Option<&'static str> {
    let ticket = step.ticket(id).unwrap_or(u64::MAX);
    let phase = step.before.number("phase").max(step.after.number("phase"));
    let fair_writer = step.living_after('w').any(|(_, waiter)| waiter.is_fair);
    if fair_writer && ticket > phase {
        Some("a writer waits")
    } else {
        let came_before = |waiter: &Waiter| waiter.ticket < ticket;
        step.living_after('r')
            .any(|(_, waiter)| came_before(waiter))
            .then_some("another reader came before it")
    }
}

fn next_is_freed(step: &Step<'_>) -> Option<String> {
    let tried = matches!(step.request, Request::Acquire(Acquire { wait: None, .. }));
    let is_stale = matches!(step.answer, Answer::Acquired(Acquired::Stale));
    if step.envelope.more || is_stale || (tried && !step.changed) || step.after.writes() {
        return None;
    }
    let readers = step.after.holders().count();
    let upgrader = step.living_after('u').find(|(id, _)| step.after.holder(id).is_some());
    let writer = step.living_after('w').next();
    let reader = step.after.first_in_line("readers_head");
    // A reader that goes before the writers belongs to the phase, or all readers go first.
    let is_next = |reader: &Waiter| {
        writer.is_none()
            || reader.ticket <= step.after.number("phase")
            || (!reader.is_fair && step.after.number("fair") == 0)
    };
    if readers == 0 {
        step.after.living_waiters().next().map(|(id, _)| format!("free, and {id} waits"))
    } else if let Some((id, _)) = upgrader {
        (readers == 1).then(|| format!("{id} could write"))
    } else {
        let reader = reader.filter(|(_, reader)| is_next(reader));
        reader.map(|(id, _)| format!("{id} could read"))
    }
}

// Rules for cached leases.

/// A lease that was recalled or is in use does not return to its earlier state, except by a
/// downgrade: it may be that no client wants the read of a recalled write.
fn marks_fall(step: &Step<'_>) -> Option<String> {
    let rank = |record: &Record| "kcb".find(record.state);
    step.before.holders().find_map(|(id, old)| {
        let new = step.after.holder(id).filter(|new| new.token == old.token)?;
        let is_wrong = match (rank(old), rank(new)) {
            (Some(old), Some(new)) => new < old,
            (Some(_), None) => true,
            (None, Some(_)) => old.claimed,
            (None, None) => false,
        };
        (is_wrong && old.writes == new.writes)
            .then(|| format!("{id} was {}, and is {}", old.state, new.state))
    })
}

fn cached_are_counted(step: &Step<'_>) -> Option<String> {
    let View { readers, marks, .. } = step.after;
    let is_marked = |(id, record): &(&String, &Record)| {
        marks.contains(*id) == matches!(record.state, 'k' | 'c')
    };
    let counted = step.after.number("cached");
    if counted != marks.len() as u64 {
        return Some(format!("{counted}, and there are {marks:?}"));
    }
    readers.iter().find(|it| !is_marked(it)).map(|(id, record)| format!("{id}, {record:?}"))
}

/// Each call of the first waiter recalls the cached leases in its way.
fn first_asks(step: &Step<'_>) -> Option<String> {
    let (view, Answer::Acquired(Acquired::Queued { .. })) = (step.after, step.answer) else {
        return None;
    };
    let me = view.waiters.get(&step.id)?;
    let is_at = |head| view.first_in_line(head).is_some_and(|(id, _)| id == step.id);
    let is_first = match me.mode {
        'u' => true,
        'w' => is_at("writers_head") && view.word("upgrader").is_none(),
        _ => is_at("readers_head") && view.living_waiters().all(|(_, other)| other.mode == 'r'),
    };
    let is_in_the_way = |id: &str, record: &Record| {
        let blocks = record.writes || me.mode != 'r';
        matches!(record.state, 'k' | 'c') && id != step.id && blocks && step.client_hears(id)
    };
    let mut holders = view.holders().filter(|(id, record)| is_in_the_way(id, record));
    let unasked = holders.find(|(id, _)| !step.recalls.iter().any(|asked| asked == id));
    let (id, _) = unasked.filter(|_| is_first && !step.envelope.more)?;
    Some(format!("{id} is not asked"))
}
