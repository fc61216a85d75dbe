//! Judges one call of a script by the hash before and after it, the words of the call and of its
//! reply, and the server's time.
//!
//! What a test cannot know is in [`Setting`]. A rule that needs it does not judge there.

mod cached;
mod fairness;
mod leases;
mod message;
mod permits;
mod queue;
mod replies;
mod shape;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::BTreeSet;

pub use fairness::Fairness;
pub use message::Message;

use crate::{Holder, LockHash, Violation, Waiter};

/// One call that a script has answered without an error.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// Such as `acquire_read` and `semaphore/renew`.
    pub script: &'a str,
    /// `ARGV`.
    pub args: Vec<&'a str>,
    /// The words of the reply, or the elements of a list.
    pub reply: &'a [String],
    /// The hash before the call, by the time of the call, if it is known.
    pub before: Option<&'a LockHash>,
    pub after: &'a LockHash,
    pub setting: Setting<'a>,
}

/// Whether a client is subscribed at a server, as far as it is known.
pub type Hears<'a> = &'a dyn Fn(&str) -> Option<bool>;

/// What is known of the server and of the lock's history. The default is the least that any test
/// knows: one clock, and one lock that no fault has struck.
#[derive(Clone, Copy, Default)]
pub struct Setting<'a> {
    /// The messages of the call, if they are known.
    pub messages: Option<&'a [Message]>,
    /// Whether a client is subscribed at this server.
    pub hears: Option<Hears<'a>>,
    /// The greatest token that was given before, if later ones must be greater.
    pub newest: Option<u64>,
    /// The leases that were given before: acquisition and token. Without this, those of the hash
    /// before.
    pub given: Option<&'a BTreeSet<(String, u64)>>,
    /// By how much the clocks that the lock has seen may differ, in ms.
    pub skew: u64,
    /// The clocks differ by more than the lock can bear: its key may expire at any time.
    pub distrusts_clocks: bool,
    /// All times that are over equal the present, and tokens tell no time.
    pub forgets_time: bool,
    pub is_memory_full: bool,
}

/// One rule, and what it looks at. It returns what is wrong, if anything is.
#[derive(Clone, Copy)]
struct Rule(&'static str, Check);

#[derive(Clone, Copy)]
enum Check {
    /// The hash after the call.
    Hash(fn(&LockHash, &Setting<'_>) -> Option<String>),
    /// The call and the hash after it.
    Call(fn(&Step<'_>) -> Option<String>),
    /// The same and the hash before it.
    Change(fn(&Step<'_>, &LockHash) -> Option<String>),
}

use Check::{Call, Change, Hash};

const RULES: [Rule; 50] = [
    Rule("a hash is well formed", Hash(|hash, _| hash.malformed.clone())),
    Rule("the array of readers is dense", Hash(shape::readers_are_dense)),
    Rule("who is cached is marked and counted", Hash(shape::cached_are_counted)),
    Rule("permits in use are counted", Hash(permits::used_is_counted)),
    Rule("waiters are counted and linked", Hash(shape::waiters_are_linked)),
    Rule("fields go with what they tell of", Hash(shape::fields_have_a_reason)),
    Rule("no dead reader is overlooked", Hash(shape::no_dead_reader_is_overlooked)),
    Rule("a hash has no reader beside a writer", Hash(shape::writer_is_alone)),
    Rule("nobody waits for what it holds", Hash(shape::holders_do_not_wait)),
    Rule("each holder has its own token", Hash(tokens::holders_have_own_tokens)),
    Rule("the line tells the life of the key", Hash(shape::line_has_key_expiry)),
    Rule("a key outlives what it says", Call(shape::key_lives)),
    Rule("an idle key ends soon", Hash(shape::idle_key_ends)),
    Rule("who comes too late gets nothing", Call(replies::late_call_is_rejected)),
    Rule("tokens rise", Call(tokens::tokens_rise)),
    Rule("the last token is never forgotten", Change(tokens::last_token_is_kept)),
    Rule("the last token keeps to the clock", Change(tokens::last_token_keeps_to_the_clock)),
    Rule("a read's token is no write's", Change(tokens::token_keeps_its_mode)),
    Rule("a change names the token", Change(tokens::change_names_token)),
    Rule("no lease is shortened", Change(leases::no_lease_is_shortened)),
    Rule("only its holder makes a lease longer", Change(leases::others_stay)),
    Rule("what is revoked is not made longer", Change(leases::revoked_is_not_made_longer)),
    Rule("a lease lasts as long as was asked", Change(leases::lease_lasts)),
    Rule("a renewal leaves no more than is held", Change(leases::no_more_than_is_held)),
    Rule("a grant lasts for its window", Change(leases::grant_lasts_for_its_window)),
    Rule("marks fall", Change(cached::marks_fall)),
    Rule("the first in line asks who is in its way", Call(cached::first_waiter_recalls)),
    Rule("the living are not mistaken for dead", Change(queue::live_waiters_stay)),
    Rule("the dead are not granted", Change(queue::dead_are_not_granted)),
    Rule("who is gone gets nothing", Change(queue::unsubscribed_are_skipped)),
    Rule("a phase is closed when a write ends", Change(queue::reader_phase_is_closed)),
    Rule("an upgrade goes first", Change(queue::upgrade_goes_first)),
    Rule("waiters of one mode go in order", Change(queue::modes_go_in_order)),
    Rule("the readers of a phase go before a writer", Change(queue::phase_goes_first)),
    Rule("a reader that comes while a writer waits, waits", Change(queue::readers_wait)),
    Rule("nobody comes before its place", Change(queue::nobody_comes_before_its_place)),
    Rule("who comes back finds its place", Change(queue::who_comes_back_finds_its_place)),
    Rule("whatever frees a lock grants it", Call(queue::next_is_granted)),
    Rule("a queue has its limit", Change(queue::limit_is_kept)),
    Rule("a full memory takes nobody new", Change(queue::full_memory_takes_nobody)),
    Rule("a reply has the server's time", Call(replies::reply_has_time)),
    Rule("a script says what is so", Change(replies::reply_is_true)),
    Rule("a release ends all", Change(replies::release_ends_all)),
    Rule("a message says what is so", Call(replies::messages_are_true)),
    Rule("who is granted is told", Change(replies::grantees_are_told)),
    Rule("who is ended by force is told", Change(replies::force_released_are_told)),
    Rule("a hash has no more permits in use than its limit", Change(permits::limit_is_kept)),
    Rule("only its call changes a limit", Change(permits::limit_stays)),
    Rule("permits are granted as they were requested", Change(permits::grant_is_as_requested)),
    Rule("only its holder gives permits back", Change(permits::others_keep_their_permits)),
];

impl Rule {
    fn judge_hash(&self, hash: &LockHash, setting: &Setting<'_>) -> Option<Violation> {
        let Rule(rule, Hash(check)) = *self else { return None };
        Some(Violation { rule, what: check(hash, setting)? })
    }

    fn judge(&self, step: &Step<'_>) -> Option<Violation> {
        let Rule(rule, check) = *self;
        let what = match check {
            Hash(check) => check(step.after, &step.setting),
            Call(check) => check(step),
            Change(check) => check(step, step.before?),
        };
        Some(Violation { rule, what: what? })
    }
}

/// The names of all rules.
pub fn rules() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|Rule(name, _)| *name)
}

/// The first rule that a step breaks, of those that are `judged`.
pub fn first_violation(step: &Step<'_>, judged: impl Fn(&str) -> bool) -> Option<Violation> {
    RULES.iter().filter(|Rule(name, _)| judged(name)).find_map(|rule| rule.judge(step))
}

/// The first rule that a hash breaks by itself.
pub fn hash_violation(hash: &LockHash, setting: &Setting<'_>) -> Option<Violation> {
    RULES.iter().find_map(|rule| rule.judge_hash(hash, setting))
}

impl<'a> Step<'a> {
    /// The script's name without the kind of the lock.
    pub fn name(&self) -> &'a str {
        self.script.strip_prefix("semaphore/").unwrap_or(self.script)
    }

    /// `ARGV[n]`, or empty.
    pub fn arg(&self, n: usize) -> &'a str {
        self.args.get(n - 1).copied().unwrap_or("")
    }

    fn number_arg(&self, n: usize) -> Option<u64> {
        self.arg(n).parse().ok()
    }

    fn has_time_limit(&self) -> bool {
        let others = ["upgrade", "accept_transfer", "set_limit", "set_nx/acquire"];
        self.is_acquire() || others.contains(&self.name())
    }

    pub fn is_acquire(&self) -> bool {
        matches!(self.name(), "acquire" | "acquire_read" | "acquire_write")
    }

    /// The acquisition of the call, or empty.
    pub fn id(&self) -> &'a str {
        match self.name() {
            "grant_waiters" | "revoke" | "force_release" | "set_limit" | "inspect" => "",
            _ => self.arg(if self.has_time_limit() { 3 } else { 2 }),
        }
    }

    pub fn is_mine(&self, id: &str) -> bool {
        self.id() == id
    }

    /// The token that the call names.
    pub fn named_token(&self) -> Option<u64> {
        let place = match self.name() {
            "renew" | "upgrade" => 5,
            "downgrade" => 3,
            "accept_transfer" => 7,
            "revoke" | "force_release" => 2,
            _ => return None,
        };
        self.number_arg(place)
    }

    fn lease(&self) -> Option<u64> {
        match self.name() {
            "renew" => self.number_arg(3),
            "acquire" | "acquire_read" | "acquire_write" | "downgrade" | "upgrade" => {
                self.number_arg(4)
            }
            _ => None,
        }
    }

    /// The ticket of an acquire that has one.
    pub fn ticket(&self) -> Option<u64> {
        self.number_arg(9).filter(|_| self.is_acquire())
    }

    /// The third of the queue terms.
    fn max_waiters(&self) -> Option<usize> {
        self.arg(8).split(' ').nth(2).filter(|_| self.is_acquire())?.parse().ok()
    }

    /// Whether the call is refused where it would have to wait.
    fn is_try(&self) -> bool {
        match self.name() {
            "acquire" => self.args.len() < 8,
            "acquire_read" | "acquire_write" => self.args.len() < 8 || self.arg(5).contains('t'),
            "upgrade" => self.args.len() < 7,
            _ => false,
        }
    }

    /// Whether the call is for a lease that is to be or to stay cached.
    fn is_cached(&self) -> bool {
        match self.script {
            "acquire_read" | "acquire_write" => self.arg(5).contains('k'),
            "renew" => self.args.len() > 5,
            "downgrade" => self.args.len() > 4,
            _ => false,
        }
    }

    /// The permits that an acquire requests.
    fn wanted_permits(&self) -> Option<u64> {
        self.number_arg(5).filter(|_| self.script == "semaphore/acquire")
    }

    pub fn status(&self) -> &'a str {
        self.reply.first().map_or("", String::as_str)
    }

    pub fn has_more_work(&self) -> bool {
        self.reply.get(2).is_some_and(|more| more == "1")
    }

    /// A value of the status, from 0 on.
    pub fn value(&self, n: usize) -> Option<&'a str> {
        self.reply.get(3 + n).map(String::as_str)
    }

    fn number(&self, n: usize) -> Option<u64> {
        self.value(n)?.parse().ok()
    }

    /// The value with the token of the caller's lease. A grant names the acquisition first.
    fn token_place(&self) -> usize {
        usize::from(self.status() == "granted")
    }

    fn is_unchanged(&self) -> bool {
        self.before.is_none_or(|before| before.stored == self.after.stored)
    }

    /// Whether it is a release that ends only a wait.
    fn ends_wait_only(&self) -> bool {
        self.name() == "release" && self.arg(3) == "wait"
    }

    /// The deadline that a release sets for the write of its acquisition, if it sets one.
    fn kept_deadline(&self, before: &LockHash) -> Option<u64> {
        let until = self.number_arg(3).filter(|_| self.name() == "release")?;
        let write = before.holder(self.id()).filter(|it| it.writes && until > before.now)?;
        let is_revoked = write.token <= before.number("revoked_up_to");
        Some(if is_revoked { until.min(write.deadline) } else { until })
    }

    /// Whether this call takes up the lease of another acquisition.
    pub fn takes_up(&self, id: &str) -> bool {
        self.name() == "accept_transfer" && self.is_mine(id)
    }

    /// The acquisition that has the lease of `id` afterwards: one that has taken it up, or `id`
    /// itself.
    fn heir_of<'b>(&'b self, id: &'b str) -> &'b str {
        let is_taken = self.name() == "accept_transfer" && self.status() == "granted";
        if is_taken && self.arg(6) == id { self.id() } else { id }
    }

    /// The new leases. One that was taken up has the token of the other acquisition.
    pub fn granted(&self) -> impl Iterator<Item = &'a Holder> {
        let is_known = |holder: &Holder| match (self.setting.given, self.before) {
            (Some(given), _) => given.contains(&(holder.id.clone(), holder.token)),
            (None, Some(before)) => {
                before.records().any(|it| (&it.id, it.token) == (&holder.id, holder.token))
            }
            (None, None) => true,
        };
        self.after.holders().filter(move |holder| !is_known(holder) && !self.takes_up(&holder.id))
    }

    /// Whether the acquisition waited for an upgrade.
    fn was_upgrader(&self, id: &str) -> bool {
        let waiter = self.before.and_then(|before| before.waiters.get(id));
        waiter.is_some_and(|waiter| waiter.mode == 'u')
    }

    fn is_subscribed(&self, client: &str) -> Option<bool> {
        self.setting.hears.and_then(|hears| hears(client))
    }

    /// The acquisitions that are asked for their cached leases, if that is known.
    fn recalls(&self) -> Option<Vec<&'a str>> {
        let recall = |message: &'a Message| match message {
            Message::Recall { id } => Some(id.as_str()),
            _ => None,
        };
        Some(self.setting.messages?.iter().filter_map(recall).collect())
    }

    /// Whether this is the server of the call.
    fn is_here(&self, node: &str) -> bool {
        node == self.arg(1) && node != "-"
    }

    /// Whether it waits after the call and is alive. The caller's own waiter is.
    fn waits(&self, waiter: &Waiter) -> bool {
        let polls = self.is_acquire() || self.name() == "upgrade";
        (polls && self.is_mine(&waiter.id)) || self.after.is_alive(waiter)
    }

    /// The living waiters of a mode after the call.
    fn living(&self, mode: char) -> impl Iterator<Item = &'a Waiter> {
        let waiters = self.after.waiters.values().filter(move |waiter| waiter.mode == mode);
        waiters.filter(|waiter| self.waits(waiter))
    }
}

impl std::fmt::Debug for Setting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("messages", &self.messages).finish_non_exhaustive()
    }
}
