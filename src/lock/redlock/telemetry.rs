//! Events about a quorum's members.

use std::time::Duration;

use rwlease_core::protocol::LockKey;
use rwlease_core::resp::Address;
use tracing::field::display;

use crate::telemetry::lock_event;

/// A token is farther ahead of a member's clock than members accept. `outcome` is `ahead` for the
/// member that issued the token and was left out, and `behind` for a member that did not accept the
/// token of a majority.
pub(crate) fn clocks_differ(
    lock: &LockKey,
    member: usize,
    server: Option<&Address>,
    outcome: &'static str,
    by: Duration,
) {
    let (server, seconds) = (server.map(display), by.as_secs_f64());
    lock_event!(
        warn, lock, name: "rwlease.clock", member, server, outcome, seconds,
        "clock of a member is wrong",
    );
}
