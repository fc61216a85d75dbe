//! What a client does with a cached lock: the task and the guards of `client::cache`, with one
//! guard at a time, and with each of their actions as a separate step.

use rwlease_core::acquisition::{
    AcquisitionEvent, AcquisitionState, HeldLease, Keepalive, TimeVisitor, WorkerCall,
};

use crate::call::CallRequest;
use crate::client::{ClientFault, ClientTurn, ModelClient};
use crate::time::LOCAL_NOW;
use rwlease::LockMode;

/// A lease from which guards are made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelCachedLease {
    pub guard: Option<LockMode>,
    /// How many more guards the client will want.
    uses: u8,
    /// The token of the guards of this phase, whether a guard has it, and the last token that the
    /// hold made itself.
    pub token: u64,
    is_used: bool,
    last: u64,
    is_open: bool,
    keepalive: KeepalivePhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KeepalivePhase {
    /// When the last keep-alive is old.
    WhenDue,
    /// A message may have been lost, or the server must learn that the lease is in use.
    AtOnce,
    UnderWay,
}

impl ModelCachedLease {
    /// A hold from which the first guard is made at once: the one that it was acquired for.
    fn new(mode: LockMode, uses: u8, token: u64) -> ModelCachedLease {
        ModelCachedLease {
            guard: Some(mode),
            uses,
            token,
            is_used: true,
            last: token,
            is_open: true,
            keepalive: KeepalivePhase::WhenDue,
        }
    }

    pub fn visit(&mut self, visitor: &mut dyn TimeVisitor) {
        visitor.visit_token(&mut self.token);
        visitor.visit_token(&mut self.last);
    }

    /// The next phase has its own token.
    fn has_token(&self) -> bool {
        if self.is_used { self.token < self.last } else { self.token <= self.last }
    }

    fn end_phase(&mut self) {
        if std::mem::take(&mut self.is_used) {
            self.token += 1;
        }
    }
}

/// The client's lease, with what the server said about it last.
fn lease(client: &ModelClient) -> Option<(&HeldLease, Keepalive)> {
    let Some(AcquisitionState::Held(holding)) = &client.state else { return None };
    let contact = holding.keepalive.as_deref().copied()?;
    holding.is_held(LOCAL_NOW).then_some((holding, contact))
}

/// The lease is a write and will stay one.
fn writes(holding: &HeldLease) -> bool {
    holding.visible_mode() == LockMode::Write
}

impl ModelClient {
    /// The token of its lease.
    pub fn granted(&self) -> Option<u64> {
        lease(self).map(|(holding, _)| holding.token)
    }

    /// The hold can make a guard.
    pub fn may_use(&self, mode: LockMode) -> bool {
        let (Some(hold), Some((holding, contact))) = (&self.hold, lease(self)) else {
            return false;
        };
        let is_fresh = contact.is_claimed && contact.sent_at == LOCAL_NOW;
        let serves = match mode {
            LockMode::Write => writes(holding) && hold.has_token(),
            LockMode::Read => hold.token <= hold.last,
        };
        hold.is_open && hold.guard.is_none() && hold.uses > 0 && is_fresh && serves
    }

    pub fn may_leave(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.guard.is_some())
    }

    /// A keep-alive is due.
    pub fn must_send_keepalive(&self) -> bool {
        let (Some(hold), Some((holding, contact))) = (&self.hold, lease(self)) else {
            return false;
        };
        let is_used_up = hold.is_open && writes(holding) && !hold.has_token();
        let is_due = match hold.keepalive {
            KeepalivePhase::AtOnce => true,
            KeepalivePhase::WhenDue => contact.sent_at < LOCAL_NOW || is_used_up,
            KeepalivePhase::UnderWay => false,
        };
        is_due && contact.is_claimed && !self.is_releasing_by_call()
    }

    /// A keep-alive got a reply. No guard uses the lease, and no client is known to want it.
    pub fn is_idle_without_recall(&self) -> bool {
        let is_unused = |hold: &ModelCachedLease| hold.is_open && hold.guard.is_none();
        self.hold.as_ref().is_some_and(is_unused)
    }
}

impl ClientTurn<'_> {
    pub fn enter(&mut self, mode: LockMode) {
        let Some(hold) = &mut self.client.hold else { return };
        if mode == LockMode::Write {
            hold.end_phase();
        }
        (hold.guard, hold.is_used) = (Some(mode), true);
        hold.uses -= 1;
    }

    pub fn leave(&mut self) {
        let Some(hold) = &mut self.client.hold else { return };
        let reuses = self.around.fault == Some(ClientFault::ReusesTokens);
        match hold.guard.take() {
            Some(LockMode::Write) if reuses => hold.is_used = false,
            Some(LockMode::Write) => hold.end_phase(),
            _ => {}
        }
    }

    pub fn keepalive(&mut self) {
        let Some((holding, _)) = lease(&self.client) else { return };
        let (renew, confirmation, deadline) =
            (holding.renew(LOCAL_NOW), holding.confirmation(), holding.deadline);
        let is_write = writes(holding);
        let Some(hold) = &mut self.client.hold else { return };
        hold.keepalive = KeepalivePhase::UnderWay;
        if !hold.is_open && is_write && hold.guard == Some(LockMode::Read) {
            // The rest of a write does not keep others from reading.
            hold.keepalive = KeepalivePhase::WhenDue;
            self.on(AcquisitionEvent::Downgrade);
        } else {
            self.send(CallRequest::Work(WorkerCall::Renew { renew, confirmation, deadline }));
        }
    }

    /// A keep-alive has ended.
    pub fn contacted(&mut self) {
        if let Some(hold) = &mut self.client.hold {
            hold.keepalive = KeepalivePhase::WhenDue;
        }
    }

    /// Another client wants the lock.
    pub fn recalled(&mut self, mode: LockMode) {
        let forgets = self.around.fault == Some(ClientFault::ForgetsEarlyRecalls);
        if forgets && self.client.hold.is_none() {
            return;
        }
        if self.client.recall != Some(LockMode::Write) {
            self.client.recall = Some(mode);
        }
    }

    /// A message may have been lost.
    pub fn look_for_recalls(&mut self) {
        if let Some(hold) = &mut self.client.hold
            && hold.keepalive == KeepalivePhase::WhenDue
        {
            hold.keepalive = KeepalivePhase::AtOnce;
        }
    }

    /// What the task does after an event.
    pub fn run_lease_task(&mut self) {
        let Some(wish) = self.around.program.get(usize::from(self.client.step)).copied() else {
            return;
        };
        if wish.uses == 0 || !self.client.is_idle() {
            return;
        }
        let Some((holding, contact)) = lease(&self.client) else { return self.lose() };
        let (is_write, is_revoked) = (writes(holding), holding.is_revoked());
        let (granted, mode) = (holding.token, holding.mode);
        let hold = self
            .client
            .hold
            .get_or_insert_with(|| ModelCachedLease::new(wish.mode, wish.uses, granted));
        if contact.last_token < hold.token && hold.is_used {
            return self.lose(); // this history of the lock does not have it
        }
        hold.last = hold.last.max(contact.last_token);
        if !contact.is_claimed || !hold.is_open {
            return self.release_if_unused();
        }
        let told = [self.client.recall, contact.recall_mode];
        let wanted = |mode| told.contains(&Some(mode));
        let ignores = self.around.fault == Some(ClientFault::IgnoresRecall);
        let for_write = wanted(LockMode::Write) && !ignores;
        let for_read = wanted(LockMode::Read) && mode == LockMode::Write && !ignores;
        let is_unused = hold.guard.is_none();
        let is_over = is_unused && (hold.uses == 0 || for_write || for_read);
        let cannot_read = hold.token > hold.last;
        if is_revoked || is_over || for_write || (cannot_read && (for_read || !is_write)) {
            self.close();
        } else if for_read && is_write && hold.guard == Some(LockMode::Read) {
            self.on(AcquisitionEvent::Downgrade);
        }
    }

    /// It makes no more guards.
    fn close(&mut self) {
        if let Some(AcquisitionState::Held(holding)) = &mut self.client.state {
            holding.stop_caching();
        }
        if let Some(hold) = &mut self.client.hold {
            hold.is_open = false;
            hold.keepalive = KeepalivePhase::AtOnce;
        }
        self.release_if_unused();
    }

    fn release_if_unused(&mut self) {
        let is_over = |hold: &ModelCachedLease| !hold.is_open && hold.guard.is_none();
        if self.client.hold.as_ref().is_some_and(is_over) {
            self.release_by_call();
        }
    }

    /// Its guards learn that it is lost.
    fn lose(&mut self) {
        if self.client.hold.take().is_some() {
            self.on(AcquisitionEvent::Abandon);
        }
    }
}
