//! Rules for tokens.

use crate::LockHash;
use crate::step::{Setting, Step};

/// The most tokens that a call mints: for its grants, and for one forced release.
const MAX_MINTED: u64 = 33;

/// The most tokens that a cached write gets at once.
const TOKEN_BLOCK: u64 = 1_024;

/// No two holders have one token, none has a later one than the last, and all are exact numbers.
pub(super) fn holders_have_own_tokens(hash: &LockHash, _: &Setting<'_>) -> Option<String> {
    let mut tokens: Vec<u64> = hash.records().map(|record| record.token).collect();
    let count = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    let last = hash.number("fence");
    let is_wrong = tokens.len() < count || tokens.last() > Some(&last) || last >= 1 << 53;
    is_wrong.then(|| format!("{tokens:?} of {count} holders, the last one is {last}"))
}

/// Each new lease has a greater token than all before it.
pub(super) fn tokens_rise(step: &Step<'_>) -> Option<String> {
    let mut newest = step.setting.newest?;
    let mut tokens: Vec<u64> = step.granted().map(|holder| holder.token).collect();
    tokens.sort_unstable();
    tokens.into_iter().find_map(|token| {
        let last = std::mem::replace(&mut newest, token);
        (token <= last).then(|| format!("{token} after {last}"))
    })
}

/// The last token stays while the key lives. (`set_limit` makes an expired semaphore anew without
/// one.)
pub(super) fn last_token_is_kept(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let [old, new] = [before, step.after].map(|hash| hash.number("fence"));
    let lives = !before.is_empty() && !before.is_expired() && !step.after.is_empty();
    (lives && new < old && !step.setting.distrusts_clocks).then(|| format!("{new} after {old}"))
}

/// The last token follows the clock. Only the block of a cached write runs ahead, and not for long.
pub(super) fn last_token_keeps_to_the_clock(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let [old, new] = [before, step.after].map(|hash| hash.number("fence"));
    let clock = (step.after.now + 1) * 1_000;
    let most = (old + MAX_MINTED).max(clock + TOKEN_BLOCK);
    (new > most && step.name() != "raise_token").then(|| format!("{new} after {old} at {clock}"))
}

/// A lease does not turn from a read into a write and keep its token.
pub(super) fn token_keeps_its_mode(step: &Step<'_>, before: &LockHash) -> Option<String> {
    step.after.holders().filter(|new| new.writes).find_map(|new| {
        let is_it = |old: &&crate::Holder| old.id == new.id && old.token == new.token;
        let read = before.holders().find(|old| is_it(old) && !old.writes);
        read.map(|read| format!("{read:?} is {new:?}"))
    })
}

/// A call that names a token changes the mode of no lease with another one, except by granting the
/// upgrade for which the acquisition waits. So a late downgrade undoes no upgrade.
pub(super) fn change_names_token(step: &Step<'_>, before: &LockHash) -> Option<String> {
    let named = step.named_token().filter(|_| !step.id().is_empty())?;
    let (old, new) = (before.holder(step.id())?, step.after.holder(step.id())?);
    let upgrades = new.writes && step.was_upgrader(step.id());
    let is_wrong = old.writes != new.writes && old.token != named && !upgrades;
    is_wrong.then(|| format!("{named} was named, and {old:?} is {new:?}"))
}
