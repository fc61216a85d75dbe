//! One client: its program, and its real acquisition, driven as `client::acquire` and
//! `client::worker` drive it.

use crate::checker::call::{About, Answer, Call, Message, Request, Stage};
use crate::checker::hold::Hold;
use crate::checker::program::{Change, Wish};
use crate::checker::time::{NOW, Older, SERVER_NOW, Tokens, UNIT, server_ms};
use crate::client::acquisition::shift::Visitor;
use crate::client::acquisition::{Context, Event, Next, Pushed, Sending, State};
use crate::client::reply::{Failure, Outcome, Told};
use crate::client::settings::Settings;
use crate::clock::Moment;
use crate::node::Address;
use crate::protocol::{Acquire, Ended, Envelope, Grant, Kind as LockKind, Mode, Release};
use crate::router::{CallError, ClockBound, Reason};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Copy)]
pub(super) enum Life {
    Alive,
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) life: Life,
    /// It is subscribed at the server.
    pub(super) hears: bool,
    /// The index of the acquisition in the program, and how many of its changes were made or given
    /// up.
    pub(super) at: u8,
    changes: u8,
    pub(super) state: Option<State>,
    request: Driver,
    /// The request is for an upgrade.
    upgrades: bool,
    /// When the worker must look at it.
    look: Option<Moment>,
    /// Its cached lease, and what pushes have said about other clients that want it. A push can
    /// come before the grant.
    pub(super) hold: Option<Hold>,
    pub(super) recall: Option<Mode>,
}

/// The state of a request's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Driver {
    Resting,
    /// A call is under way, which named this server as the one where the client is subscribed.
    Calling(Option<u8>),
    /// It sleeps until then, or until something changes.
    Waiting(Moment, Option<u8>),
    /// An upgrade waits for a change that is under way.
    Beginning,
    /// The holder releases it by a call of its own.
    GivingBack,
}

/// Faults of a client, to show that a rule finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientFault {
    /// It counts its lease from when the answer came.
    CountsFromTheAnswer,
    /// It waits for its message and never polls.
    NeverPolls,
    /// It forgets a lease that it gives up.
    NeverReleases,
    /// It keeps what other clients want.
    IgnoresRecalls,
    /// A guard has the token of the one before it.
    ReusesTokens,
    /// It ignores a recall that comes before the grant.
    ForgetsEarlyRecalls,
}

/// The surroundings of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) settings: &'a Settings,
    pub(super) program: &'a [Wish],
    pub(super) server: u8,
    pub(super) fault: Option<ClientFault>,
}

/// The consequences of an event.
#[derive(Debug, Default)]
pub(super) struct Follows {
    pub(super) calls: Vec<Call>,
    pub(super) pump: bool,
}

/// A client with its surroundings, for the time of one event.
pub(super) struct Turn<'a> {
    pub(super) client: Client,
    pub(super) around: Around<'a>,
    pub(super) follows: Follows,
}

impl Client {
    pub(super) fn new() -> Client {
        Client {
            life: Life::Alive,
            hears: true,
            at: 0,
            changes: 0,
            state: None,
            request: Driver::Resting,
            upgrades: false,
            look: None,
            hold: None,
            recall: None,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }

    /// It has nothing left to do.
    pub(super) fn is_done(&self, program: &[Wish]) -> bool {
        !self.is_alive() || (self.state.is_none() && usize::from(self.at) >= program.len())
    }

    pub(super) fn may_start(&self, program: &[Wish]) -> bool {
        self.is_alive() && self.state.is_none() && usize::from(self.at) < program.len()
    }

    pub(super) fn is_to_wake(&self) -> bool {
        matches!(self.request, Driver::Waiting(until, _) if until <= NOW)
    }

    pub(super) fn is_to_look(&self) -> bool {
        self.look.is_some_and(|look| look <= NOW)
    }

    /// A request is under way that its caller can drop.
    pub(super) fn may_cancel(&self) -> bool {
        !matches!(self.request, Driver::Resting | Driver::GivingBack)
    }

    /// Its guard is gone and has requested the release.
    pub(super) fn gives_back(&self) -> bool {
        self.request == Driver::GivingBack
    }

    /// It has a guard that its owner can drop.
    pub(super) fn may_drop(&self) -> bool {
        self.rests() && self.hold.is_none() && matches!(self.state, Some(State::Held(_)))
    }

    pub(super) fn rests(&self) -> bool {
        self.request == Driver::Resting
    }

    /// Its owner can release it by a call.
    pub(super) fn may_give_back(&self, program: &[Wish]) -> bool {
        self.may_drop() && program.get(usize::from(self.at)).is_some_and(|wish| wish.gives_back)
    }

    /// The change that its owner can make next.
    pub(super) fn next_change(&self, program: &[Wish]) -> Option<Change> {
        let wish = program.get(usize::from(self.at))?;
        let next = wish.changes.get(usize::from(self.changes)).copied()?;
        let holds = matches!(&self.state, Some(State::Held(holding)) if holding.is_held(NOW));
        (holds && self.request == Driver::Resting).then_some(next)
    }

    /// Only its release remains.
    pub(super) fn has_given_up(&self) -> bool {
        matches!(self.state, None | Some(State::Releasing(_) | State::Ended))
    }

    /// All tokens that it knows.
    pub(super) fn tokens(&self) -> Vec<u64> {
        let mut all = Vec::new();
        self.clone().visit(&mut Tokens(|token: &mut u64| all.push(*token)));
        all
    }

    pub(super) fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.state.iter_mut().for_each(|state| state.visit(visitor));
        self.hold.iter_mut().for_each(|hold| hold.visit(visitor));
    }

    pub(super) fn crash(&mut self) {
        *self = Client { life: Life::Crashed, hears: false, at: self.at, ..Client::new() };
    }

    pub(super) fn grow_older(&mut self, by: &mut Older) {
        if let Driver::Waiting(until, _) = &mut self.request {
            by.due(until);
        }
        self.look.iter_mut().for_each(|look| by.due(look));
        self.state.iter_mut().for_each(|state| state.visit(by));
    }
}

impl Turn<'_> {
    pub(super) fn on(&mut self, event: Event) -> Option<Next> {
        let state = self.client.state.as_mut()?;
        let settings = self.around.settings;
        let kind = LockKind::ReadWrite;
        let context = Context { now: NOW, random: 0.0, settings, kind };
        let effects = state.on(event, &context);
        self.follows.pump |= effects.pump;
        let sends = effects.sends.into_iter().flatten();
        sends.for_each(|sending| self.send(Request::Work(sending)));
        if let Some(look) = effects.look.filter(|_| !effects.over) {
            self.client.look = Some(self.client.look.map_or(look, |earlier| earlier.min(look)));
        }
        if effects.changed || effects.ended {
            self.tell();
        }
        if matches!(self.client.state, Some(State::Ended)) {
            self.client.look = None;
            self.forget();
        }
        effects.next
    }

    /// Wakes the task if it sleeps.
    fn tell(&mut self) {
        match self.client.request {
            Driver::Waiting(..) => self.wake(),
            Driver::Beginning => self.upgrade(),
            Driver::Resting | Driver::Calling(_) | Driver::GivingBack => {}
        }
    }

    /// Everything is over, except for a request that has not been told.
    fn forget(&mut self) {
        if self.client.request == Driver::Resting && self.client.state.is_some() {
            let Client { hears, at, .. } = self.client;
            self.client = Client { hears, at: at + 1, ..Client::new() };
        }
    }

    // The task of a request.

    pub(super) fn start(&mut self) {
        let wish = self.around.program[usize::from(self.client.at)];
        self.client.state = Some(wish.request(self.around.settings));
        self.go_on(Next::Again);
    }

    pub(super) fn change(&mut self, change: Change) {
        match change {
            Change::Upgrade => self.upgrade(),
            Change::Downgrade => {
                self.client.changes += 1;
                self.on(Event::Downgrade);
            }
            Change::Shrink(keep) => {
                self.client.changes += 1;
                self.on(Event::Shrink { keep });
            }
        }
    }

    fn upgrade(&mut self) {
        self.client.upgrades = true;
        let policy = self.around.program[usize::from(self.client.at)].policy();
        match self.on(Event::Upgrade(policy)) {
            Some(Next::Wait(_)) => self.client.request = Driver::Beginning,
            Some(next) => self.go_on(next),
            None => self.finish(),
        }
    }

    pub(super) fn wake(&mut self) {
        // So that what it does now wakes nothing.
        let Driver::Waiting(_, joined) = self.client.request else { return };
        self.client.request = Driver::Calling(joined);
        let next = self.on(Event::Wake);
        self.go_on(next.unwrap_or(Next::Again));
    }

    /// The caller drops its request.
    pub(super) fn cancel(&mut self) {
        self.finish();
    }

    pub(super) fn drop_guard(&mut self) {
        if self.around.fault == Some(ClientFault::NeverReleases) {
            self.client.state = Some(State::Ended);
            return self.forget();
        }
        self.on(Event::Drop);
    }

    /// The holder's own release, as a guard does it.
    pub(super) fn give_back(&mut self) {
        self.client.request = Driver::GivingBack;
        self.on(Event::Release);
        self.send(Request::GiveBack);
    }

    /// The released guard is dropped.
    fn given_back(&mut self, told: Option<Told<Ended>>) {
        told.into_iter().for_each(|told| drop(self.on(Event::GivenBack(told))));
        self.client.request = Driver::Resting;
        self.on(Event::Drop);
        if matches!(self.client.state, Some(State::Ended)) {
            self.forget();
        }
    }

    pub(super) fn join(&mut self) {
        self.client.hears = true;
        self.look_for_recalls();
        if matches!(self.client.request, Driver::Waiting(..)) {
            self.on(Event::Missed);
        }
    }

    fn go_on(&mut self, mut next: Next) {
        loop {
            next = match next {
                Next::Again => self.call(),
                Next::Send { acquire, until, .. } => return self.send_acquire(acquire, until),
                Next::Wait(_) => match self.rest() {
                    Next::Wait(_) => return,
                    next => next,
                },
                Next::Held { .. } | Next::Refused | Next::Failed(_) => return self.finish(),
            };
        }
    }

    fn subscribed_at(&self) -> Option<u8> {
        self.client.hears.then_some(self.around.server)
    }

    fn call(&mut self) -> Next {
        self.client.request = Driver::Calling(self.subscribed_at());
        let hears = self.client.hears;
        self.on(Event::Call { hears }).unwrap_or(Next::Again)
    }

    fn send_acquire(&mut self, mut acquire: Acquire, until: Moment) {
        let joined = self.subscribed_at();
        self.client.request = Driver::Calling(joined);
        if let Some(wait) = &mut acquire.wait {
            wait.joined_at = joined.map(server_name);
        }
        self.follows.calls.push(Call {
            acquisition: self.client.at,
            sent: NOW,
            until,
            not_after: server_ms(until),
            stage: Stage::Sent(Request::Acquire(acquire)),
        });
    }

    fn rest(&mut self) -> Next {
        let Driver::Calling(joined) = self.client.request else { return Next::Again };
        if self.subscribed_at() != joined {
            return Next::Again;
        }
        let next = self.on(Event::Wake).unwrap_or(Next::Again);
        if let Next::Wait(until) = next {
            self.client.request = Driver::Waiting(until, joined);
        }
        next
    }

    /// The task of the request ends.
    fn finish(&mut self) {
        self.client.request = Driver::Resting;
        if std::mem::take(&mut self.client.upgrades) {
            self.client.changes += 1;
        }
        self.on(Event::Leave);
        if matches!(self.client.state, Some(State::Ended)) {
            self.forget();
        }
    }

    // The worker.

    pub(super) fn look(&mut self) {
        self.client.look = None;
        self.on(Event::Look);
    }

    pub(super) fn send(&mut self, request: Request) {
        let latest = NOW.after(self.around.settings.call_timeout);
        let until = match request {
            Request::Work(Sending::Renew { ends, .. } | Sending::Ask { ends }) => latest.min(ends),
            _ => latest,
        };
        let stage = Stage::Sent(request);
        let acquisition = self.client.at;
        self.follows.calls.push(Call { acquisition, sent: NOW, until, not_after: 0, stage });
    }

    // What comes from the server.

    /// If the acquisition is over, a message matters only for what is left to release.
    pub(super) fn hear(&mut self, message: &Message, is_over: bool) {
        let Message { token, deadline, now, more, .. } = *message;
        self.follows.pump |= more;
        if is_over {
            return;
        }
        match message.about {
            About::Grant => {}
            About::RecallToRead => return self.called_back(Mode::Read),
            About::RecallToWrite => return self.called_back(Mode::Write),
            About::End => return drop(self.on(Event::Ended { token })),
        }
        let mut bound = ClockBound::default();
        bound.observe(NOW, NOW, SERVER_NOW);
        let pushed = Pushed {
            grant: Grant::new(token, deadline),
            now,
            received: NOW,
            from: node(self.around.server),
            bound: Some(bound),
        };
        self.on(Event::Pushed(Box::new(pushed)));
    }

    /// A call has been answered.
    pub(super) fn answered(&mut self, sent: Moment, envelope: Envelope, answer: Answer) {
        let around = self.around;
        match answer {
            Answer::Acquired(what) => {
                let told = told(around, sent, envelope, what);
                self.acquired(Ok(told));
            }
            Answer::Renewed(what) => {
                self.contacted();
                self.on(Event::Renewed(Ok(told(around, sent, envelope, what))));
            }
            Answer::Asked(what) => {
                self.on(Event::Asked(Ok(told(around, sent, envelope, what))));
            }
            Answer::Downgraded(what) => {
                self.on(Event::Downgraded(Ok(told(around, sent, envelope, what))));
            }
            Answer::Shrunk { keep, lease } => {
                let outcome = Ok(told(around, sent, envelope, lease));
                self.on(Event::Shrunk { keep, outcome });
            }
            Answer::Released { only_wait, ended } => {
                let outcome = Ok(told(around, sent, envelope, ended));
                self.on(Event::Released { only_wait, outcome });
            }
            Answer::GivenBack(ended) => {
                let told = told(around, sent, envelope, ended);
                self.given_back(Some(told));
            }
            Answer::Pumped => self.follows.pump |= envelope.more,
            Answer::Outside => {}
        }
    }

    /// A call has failed.
    pub(super) fn failed(&mut self, call: &Call) {
        let failure = |in_doubt| {
            let reason = Reason::TimedOut(None);
            Failure::Call(CallError { reason, in_doubt: Some(in_doubt), last: None })
        };
        let failure = failure(call.not_after);
        match Kind::of(call) {
            Kind::Acquire => self.acquired(Err(failure)),
            Kind::Renew => {
                self.contacted();
                self.on(Event::Renewed(Err(failure)));
            }
            Kind::Ask => drop(self.on(Event::Asked(Err(failure)))),
            Kind::Downgrade => drop(self.on(Event::Downgraded(Err(failure)))),
            Kind::Shrink => {
                let keep = match call.request() {
                    Some(Request::Work(Sending::Shrink(shrink))) => shrink.keep,
                    _ => 1,
                };
                drop(self.on(Event::Shrunk { keep, outcome: Err(failure) }));
            }
            Kind::Release { only_wait } => {
                drop(self.on(Event::Released { only_wait, outcome: Err(failure) }));
            }
            Kind::GiveBack => self.given_back(None),
            Kind::Pump | Kind::Outside => {}
        }
    }

    fn acquired(&mut self, outcome: Outcome<crate::protocol::Acquired>) {
        let next = self.on(Event::Acquired(outcome));
        self.go_on(next.unwrap_or(Next::Again));
    }
}

/// The purpose of a call, answered or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Acquire,
    Renew,
    Ask,
    Downgrade,
    Shrink,
    Release { only_wait: bool },
    GiveBack,
    Pump,
    Outside,
}

impl Kind {
    pub(super) fn of(call: &Call) -> Kind {
        match &call.stage {
            Stage::Sent(request) | Stage::Abandoned(request) => match request {
                Request::Acquire(_) => Kind::Acquire,
                Request::Work(Sending::Renew { .. }) => Kind::Renew,
                Request::Work(Sending::Ask { .. }) => Kind::Ask,
                Request::Work(Sending::Downgrade(_)) => Kind::Downgrade,
                Request::Work(Sending::Shrink(_)) => Kind::Shrink,
                Request::Work(Sending::Release(Release { only_wait })) => {
                    Kind::Release { only_wait: *only_wait }
                }
                Request::GiveBack => Kind::GiveBack,
                Request::Pump => Kind::Pump,
                Request::Revoke(_) | Request::Force(_) => Kind::Outside,
            },
            Stage::Answered(_, answer) => match answer {
                Answer::Acquired(_) => Kind::Acquire,
                Answer::Renewed(_) => Kind::Renew,
                Answer::Asked(_) => Kind::Ask,
                Answer::Downgraded(_) => Kind::Downgrade,
                Answer::Shrunk { .. } => Kind::Shrink,
                Answer::Released { only_wait, .. } => Kind::Release { only_wait: *only_wait },
                Answer::GivenBack(_) => Kind::GiveBack,
                Answer::Pumped => Kind::Pump,
                Answer::Outside => Kind::Outside,
            },
        }
    }
}

fn told<T>(around: Around<'_>, sent: Moment, envelope: Envelope, what: T) -> Told<T> {
    let node = node(around.server);
    let sent = match around.fault {
        Some(ClientFault::CountsFromTheAnswer) => NOW,
        _ => sent,
    };
    Told { what, envelope, sent, received: NOW, node, confirmed: 0, in_doubt: None }
}

fn node(server: u8) -> Address {
    Address { host: "server".into(), port: u16::from(server) }
}

pub(super) fn server_name(server: u8) -> String {
    format!("server{server}")
}

/// Whether a live call may still be waited for in a unit: time does not pass beyond that.
pub(super) fn may_wait_a_unit(call: &Call) -> bool {
    call.is_abandoned() || call.until >= NOW.after(UNIT)
}
