//! Visits all times and tokens of a state. The checker compares states by the distances between
//! these, not by their values.

use crate::client::acquisition::State;
use crate::client::acquisition::acquiring::Acquiring;
use crate::client::acquisition::holding::{Holding, NextRenewal};
use crate::client::acquisition::pending::Pending;
use crate::client::acquisition::releasing::{Doubt, Releasing};
use crate::client::in_doubt::InDoubt;
use crate::client::request::WaitPolicy;
use crate::clock::Moment;
use crate::protocol::Goal;

/// A visitor, with a method for each way in which a value is used.
pub(crate) trait Visitor {
    /// A moment that is only compared with the current time.
    fn due(&mut self, moment: &mut Moment);
    /// A moment that is compared with the times when calls were sent.
    fn learned(&mut self, moment: &mut Moment);
    /// A moment that is only reported to callers and in logs.
    fn told(&mut self, moment: &mut Moment);
    /// A time of the server's clock, which is only compared with the server's time in answers.
    fn server_ms(&mut self, ms: &mut u64);
    fn token(&mut self, token: &mut u64);
}

impl State {
    pub(crate) fn visit(&mut self, visitor: &mut dyn Visitor) {
        match self {
            State::Acquiring(acquiring) => acquiring.visit(visitor),
            State::Held(holding) => holding.visit(visitor),
            State::Releasing(releasing) => releasing.visit(visitor),
            State::Ended => {}
        }
    }
}

impl Acquiring {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        if let Goal::Upgrade { token } | Goal::TakeUp { token, .. } = &mut self.goal {
            visitor.token(token);
        }
        match &mut self.policy {
            WaitPolicy::Try { until, .. } | WaitPolicy::Queue { until: Some(until) } => {
                visitor.due(until);
            }
            WaitPolicy::Queue { until: None } => {}
        }
        let due = [self.hold_ends.as_mut(), self.call_until.as_mut(), Some(&mut self.poll_at)];
        due.into_iter().flatten().for_each(|moment| visitor.due(moment));
        self.silent_since.iter_mut().for_each(|moment| visitor.told(moment));
        visit_in_doubt(&mut self.in_doubt, visitor);
        if let Some(pushed) = &mut self.pushed {
            visitor.token(&mut pushed.grant.token);
            visitor.token(&mut pushed.grant.fence);
            visitor.server_ms(&mut pushed.grant.deadline);
            pushed.ends.iter_mut().for_each(|moment| visitor.due(moment));
        }
        self.ended.iter_mut().for_each(|token| visitor.token(token));
    }
}

impl Holding {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.token(&mut self.token);
        visitor.learned(&mut self.token_since);
        visitor.due(&mut self.ends);
        visitor.told(&mut self.since);
        self.renewals.hold_ends.iter_mut().for_each(|moment| visitor.due(moment));
        match &mut self.renewal {
            NextRenewal::Due(due) => visitor.due(due),
            NextRenewal::Sent(due) => visitor.told(due),
            NextRenewal::Never => {}
        }
        if let Some(contact) = &mut self.contact {
            visitor.learned(&mut contact.sent);
            visitor.token(&mut contact.fence);
        }
        visit_in_doubt(&mut self.in_doubt, visitor);
        self.upgrade.iter_mut().for_each(|upgrade| upgrade.visit(visitor));
        self.pending.iter_mut().for_each(|pending| pending.visit(visitor));
    }
}

impl Pending {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.due.iter_mut().chain(&mut self.give_up).for_each(|moment| visitor.due(moment));
        self.doubt.visit(visitor);
    }
}

impl Releasing {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.due.iter_mut().for_each(|moment| visitor.due(moment));
        visitor.due(&mut self.give_up);
        self.doubt.visit(visitor);
    }
}

impl Doubt {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visit_in_doubt(&mut self.in_doubt, visitor);
        self.until.iter_mut().for_each(|ms| visitor.server_ms(ms));
    }
}

fn visit_in_doubt(in_doubt: &mut Option<InDoubt>, visitor: &mut dyn Visitor) {
    let Some(in_doubt) = in_doubt else { return };
    match &mut in_doubt.server_ms {
        Some(ms) => {
            visitor.due(&mut in_doubt.until);
            visitor.server_ms(ms);
        }
        // The server's time is then estimated from the time since a call was sent.
        None => visitor.learned(&mut in_doubt.until),
    }
}
