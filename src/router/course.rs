//! The course of one call: from server to server until one answers it, or its time is up.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::node::{Address, NodeError, Reply, ServerError, Words};
use crate::router::answer::{Decision, decide};
use crate::router::call::{Answer, Call, CallError, Reason};
use crate::router::connection::{Connection, Exchange, Failure};
use crate::router::topology::Whom;
use crate::router::{Router, jittered};

/// Waits between attempts: the first one, doubled each time up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// After this many redirects in one call something is odd, and it goes on a little slower.
const SWIFT_REDIRECTS: u32 = 3;
const REDIRECT_PAUSE: Duration = Duration::from_millis(2);

/// A call under way, and what has happened to it so far.
#[derive(Debug)]
pub(crate) struct Course<'a> {
    router: &'a Router,
    call: &'a Call,
    /// How many replicas are to confirm it; with any, it goes out on the connections for that.
    replicas: u32,
    confirmed: u32,
    deadline: Moment,
    next: Stop,
    redirects: u32,
    /// Attempts in a row that came to nothing.
    troubles: u32,
    loose: Option<u64>,
    last_error: Option<ServerError>,
    last_failure: Option<NodeError>,
}

/// Where the call goes next, and how.
#[derive(Debug, Default)]
struct Stop {
    /// `None` for the owner of the slot.
    address: Option<Address>,
    /// As a guest of a server that imports the slot.
    asking: bool,
    /// With the text of the script, which the server does not know.
    text: bool,
}

/// What came of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    Answered(Exchange<Reply>),
    /// The same, with the number of replicas that have it.
    Confirmed(Exchange<Reply>, u32),
    /// No connection: nothing was sent.
    Unconnected(NodeError),
    /// No answer in time, or the slot was found to have another owner meanwhile. What was sent may still arrive until
    /// this `not_after` of it.
    Silent {
        sent: Option<u64>,
    },
    Broken {
        failure: NodeError,
        not_after: u64,
    },
}

/// How a wait ended.
enum Waited<T> {
    Done(T),
    OwnerLeft,
    Late,
}

impl<'a> Course<'a> {
    pub(crate) fn new(router: &'a Router, call: &'a Call, deadline: Moment) -> Self {
        Course {
            router,
            call,
            replicas: 0,
            confirmed: 0,
            deadline,
            next: Stop::default(),
            redirects: 0,
            troubles: 0,
            loose: None,
            last_error: None,
            last_failure: None,
        }
    }

    /// As `new`, with so many replicas to confirm it.
    pub(crate) fn confirmed(router: &'a Router, call: &'a Call, replicas: u32, deadline: Moment) -> Self {
        Course {
            replicas,
            ..Course::new(router, call, deadline)
        }
    }

    /// Goes on until there is an answer.
    pub(crate) async fn run(mut self) -> Result<Answer, CallError> {
        self.check_deadline(Reason::TimedOut(None))?;
        loop {
            if self.router.connections.is_closed() {
                return Err(self.failed(Reason::Closed));
            }
            let Some(address) = self
                .next
                .address
                .clone()
                .or_else(|| self.router.topology.owner(self.call.slot))
            else {
                drop(self.router.topology.refresh(Whom::Anyone));
                self.pause(Reason::NoNode(self.call.slot)).await?;
                continue;
            };
            let attempt = self.attempt(&address).await;
            if let Some(answer) = self.settle(address, attempt).await? {
                return Ok(answer);
            }
        }
    }

    /// Goes on from what came of an attempt at that server.
    pub(crate) async fn resume(mut self, address: Address, attempt: Attempt) -> Result<Answer, CallError> {
        match self.settle(address, attempt).await? {
            Some(answer) => Ok(answer),
            None => self.run().await,
        }
    }

    /// Sends the call there and waits for the answer, but not longer than is of use.
    async fn attempt(&self, address: &Address) -> Attempt {
        if self.replicas > 0 {
            return self.attempt_confirmed(address).await;
        }
        let ready = self.router.connections.ready(address);
        // When all is well, nothing but the answer is waited for. Else it is worth asking others who owns the slot now. (While it
        // migrates, the server asked as a guest is not the owner, and need not be.)
        let watch = (ready.is_none() || self.loose.is_some()) && !self.next.asking;
        let connection = match ready {
            Some(connection) => connection,
            None => {
                let connecting = self.router.connections.connect(address);
                match self.wait(address, watch, connecting).await {
                    Waited::Done(Ok(connection)) => connection,
                    Waited::Done(Err(failure)) => return Attempt::Unconnected(failure),
                    Waited::OwnerLeft | Waited::Late => return Attempt::Silent { sent: None },
                }
            }
        };
        if watch {
            self.send_watched(address, &connection).await
        } else {
            self.send(&connection).await
        }
    }

    /// Sends the call with others that replicas have to confirm.
    async fn attempt_confirmed(&self, address: &Address) -> Attempt {
        let watch = self.loose.is_some() && !self.next.asking;
        let (asking, text) = (self.next.asking, self.next.text);
        let sending = self
            .router
            .durable
            .send(address, self.call, self.replicas, asking, text);
        match self.wait(address, watch, sending).await {
            Waited::Done(attempt) => attempt,
            Waited::OwnerLeft | Waited::Late => Attempt::Silent { sent: Some(0) },
        }
    }

    async fn send(&self, connection: &Connection) -> Attempt {
        let clock = &*self.router.clock;
        let not_after = connection.server_ms(self.call.not_after);
        let command = command(self.call, self.next.text, connection.name(), not_after);
        let now = clock.now();
        let until = now.after(self.router.response_timeout).min(self.deadline);
        let outcome = if self.next.asking {
            let both = [Words::new().word("ASKING"), command];
            connection.pipeline(clock, &both, until).await.map(|exchange| {
                let Exchange {
                    mut value,
                    sent,
                    received,
                } = exchange;
                // A pipeline has an answer to each command; the last one counts.
                Exchange {
                    value: value.pop().unwrap_or(Reply::Nil),
                    sent,
                    received,
                }
            })
        } else {
            connection.call(clock, &command, until).await
        };
        match outcome {
            Ok(exchange) => {
                connection.observe(exchange.sent, exchange.received, &exchange.value);
                Attempt::Answered(exchange)
            }
            Err(Failure::Broken(failure)) => Attempt::Broken { failure, not_after },
            Err(Failure::Silent) => {
                connection.gave_up(clock.now(), self.router.response_timeout);
                Attempt::Silent { sent: Some(not_after) }
            }
        }
    }

    /// As `send`, but ends as soon as another node says that the slot has another owner.
    async fn send_watched(&self, address: &Address, connection: &Arc<Connection>) -> Attempt {
        // Taken before the call is sent, so an attempt that is given up names at least what it was sent with.
        let not_after = connection.server_ms(self.call.not_after);
        match self.wait(address, true, self.send(connection)).await {
            Waited::Done(attempt) => attempt,
            Waited::OwnerLeft | Waited::Late => Attempt::Silent { sent: Some(not_after) },
        }
    }

    /// Waits until the work is done, the slot has another owner (if that is watched), or the deadline has passed.
    async fn wait<T>(&self, address: &Address, watch: bool, work: impl Future<Output = T>) -> Waited<T> {
        tokio::select! {
            biased;
            done = work => Waited::Done(done),
            () = self.router.topology.owner_left(self.call.slot, address), if watch => Waited::OwnerLeft,
            () = self.router.clock.sleep_until(self.deadline) => Waited::Late,
        }
    }

    /// Decides what an attempt means: the answer, an error, or (`None`) another attempt.
    async fn settle(&mut self, address: Address, attempt: Attempt) -> Result<Option<Answer>, CallError> {
        let attempt = match attempt {
            Attempt::Confirmed(exchange, confirmed) => {
                self.confirmed = confirmed;
                Attempt::Answered(exchange)
            }
            other => other,
        };
        match attempt {
            Attempt::Confirmed(..) => {}
            Attempt::Answered(Exchange { value, sent, received }) => {
                match decide(value, self.call.slot, &address, self.router.topology.translation()) {
                    Decision::Done(reply) => {
                        return Ok(Some(Answer {
                            reply,
                            sent,
                            received,
                            address,
                            confirmed: self.confirmed,
                            loose: self.loose,
                        }));
                    }
                    other => self.follow(address, other).await?,
                }
            }
            Attempt::Unconnected(failure) if failure.permanent => {
                self.last_failure = Some(failure);
                return Err(self.failed(Reason::Permanent));
            }
            Attempt::Unconnected(failure) => {
                self.last_failure = Some(failure);
                self.leave(address);
                self.pause(Reason::TimedOut(None)).await?;
            }
            Attempt::Silent { sent } => {
                self.note_loose(sent);
                self.leave(address);
                self.check_deadline(Reason::TimedOut(None))?;
            }
            Attempt::Broken { failure, not_after } => {
                self.note_loose(failure.maybe_sent.then_some(not_after));
                self.last_failure = Some(failure);
                self.leave(address);
                // A connection that was cut is usually made again at once.
                if self.troubles == 0 {
                    self.troubles = 1;
                    self.check_deadline(Reason::TimedOut(None))?;
                } else {
                    self.pause(Reason::TimedOut(None)).await?;
                }
            }
        }
        Ok(None)
    }

    /// Does what an answer demands that is not the reply.
    async fn follow(&mut self, address: Address, decision: Decision) -> Result<(), CallError> {
        match decision {
            Decision::Done(_) => {}
            Decision::Moved(to) => {
                self.count_redirect("moved", &address, &to).await?;
                self.router.topology.moved(self.call.slot, &to);
                self.next = Stop {
                    address: Some(to),
                    ..Stop::default()
                };
            }
            Decision::Ask(to) => {
                self.count_redirect("ask", &address, &to).await?;
                self.router.subscriptions.asked(self.call.slot, &address, &to);
                self.next = Stop {
                    address: Some(to),
                    asking: true,
                    text: false,
                };
            }
            Decision::NoScript if self.next.text => {
                return Err(self.failed(Reason::Garbled("NOSCRIPT in answer to EVAL".into())));
            }
            Decision::NoScript => {
                self.next = Stop {
                    address: Some(address),
                    asking: self.next.asking,
                    text: true,
                };
            }
            Decision::Backoff { error, refresh } => {
                if refresh {
                    drop(self.router.topology.refresh(Whom::Another(address)));
                }
                self.last_error = Some(error);
                self.next = Stop::default();
                self.pause(Reason::TimedOut(None)).await?;
            }
            Decision::Refused(error) => return Err(self.failed(Reason::Refused(error))),
            Decision::Garbled(what) => {
                // It may have been run all the same, but will not arrive again.
                self.note_loose(Some(0));
                return Err(self.failed(Reason::Garbled(what)));
            }
        }
        Ok(())
    }

    /// Turns away from a server that did not answer, to whoever owns the slot by then.
    fn leave(&mut self, address: Address) {
        drop(self.router.topology.refresh(Whom::Another(address)));
        self.next = Stop::default();
    }

    fn note_loose(&mut self, sent: Option<u64>) {
        self.loose = self.loose.max(sent);
    }

    /// Follows one more redirect, if the limit allows it.
    async fn count_redirect(&mut self, kind: &str, from: &Address, to: &Address) -> Result<(), CallError> {
        tracing::debug!(name: "rwlease.redirect", slot = %self.call.slot, kind, %from, %to);
        if self.redirects == self.router.max_redirects {
            return Err(self.failed(Reason::TooManyRedirects(self.redirects)));
        }
        self.redirects += 1;
        if self.redirects > SWIFT_REDIRECTS {
            self.sleep(REDIRECT_PAUSE * self.redirects).await;
        }
        self.check_deadline(Reason::TimedOut(None))
    }

    /// Waits a little, longer each time. Fails for that reason once the deadline has passed.
    async fn pause(&mut self, reason: Reason) -> Result<(), CallError> {
        let pause = (FIRST_PAUSE * 2u32.saturating_pow(self.troubles)).min(LONGEST_PAUSE);
        self.troubles = (self.troubles + 1).min(16);
        self.sleep(pause).await;
        self.check_deadline(reason)
    }

    async fn sleep(&self, longest: Duration) {
        let clock = &*self.router.clock;
        clock
            .sleep_until(clock.now().after(jittered(longest)).min(self.deadline))
            .await;
    }

    fn check_deadline(&mut self, reason: Reason) -> Result<(), CallError> {
        if self.router.clock.now() < self.deadline {
            return Ok(());
        }
        Err(match reason {
            Reason::TimedOut(_) => {
                let last = self.last_error.take();
                self.failed(Reason::TimedOut(last))
            }
            other => self.failed(other),
        })
    }

    fn failed(&mut self, reason: Reason) -> CallError {
        CallError {
            reason,
            loose: self.loose,
            last: self.last_failure.take(),
        }
    }
}

/// The command that a call is to a server of that name: the envelope is filled in anew for each attempt.
pub(crate) fn command(call: &Call, text: bool, name: &str, not_after: u64) -> Words {
    let script = call.script;
    let words = if text {
        Words::new().word("EVAL").word(&script.text)
    } else {
        Words::new().word("EVALSHA").word(&script.digest)
    };
    let words = match &call.second_key {
        None => words.word("1").word(&call.key),
        Some(second) => words.word("2").word(&call.key).word(second),
    };
    words.word(name).number(not_after).words(&call.args)
}
