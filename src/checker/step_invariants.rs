//! Rules for each run of a script. Each rule says what is wrong with a step, if anything is.

mod cached;
mod hash;
mod leases;
mod queue;
mod replies;
mod tokens;

use crate::checker::call::{CallAnswer, CallRequest};
use crate::checker::lock_view::{HolderView, LockView, WaiterView};
use crate::checker::semaphore_invariants;
use crate::protocol::{AcquireRequest, Envelope, GrantMessage};

/// One run of a script.
#[derive(Debug)]
pub(super) struct ScriptRun<'a> {
    /// The acquisition that it is for.
    pub(super) id: String,
    pub(super) request: &'a CallRequest,
    pub(super) not_after: u64,
    pub(super) before: &'a LockView,
    pub(super) after: &'a LockView,
    pub(super) changed: bool,
    pub(super) envelope: Envelope,
    pub(super) answer: &'a CallAnswer,
    pub(super) pushes: &'a [GrantMessage],
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

pub(super) type StepInvariant = fn(&ScriptRun<'_>) -> Option<String>;

const RULES: [(&str, StepInvariant); 32] = [
    ("the array of readers is dense", hash::readers_are_dense),
    ("waiters are counted and linked", hash::waiters_are_linked),
    ("fields go with what they tell of", hash::empty_fields_are_removed),
    ("the line tells the life of the key", hash::line_has_key_expiry),
    ("the line tells which fields there are", |step| step.after.misplaced.clone()),
    ("no first end of the readers is overlooked", hash::read_min_is_not_late),
    ("a key outlives what it says", hash::key_lives),
    ("a writer is alone", hash::writer_is_alone),
    ("tokens rise", tokens::tokens_rise),
    ("a read's token is no write's", tokens::token_keeps_its_mode),
    ("the last token is kept", tokens::last_token_is_kept),
    ("nobody's lease is touched by others", leases::leases_of_others),
    ("what is revoked is not made longer", leases::revoked_is_not_made_longer),
    ("a lease lasts as long as was asked", leases::lease_lasts),
    ("the living keep their places", queue::live_waiters_stay),
    ("the dead are not granted", queue::dead_are_not_granted),
    ("who is gone gets nothing", queue::unsubscribed_are_skipped),
    ("who comes too late gets nothing", replies::late_call_is_rejected),
    ("a reply says what is so", replies::reply_matches_state),
    ("a release ends all", replies::release_ends_all),
    ("a change names the token", replies::change_names_token),
    ("a renewal leaves no more than is held", leases::no_more_than_is_held),
    ("a message says what is so", replies::messages_match_state),
    ("who is granted is told", replies::grantees_are_notified),
    ("who is ended by force is told", replies::force_released_are_notified),
    ("a grant lasts for its window", replies::grant_lasts_claim_timeout),
    ("a phase is closed when a write ends", queue::reader_phase_is_closed),
    ("the order of the queue is kept", queue::order_is_kept),
    ("whatever frees, frees the next", queue::next_is_freed),
    ("marks fall", cached::cache_state_only_advances),
    ("who is cached is marked and counted", cached::cached_are_counted),
    ("the first in line asks who is in its way", cached::first_waiter_recalls),
];

/// The first rule that a step breaks, and how.
pub(super) fn first_violation(
    step: &ScriptRun<'_>,
    judges: impl Fn(&str) -> bool,
) -> Option<String> {
    let mut rules =
        RULES.iter().chain(&semaphore_invariants::RULES).filter(|(name, _)| judges(name));
    rules.find_map(|(name, rule)| Some(format!("{name}: {}", rule(step)?)))
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().chain(&semaphore_invariants::RULES).map(|(name, _)| *name)
}

/// The newest token of the holders, or of a forced release.
pub(super) fn newest_token(view: &LockView) -> u64 {
    let tokens = view.holders().map(|(_, record)| record.token);
    tokens.max().unwrap_or(0).max(view.number("fence"))
}

impl ScriptRun<'_> {
    pub(super) fn is_mine(&self, id: &str) -> bool {
        self.id == id
    }

    /// New records: those without an older one that has the same token.
    pub(super) fn granted(&self) -> Vec<(&str, &HolderView)> {
        let is_new = |(id, record): &(&str, &HolderView)| {
            self.before.holder(id).is_none_or(|old| old.token != record.token)
        };
        self.after.holders().filter(is_new).collect()
    }

    fn is_client_subscribed(&self, id: &str) -> bool {
        self.hears >> (id.as_bytes()[0] - b'0') & 1 == 1
    }

    /// It subscribed here, and is not subscribed any more.
    fn is_disconnected(&self, id: &str, waiter: &WaiterView) -> bool {
        waiter.node == self.server && !self.is_client_subscribed(id)
    }

    /// The living waiters in the queue after the step, or before it.
    fn live_waiters_after(&self, mode: char) -> impl Iterator<Item = (&str, &WaiterView)> {
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
            (None, CallRequest::Acquire(AcquireRequest { wait: Some(wait), .. }))
                if self.is_mine(id) =>
            {
                Some(wait.ticket).filter(|ticket| *ticket > 0)
            }
            _ => None,
        }
    }
}
