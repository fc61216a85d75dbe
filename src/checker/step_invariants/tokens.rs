//! Rules for tokens.

use crate::checker::lock_view::HolderView;
use crate::checker::step_invariants::{ScriptRun, newest_token};

pub(super) fn tokens_rise(step: &ScriptRun<'_>) -> Option<String> {
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

pub(super) fn token_keeps_its_mode(step: &ScriptRun<'_>) -> Option<String> {
    let turned = |(id, new): (&str, &HolderView)| {
        let old = step.before.holder(id)?;
        (old.token == new.token && !old.writes && new.writes).then(|| id.to_owned())
    };
    step.after.holders().find_map(turned)
}

/// After a failover the hash may lack it.
pub(super) fn last_token_is_kept(step: &ScriptRun<'_>) -> Option<String> {
    let newest = step.newest.max(newest_token(step.after));
    let fence = step.after.number("fence");
    let is_forgotten = !step.after.is_empty()
        && !step.before.is_empty() // an expired key takes its history along
        && !step.lost_history
        && fence < newest;
    is_forgotten.then(|| format!("fence is {fence}, and {newest} was given"))
}
