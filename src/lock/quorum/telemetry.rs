//! Events about a quorum's members.

use std::time::Duration;

use tracing::field::display;
use tracing::warn;

use crate::backend::Address;
use crate::protocol::LockKey;

/// A token was farther ahead than members accept. `outcome` is `ahead` for the member that gave it
/// and was left out, `behind` for one that would not accept what a majority has.
pub(crate) fn clocks_differ(
    lock: &LockKey,
    member: usize,
    node: Option<&Address>,
    outcome: &'static str,
    by: Duration,
) {
    let (node, seconds) = (node.map(display), by.as_secs_f64());
    warn!(name: "rwlease.clock", lock = %lock.name, slot = %lock.slot, member, node, outcome, seconds);
}
