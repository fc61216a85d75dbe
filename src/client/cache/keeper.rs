//! The keeper of an entry: a task that acquires the holds that local requests need, keeps a hold in
//! contact with the server, and releases it when it is recalled or unused.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, OptionFuture, select};

use crate::client::acquisition::{Acquisition, Contact, Event, Holding};
use crate::client::cache::entry::Entry;
use crate::client::cache::hold::Hold;
use crate::client::cache::telemetry::{self, Why};
use crate::client::cache::word::Look;
use crate::client::cache::{PlainBecause, Times, losing};
use crate::client::reply::read;
use crate::client::request::WaitPolicy;
use crate::client::{Client, Room, acquire, renewal};
use crate::clock::Moment;
use crate::protocol::{Mode, Release};
use crate::telemetry::emit_in_drop;

/// How long guards may stay after the gate was closed before the server is told that the hold is in
/// use, and should not be recalled.
const DRAIN: Duration = Duration::from_millis(20);

/// About the length of a block of tokens, on the server's clock.
const MORE_TOKENS: Duration = Duration::from_millis(1);

/// Starts the keeper on the runtime of the client. The caller's runtime may end before the client,
/// or not always run.
pub(super) fn start(entry: &Arc<Entry>) {
    let keeping = keep(Service { entry: entry.clone(), is_done: false });
    entry.client.spawn("keeper of a cached lock", keeping);
}

/// Runs until no local request waits and no hold is left.
async fn keep(mut service: Service) {
    while let Some(mode) = service.entry.wanted() {
        let Some(room) = service.entry.client.room_to_cache() else {
            service.entry.turn_loose(true, Some(PlainBecause::Limit));
            continue;
        };
        if let Some(kept) = begin(&service.entry, mode, room).await {
            Keeper::new(kept).run().await;
        }
    }
    service.is_done = true;
}

/// The task can be dropped at any point, with its runtime. Then nobody must wait for it.
struct Service {
    entry: Arc<Entry>,
    is_done: bool,
}

impl Drop for Service {
    fn drop(&mut self) {
        if !self.is_done {
            self.entry.turn_loose(false, None);
        }
    }
}

/// A hold that a task looks after. If the task is dropped, the hold grants nothing more and is
/// released.
struct Kept {
    entry: Arc<Entry>,
    hold: Arc<Hold>,
    is_done: bool,
    _room: Room,
}

impl Kept {
    fn new(entry: Arc<Entry>, hold: Arc<Hold>, room: Room) -> Kept {
        telemetry::leases(1);
        Kept { entry, hold, is_done: false, _room: room }
    }

    /// Releases the hold, which has no guards and a closed gate.
    fn end(mut self) {
        self.is_done = true;
        self.entry.released();
        let client = &self.entry.client;
        let mut releasing = Box::pin(release(client.clone(), self.hold.acquisition.clone()));
        // The release is sent at once, so the entry's next request arrives after it.
        if (&mut releasing).now_or_never().is_none() {
            client.spawn("release of a cached lock", releasing);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.is_done {
            self.entry.close(&self.hold);
            self.hold.gate.lose();
            self.entry.drained(&self.hold);
            give_back(&self.entry.client, &self.hold.acquisition);
        }
        emit_in_drop(|| telemetry::leases(-1));
    }
}

/// Acquires a hold of this mode, as long as a request waits for it.
async fn begin(entry: &Arc<Entry>, mode: Mode, room: Room) -> Option<Kept> {
    let options = entry.options(true);
    let policy = WaitPolicy::Queue { until: None };
    let taking = pin!(acquire::take(&entry.client, &entry.lock, mode, &options, policy));
    let unwanted = pin!(async {
        while entry.head().is_some() {
            entry.woken().await;
        }
    });
    let acquisition = match select(taking, unwanted).await {
        Either::Left((Ok(Some(acquisition)), _)) => acquisition,
        // Each request finds out by itself what is wrong.
        Either::Left(_) => {
            entry.turn_loose(true, None);
            return None;
        }
        Either::Right(_) => return None,
    };
    let token = acquisition.holding(|holding| holding.token)?;
    let since = entry.client.clock.now();
    let hold = Arc::new(Hold::new(entry.clone(), acquisition, mode, token, since));
    let mut keeper = Keeper::new(Kept::new(entry.clone(), hold.clone(), room));
    // Its times must be set before anybody sees it.
    let begins = keeper.refresh(since).is_some() && entry.begin_hold(&hold);
    begins.then_some(keeper.kept)
}

/// Leaves the release to the worker.
fn give_back(client: &Client, acquisition: &Acquisition) {
    client.on(acquisition, Event::Drop);
}

/// What to do about a hold.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing until this moment.
    Sleep(Moment),
    /// Contact the server.
    Contact,
    /// There are no more local writes: turn it into a read.
    Downgrade,
    /// Close the gate.
    Close,
    /// It is lost.
    Lost,
}

/// The current state of the acquisition.
struct Seen {
    mode: Mode,
    contact: Contact,
    is_revoked: bool,
    ends: Moment,
}

/// Looks after one hold until its gate is closed.
struct Keeper {
    kept: Kept,
    entry: Arc<Entry>,
    hold: Arc<Hold>,
    times: Times,
    /// The number of guards that it had granted at the last contact. The grant itself served the
    /// first.
    served: u32,
    /// The number of them that were reported. The first need not be.
    told: u32,
    /// The contact under way.
    contact: Option<BoxFuture<'static, ()>>,
    contact_due: Moment,
    /// A failed contact is not repeated before this moment.
    again_at: Moment,
    /// More tokens are not requested before this moment: the server has only as many as its clock
    /// has passed.
    tokens_due: Moment,
    /// When more tokens were requested, and the last token by then. Set until that is answered.
    asked: Option<(Moment, u64)>,
    /// There were no more tokens: the server's clock is behind its last token. Then an acquisition
    /// gets one token only.
    barren: bool,
    /// Since when it is known that others want the lock.
    called_back: Option<Moment>,
    /// The write is becoming a read, or has become one.
    downgrades: bool,
}

impl Keeper {
    fn new(kept: Kept) -> Keeper {
        let (entry, hold) = (kept.entry.clone(), kept.hold.clone());
        let times = Times::of(entry.options(true).lease);
        let hold_since = hold.since;
        let contact_due = hold_since.after(times.contact);
        Keeper {
            kept,
            entry,
            hold,
            times,
            served: 1,
            told: 1,
            contact: None,
            contact_due,
            again_at: hold_since,
            tokens_due: hold_since,
            asked: None,
            barren: false,
            called_back: None,
            downgrades: false,
        }
    }

    async fn run(mut self) {
        loop {
            let acquisition = self.hold.acquisition.clone();
            let mut changed = pin!(acquisition.changed.notified());
            changed.as_mut().enable();
            let now = self.entry.client.clock.now();
            let until = match self.step(now) {
                Step::Sleep(until) => until,
                Step::Contact => {
                    self.begin_contact();
                    continue;
                }
                Step::Downgrade => {
                    self.entry.client.on(&acquisition, Event::Downgrade);
                    continue;
                }
                Step::Close => return self.close(now),
                Step::Lost => {
                    losing::lose(&self.entry, &self.hold, now);
                    return self.close(now);
                }
            };
            let entry = self.entry.clone();
            let contact: OptionFuture<_> = self.contact.as_mut().into();
            tokio::select! {
                biased;
                Some(()) = contact => self.contact = None,
                () = changed => {}
                () = entry.woken() => {}
                () = entry.client.clock.sleep_until(until) => {}
            }
        }
    }

    /// Reads the state of the acquisition. `None` if it is lost.
    fn refresh(&mut self, now: Moment) -> Option<Seen> {
        let look = |holding: &Holding| {
            let contact = holding.contact.as_deref().copied()?;
            let is_held = holding.is_held(now) && self.hold.gate.owns_up_to(contact.fence);
            let (mode, is_revoked, ends) = (holding.mode, holding.is_revoked(), holding.ends);
            is_held.then_some(Seen { mode, contact, is_revoked, ends })
        };
        let seen = self.hold.acquisition.holding(look)??;
        let fresh = seen.contact.sent.after(self.times.fresh).min(seen.ends);
        let bound = match self.called_back {
            Some(_) => self.hold.gate.grant_until().min(fresh),
            None => fresh,
        };
        self.hold.gate.set_grant_until(bound);
        self.contact_due = seen.contact.sent.after(self.times.contact).max(self.again_at);
        self.asked.take_if(|(asked, last)| {
            let is_answered = seen.contact.sent >= *asked;
            if is_answered {
                self.barren = self.hold.gate.end_of_block() == *last;
            }
            is_answered
        });
        Some(seen)
    }

    /// Which mode others want, according to a push or a contact. Readers are satisfied by a read.
    fn recall(&self, contact: &Contact, mode: Mode) -> Option<Mode> {
        let pushed = self.hold.acquisition.recalled();
        let recall = match (pushed, contact.recall) {
            (Some(Mode::Write), _) | (_, Some(Mode::Write)) => Some(Mode::Write),
            (pushed, told) => pushed.or(told),
        };
        recall.filter(|recall| *recall == Mode::Write || mode == Mode::Write)
    }

    fn step(&mut self, now: Moment) -> Step {
        let Some(Seen { mode, contact, is_revoked, ends }) = self.refresh(now) else {
            return Step::Lost;
        };
        let (hold, entry) = (self.hold.clone(), self.entry.clone());
        let look = hold.gate.look();
        if mode == Mode::Read && look.may_write() {
            hold.gate.word.only_reads(); // the server has made it a read
        }
        if !hold.gate.has_token_to_read() && !hold.gate.look().may_write() {
            return Step::Close; // a read gets no more tokens
        }
        if contact.claimed && !look.is_open() && !(hold.gate.is_used_up() && look.may_write()) {
            hold.gate.word.open();
        }
        if hold.gate.look().may_write() && !hold.gate.has_token_to_read() {
            hold.gate.word.shut(); // a writer has used the last one while it was opened
        }
        entry.go_on(&hold);
        let (look, head) = (hold.gate.look(), entry.head());
        let is_used_up = look.may_write() && hold.gate.is_used_up();
        let is_idle = look.is_unused() && head.is_none();
        if is_revoked || (is_idle && contact.claimed && entry.is_disowned()) {
            return Step::Close;
        }
        if !contact.claimed {
            return Step::Sleep(ends); // the answer to the claim wakes it
        }
        let waits_for_token = is_used_up && (head == Some(Mode::Write) || !look.is_open());
        if self.barren && waits_for_token && head.is_some() {
            return Step::Close; // another acquisition gets one
        }
        let mut until = ends;
        match self.recall(&contact, mode) {
            Some(recall) => {
                let over = hold.since.after(entry.client.settings.cache.min_hold);
                if self.called_back.is_none() {
                    self.called_back = Some(now);
                    hold.gate.word.set_called(true);
                    let (pushed, waits) = (hold.acquisition.recalled().is_some(), now < over);
                    telemetry::recalled(&entry.lock, recall, pushed, waits && !is_idle);
                    // The last guard may have left before it knew that it must notify.
                    return self.step(now);
                }
                if is_idle {
                    return Step::Close;
                } else if now < over {
                    hold.gate.set_grant_until(hold.gate.grant_until().min(over));
                    until = until.min(over);
                } else if recall == Mode::Write || !hold.gate.has_token_to_read() {
                    return Step::Close;
                } else if !hold.gate.word.only_reads().has_writer() && !self.downgrades {
                    self.downgrades = true;
                    return Step::Downgrade;
                }
            }
            None if head == Some(Mode::Write) && !look.may_write() => {
                return Step::Close; // a hold is not upgraded: acquire a write
            }
            None => {
                if let Some(since) = self.called_back.take() {
                    hold.gate.word.set_called(false);
                    telemetry::given(&entry.lock, false, now.since(since));
                }
            }
        }
        self.contact(now, look, is_idle, waits_for_token && head.is_some(), until)
    }

    /// Whether it is time for a contact, or to release a hold that was not used since the last one.
    fn contact(
        &mut self,
        now: Moment,
        look: Look,
        is_idle: bool,
        waits_for_token: bool,
        until: Moment,
    ) -> Step {
        if self.contact.is_some() {
            return Step::Sleep(until);
        }
        let hold = &self.hold;
        let (is_due, was_used) = (now >= self.contact_due, look.served() != self.served);
        let is_short = look.may_write() && was_used && hold.gate.is_short_of_tokens();
        let needs_tokens = (is_short || waits_for_token) && !self.barren;
        let tokens_due = match self.asked {
            None => self.tokens_due,
            Some(_) => self.tokens_due.max(self.again_at), // it failed
        };
        let mut until = until.min(self.contact_due);
        let why = if is_due && is_idle && !was_used {
            return Step::Close;
        } else if is_due {
            Why::Due
        } else if needs_tokens && now >= tokens_due {
            Why::Tokens
        } else if hold.acquisition.take_look() {
            Why::Look
        } else {
            if needs_tokens {
                until = until.min(tokens_due);
            }
            return Step::Sleep(until);
        };
        self.served = look.served();
        self.tokens_due = now.after(MORE_TOKENS);
        self.again_at = now.after(self.times.contact / 4);
        self.asked = Some((now, hold.gate.end_of_block()));
        telemetry::contact(why);
        self.tell_grants(look);
        Step::Contact
    }

    fn tell_grants(&mut self, look: Look) {
        let grants = look.served().wrapping_sub(self.told);
        self.told = look.served();
        if grants > 0 {
            telemetry::granted(self.hold.mode, grants);
        }
    }

    fn begin_contact(&mut self) {
        self.contact = Some(contact(self.entry.client.clone(), self.hold.acquisition.clone()));
    }

    /// Closes the gate. A hold with guards drains in a task of its own.
    fn close(mut self, now: Moment) {
        let is_unused = self.entry.close(&self.hold);
        let look = self.hold.gate.look();
        self.tell_grants(look);
        let Keeper { kept, entry, hold, called_back, .. } = self;
        hold.acquisition.uncache();
        if let Some(since) = called_back {
            entry.called_back(look.served(), now.since(since));
        }
        if is_unused {
            kept.end();
        } else {
            entry.client.spawn("end of a cached lock", drain(kept, now));
        }
    }
}

async fn release(client: Arc<Client>, acquisition: Arc<Acquisition>) {
    let sent = client.on(&acquisition, Event::Release).now;
    let call = Release { only_wait: false }.call(client.scripts, acquisition.id, &acquisition.lock);
    let until = sent.after(client.settings.call_timeout);
    if let Ok(told) = read(client.router.call(&call, until).await, Release::read) {
        client.on(&acquisition, Event::GivenBack(told));
    }
    if !acquisition.is_over() {
        give_back(&client, &acquisition); // the worker handles what may still arrive
    }
}

/// A renewal. Its outcome is stored in the acquisition.
fn contact(client: Arc<Client>, acquisition: Arc<Acquisition>) -> BoxFuture<'static, ()> {
    async move { drop(renewal::renew(&client, &acquisition).await) }.boxed()
}

/// Waits until the last guard of a closed hold has left.
async fn drain(kept: Kept, closed: Moment) {
    let (entry, hold) = (kept.entry.clone(), kept.hold.clone());
    let (client, acquisition) = (entry.client.clone(), hold.acquisition.clone());
    let times = Times::of(entry.options(true).lease);
    let (mut due, mut renewing) = (closed.after(DRAIN), None);
    loop {
        let mut changed = pin!(acquisition.changed.notified());
        changed.as_mut().enable();
        let now = client.clock.now();
        let ends = acquisition.holding(|held| held.is_held(now).then_some(held.ends)).flatten();
        let look = hold.gate.look();
        let Some(ends) = ends.filter(|_| !look.is_unused()) else {
            if ends.is_none() {
                losing::lose(&entry, &hold, now);
            }
            break;
        };
        if now >= due && renewing.is_none() {
            due = now.after(times.contact);
            if look.may_write() && !look.has_writer() {
                // The remaining readers of a write do not exclude other readers.
                hold.gate.word.only_reads();
                client.on(&acquisition, Event::Downgrade);
            } else {
                renewing = Some(contact(client.clone(), acquisition.clone()));
            }
        }
        let until = if renewing.is_some() { ends } else { due.min(ends) };
        let renewed: OptionFuture<_> = renewing.as_mut().into();
        tokio::select! {
            biased;
            Some(()) = renewed => renewing = None,
            () = hold.left.notified() => {}
            () = changed => {}
            () = client.clock.sleep_until(until) => {}
        }
    }
    entry.drained(&hold);
    kept.end();
}
