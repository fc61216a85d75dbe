//! Visits all times and tokens of a state. The model compares states by the distances between
//! these, not by their values.

use crate::acquisition::AcquisitionState;
use crate::acquisition::acquire_state::AcquireState;
use crate::acquisition::held_lease::{HeldLease, RenewalTimer};
use crate::acquisition::in_doubt::InDoubtUntil;
use crate::acquisition::lease_options::WaitPolicy;
use crate::acquisition::pending_change::PendingChange;
use crate::acquisition::pending_release::{InDoubtAttempts, PendingRelease};
use crate::protocol::AcquireKind;
use crate::time::LocalInstant;

/// A visitor, with a method for each way in which a value is used.
pub trait TimeVisitor {
    /// A moment that is only compared with the current time.
    fn visit_deadline(&mut self, moment: &mut LocalInstant);
    /// A moment that is compared with the times when calls were sent.
    fn visit_sent_time(&mut self, moment: &mut LocalInstant);
    /// A moment that is only reported to callers and in logs.
    fn visit_reported_time(&mut self, moment: &mut LocalInstant);
    /// A time of the server's clock, which is only compared with the server's time in answers.
    fn visit_server_time(&mut self, ms: &mut u64);
    fn visit_token(&mut self, token: &mut u64);
}

impl AcquisitionState {
    pub fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        match self {
            AcquisitionState::Requesting(request) => request.visit(visitor),
            AcquisitionState::Held(held_lease) => held_lease.visit(visitor),
            AcquisitionState::Releasing(releasing) => releasing.visit(visitor),
            AcquisitionState::Ended => {}
        }
    }
}

impl AcquireState {
    fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        if let AcquireKind::Upgrade { token } | AcquireKind::Transfer { token, .. } = &mut self.goal
        {
            visitor.visit_token(token);
        }
        match &mut self.policy {
            WaitPolicy::Try { deadline: until, .. }
            | WaitPolicy::Queue { deadline: Some(until) } => {
                visitor.visit_deadline(until);
            }
            WaitPolicy::Queue { deadline: None } => {}
        }
        let due =
            [self.hold_deadline.as_mut(), self.call_deadline.as_mut(), Some(&mut self.poll_at)];
        due.into_iter().flatten().for_each(|moment| visitor.visit_deadline(moment));
        self.silent_since.iter_mut().for_each(|moment| visitor.visit_reported_time(moment));
        self.in_doubt.iter_mut().for_each(|in_doubt| in_doubt.visit(visitor));
        if let Some(pushed) = &mut self.pushed_grant {
            visitor.visit_token(&mut pushed.grant.token);
            visitor.visit_token(&mut pushed.grant.last_token);
            visitor.visit_server_time(&mut pushed.grant.deadline);
            visitor.visit_server_time(&mut pushed.granted_at);
            pushed.claim_deadline.iter_mut().for_each(|moment| visitor.visit_deadline(moment));
        }
        self.force_released_token.iter_mut().for_each(|token| visitor.visit_token(token));
    }
}

impl HeldLease {
    fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        visitor.visit_token(&mut self.token);
        visitor.visit_sent_time(&mut self.token_known_since);
        visitor.visit_deadline(&mut self.deadline);
        visitor.visit_reported_time(&mut self.granted_at);
        self.renewals.hold_deadline.iter_mut().for_each(|moment| visitor.visit_deadline(moment));
        match &mut self.renewal_timer {
            RenewalTimer::DueAt(due) => visitor.visit_deadline(due),
            RenewalTimer::InFlight(due) => visitor.visit_reported_time(due),
            RenewalTimer::Disabled => {}
        }
        if let Some(keepalive) = &mut self.keepalive {
            visitor.visit_sent_time(&mut keepalive.sent_at);
            visitor.visit_token(&mut keepalive.last_token);
        }
        self.renewals.kept_until.iter_mut().for_each(|moment| visitor.visit_deadline(moment));
        self.keep_until.iter_mut().for_each(|ms| visitor.visit_server_time(ms));
        self.in_doubt.iter_mut().for_each(|in_doubt| in_doubt.visit(visitor));
        self.upgrade.iter_mut().for_each(|upgrade| upgrade.visit(visitor));
        self.pending_change.iter_mut().for_each(|pending| pending.visit(visitor));
    }
}

impl PendingChange {
    fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        self.send_at
            .iter_mut()
            .chain(&mut self.expires_at)
            .for_each(|moment| visitor.visit_deadline(moment));
        self.refusal
            .iter_mut()
            .for_each(|refusal| visitor.visit_reported_time(&mut refusal.refused_at));
        self.doubt.iter_mut().for_each(|doubt| doubt.visit(visitor));
    }
}

impl PendingRelease {
    fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        self.send_at.iter_mut().for_each(|moment| visitor.visit_deadline(moment));
        visitor.visit_deadline(&mut self.expires_at);
        self.request.keep_until.iter_mut().for_each(|ms| visitor.visit_server_time(ms));
        self.doubt.iter_mut().for_each(|doubt| doubt.visit(visitor));
    }
}

impl InDoubtAttempts {
    fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        self.in_doubt.visit(visitor);
        visitor.visit_deadline(&mut self.expire_at);
        self.resolved_at_server_ms.iter_mut().for_each(|ms| visitor.visit_server_time(ms));
    }
}

impl InDoubtUntil {
    fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        match &mut self.max_not_after {
            Some(ms) => {
                visitor.visit_deadline(&mut self.local_deadline);
                visitor.visit_server_time(ms);
            }
            // The server's time is then estimated from the time since a call was sent.
            None => visitor.visit_sent_time(&mut self.local_deadline),
        }
    }
}
