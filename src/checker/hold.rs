//! What a client does with a cached lock: the keeper and the guards of `client::cache`, with one
//! guard at a time, and with each of their actions as a separate step.

use crate::checker::call::Request;
use crate::checker::client::{Client, ClientFault, Turn};
use crate::checker::time::NOW;
use crate::client::acquisition::shift::Visitor;
use crate::client::acquisition::{Contact, Event, Holding, Sending, State};
use crate::protocol::Mode;

/// A lease from which guards are made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    pub(super) guard: Option<Mode>,
    /// How many more guards the client will want.
    uses: u8,
    /// The token of the guards of this phase, whether a guard has it, and the last token that the
    /// hold made itself.
    pub(super) token: u64,
    is_used: bool,
    last: u64,
    is_open: bool,
    contact: Asking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asking {
    /// When the last contact is old.
    WhenDue,
    /// A message may have been lost, or the server must learn that the lease is in use.
    AtOnce,
    UnderWay,
}

impl Hold {
    /// A hold from which the first guard is made at once: the one that it was acquired for.
    fn new(mode: Mode, uses: u8, token: u64) -> Hold {
        Hold {
            guard: Some(mode),
            uses,
            token,
            is_used: true,
            last: token,
            is_open: true,
            contact: Asking::WhenDue,
        }
    }

    pub(super) fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.token(&mut self.token);
        visitor.token(&mut self.last);
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
fn lease(client: &Client) -> Option<(&Holding, Contact)> {
    let Some(State::Held(holding)) = &client.state else { return None };
    let contact = holding.contact.as_deref().copied()?;
    holding.is_held(NOW).then_some((holding, contact))
}

/// The lease is a write and will stay one.
fn writes(holding: &Holding) -> bool {
    holding.visible_mode() == Mode::Write
}

impl Client {
    /// The token of its lease.
    pub(super) fn granted(&self) -> Option<u64> {
        lease(self).map(|(holding, _)| holding.token)
    }

    /// The hold can make a guard.
    pub(super) fn may_use(&self, mode: Mode) -> bool {
        let (Some(hold), Some((holding, contact))) = (&self.hold, lease(self)) else {
            return false;
        };
        let is_fresh = contact.claimed && contact.sent == NOW;
        let serves = match mode {
            Mode::Write => writes(holding) && hold.has_token(),
            Mode::Read => hold.token <= hold.last,
        };
        hold.is_open && hold.guard.is_none() && hold.uses > 0 && is_fresh && serves
    }

    pub(super) fn may_leave(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.guard.is_some())
    }

    /// It must contact the server.
    pub(super) fn is_to_contact(&self) -> bool {
        let (Some(hold), Some((holding, contact))) = (&self.hold, lease(self)) else {
            return false;
        };
        let is_used_up = hold.is_open && writes(holding) && !hold.has_token();
        let is_due = match hold.contact {
            Asking::AtOnce => true,
            Asking::WhenDue => contact.sent < NOW || is_used_up,
            Asking::UnderWay => false,
        };
        is_due && contact.claimed && !self.gives_back()
    }

    /// It has been in contact, and knows of no client that wants the lease that no guard uses.
    pub(super) fn keeps_unused(&self) -> bool {
        let is_unused = |hold: &Hold| hold.is_open && hold.guard.is_none();
        self.hold.as_ref().is_some_and(is_unused)
    }
}

impl Turn<'_> {
    pub(super) fn enter(&mut self, mode: Mode) {
        let Some(hold) = &mut self.client.hold else { return };
        if mode == Mode::Write {
            hold.end_phase();
        }
        (hold.guard, hold.is_used) = (Some(mode), true);
        hold.uses -= 1;
    }

    pub(super) fn leave(&mut self) {
        let Some(hold) = &mut self.client.hold else { return };
        let reuses = self.around.fault == Some(ClientFault::ReusesTokens);
        match hold.guard.take() {
            Some(Mode::Write) if reuses => hold.is_used = false,
            Some(Mode::Write) => hold.end_phase(),
            _ => {}
        }
    }

    pub(super) fn contact(&mut self) {
        let Some((holding, _)) = lease(&self.client) else { return };
        let (renew, replicas, ends) = (holding.renew(NOW), holding.replicas(), holding.ends);
        let is_write = writes(holding);
        let Some(hold) = &mut self.client.hold else { return };
        hold.contact = Asking::UnderWay;
        if !hold.is_open && is_write && hold.guard == Some(Mode::Read) {
            // The rest of a write does not keep others from reading.
            hold.contact = Asking::WhenDue;
            self.on(Event::Downgrade);
        } else {
            self.send(Request::Work(Sending::Renew { renew, replicas, ends }));
        }
    }

    /// A contact has ended.
    pub(super) fn contacted(&mut self) {
        if let Some(hold) = &mut self.client.hold {
            hold.contact = Asking::WhenDue;
        }
    }

    /// Another client wants the lock.
    pub(super) fn called_back(&mut self, mode: Mode) {
        let forgets = self.around.fault == Some(ClientFault::ForgetsEarlyRecalls);
        if forgets && self.client.hold.is_none() {
            return;
        }
        if self.client.recall != Some(Mode::Write) {
            self.client.recall = Some(mode);
        }
    }

    /// A message may have been lost.
    pub(super) fn look_for_recalls(&mut self) {
        if let Some(hold) = &mut self.client.hold
            && hold.contact == Asking::WhenDue
        {
            hold.contact = Asking::AtOnce;
        }
    }

    /// What the keeper does after an event.
    pub(super) fn keep(&mut self) {
        let Some(wish) = self.around.program.get(usize::from(self.client.at)).copied() else {
            return;
        };
        if !wish.caches || !self.client.rests() {
            return;
        }
        let Some((holding, contact)) = lease(&self.client) else { return self.lose() };
        let (is_write, is_revoked) = (writes(holding), holding.is_revoked());
        let (granted, mode) = (holding.token, holding.mode);
        let hold = self.client.hold.get_or_insert_with(|| Hold::new(wish.mode, wish.uses, granted));
        if contact.fence < hold.token && hold.is_used {
            return self.lose(); // this history of the lock does not have it
        }
        hold.last = hold.last.max(contact.fence);
        if !contact.claimed || !hold.is_open {
            return self.give_back_unused();
        }
        let told = [self.client.recall, contact.recall];
        let wanted = |mode| told.contains(&Some(mode));
        let ignores = self.around.fault == Some(ClientFault::IgnoresRecalls);
        let for_write = wanted(Mode::Write) && !ignores;
        let for_read = wanted(Mode::Read) && mode == Mode::Write && !ignores;
        let is_unused = hold.guard.is_none();
        let is_over = is_unused && (hold.uses == 0 || for_write || for_read);
        let cannot_read = hold.token > hold.last;
        if is_revoked || is_over || for_write || (cannot_read && (for_read || !is_write)) {
            self.close();
        } else if for_read && is_write && hold.guard == Some(Mode::Read) {
            self.on(Event::Downgrade);
        }
    }

    /// It makes no more guards.
    fn close(&mut self) {
        if let Some(State::Held(holding)) = &mut self.client.state {
            holding.uncache();
        }
        if let Some(hold) = &mut self.client.hold {
            hold.is_open = false;
            hold.contact = Asking::AtOnce;
        }
        self.give_back_unused();
    }

    fn give_back_unused(&mut self) {
        let is_over = |hold: &Hold| !hold.is_open && hold.guard.is_none();
        if self.client.hold.as_ref().is_some_and(is_over) {
            self.give_back();
        }
    }

    /// Its guards learn that it is lost.
    fn lose(&mut self) {
        if self.client.hold.take().is_some() {
            self.on(Event::Drop);
        }
    }
}
