//! The task beside a guard of a quorum. It reacquires the lock at missing members, reports a risk
//! and the loss, and gives up the leases that are left after the loss.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{join, select};
use rwlease_core::acquisition::{RenewalPolicy, TelemetryEvent};
use rwlease_core::time::LocalInstant;

use crate::backoff::with_jitter;
use crate::client::telemetry;
use crate::lock::lease::Lease;
use crate::lock::redlock::member_leases::MemberLeases;
use crate::lock::redlock::round::Round;
use crate::telemetry::emit_in_drop;

/// Missing members are tried again after a part of the lease, from half of this part to all of it.
const RETAKES_PER_LEASE: u32 = 3;

/// How often in a lease a guard at risk is checked again.
const RISK_CHECKS_PER_LEASE: u32 = 6;

impl MemberLeases {
    /// Looks after the leases until the lock is lost. Then it gives up those that are left: they
    /// would be renewed and keep others out for as long as the guard lives.
    pub(super) async fn watch(self: Arc<Self>, token: Option<u64>) {
        let upkeep = join(self.retake_while_held(token), self.report_risks(token));
        select(pin!(self.ended()), pin!(upkeep)).await;
        self.report_loss();
        // The lock ends here earlier than at its members, so that its holder has stopped before.
        let leases = self.leases().into_iter();
        let drift = leases.map(|(_, lease)| lease.margin()).fold(self.round.drift, Ord::max);
        let clock = self.clock();
        clock.sleep_until(clock.now().saturating_add(drift)).await;
        drop(self.end());
    }

    /// Reacquires the lock at missing members from time to time, until the lock is lost or its
    /// renewals end.
    async fn retake_while_held(&self, token: Option<u64>) {
        if self.round.options.renewal == RenewalPolicy::Manual {
            return;
        }
        let period = self.round.options.first_lease() / RETAKES_PER_LEASE;
        loop {
            let clock = self.clock();
            clock.sleep_until(clock.now().saturating_add(with_jitter(period))).await;
            if self.remaining().is_zero() || self.renewals_left() == Some(0) {
                return;
            }
            self.retake_missing(token).await;
        }
    }

    /// Reports when the lock comes to be at risk, until it is lost.
    async fn report_risks(&self, token: Option<u64>) {
        let pause = self.round.options.lease / RISK_CHECKS_PER_LEASE;
        loop {
            self.at_risk().await;
            let left = self.remaining();
            if left.is_zero() {
                return;
            }
            let (mode, token) = (self.round.mode, token.unwrap_or_default());
            telemetry::emit(&self.round.locks[0], TelemetryEvent::AtRisk { mode, token, left });
            while self.is_at_risk() {
                let clock = self.clock();
                clock.sleep_until(clock.now().saturating_add(pause)).await;
            }
        }
    }

    /// Reports the loss of the lock, if it is lost and this was not reported before. The first
    /// member's client reports it: its settings apply to the locks of the quorum.
    pub(super) fn report_loss(&self) {
        if let Some((loss, reason)) = self.take_loss() {
            let client = &self.round.quorum.members[0].client;
            emit_in_drop(|| client.lose(loss, reason));
        }
    }
}

/// Why a lock with these leases is lost. `None` if it would be held without the shutdowns of
/// clients since it was last found held, with `shut_down_before` of its leases shut down: that is
/// no loss.
pub(super) fn loss_reason<'a>(
    round: &Round,
    leases: impl Iterator<Item = &'a Lease>,
    shut_down_before: usize,
    now: LocalInstant,
) -> Option<&'static str> {
    let (mut held, mut ended_early, mut shut_down, mut has_failed) = (0, 0, 0, false);
    for lease in leases {
        let is_lost = lease.acquisition.with_lease(|held_lease| {
            let left = held_lease.deadline.saturating_duration_since(now);
            (left > round.drift.saturating_sub(held_lease.margin)).then(|| held_lease.is_lost())
        });
        match is_lost {
            Some(Some(true)) => {
                ended_early += 1;
                has_failed |= lease.client.failure().is_some();
            }
            Some(Some(false)) => held += 1,
            Some(None) => {} // its time is up
            None => shut_down += 1,
        }
    }
    let majority = round.quorum.majority();
    let shut_down_since = shut_down - shut_down_before.min(shut_down);
    if shut_down_since > 0 && held + shut_down_since >= majority {
        None
    } else if held + shut_down + ended_early < majority || ended_early == 0 {
        Some("expired")
    } else if has_failed {
        Some("client_failed")
    } else {
        Some("not_held")
    }
}
