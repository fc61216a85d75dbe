//! Sends many calls at once, in one pipeline for each server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;

use crate::clock::Moment;
use crate::node::{Address, Command, Reply};
use crate::router::Router;
use crate::router::call::{Answer, Call, CallError, Script};
use crate::router::connection::{Connection, Exchange, Failure, Priority};
use crate::router::in_flight::{Attempt, InFlightCall, Waited};
use crate::router::sent_with::SentWith;
use crate::router::texts::{Sender, Unknown};

/// The most calls in one pipeline, so that a batch does not keep a server from others for long.
const PIPELINE: usize = 128;

type Outcome = Result<Answer, CallError>;

/// A call without an answer so far, and its place in the batch.
type Open<'a> = (usize, InFlightCall<'a>);

impl Router {
    /// Sends all calls at the same time, and reports each answer, with the call's place, as it
    /// comes: no call waits for a slower one. Retries are sent in pipelines too, so a server in
    /// trouble delays the others little.
    pub(crate) async fn each(
        &self,
        calls: &[Call],
        deadline: Moment,
        priority: Priority,
        tell: impl Fn(usize, Outcome) + Send + Sync,
    ) {
        let open = |(at, call)| (at, InFlightCall::new(self, call, deadline));
        let batch = Batch { router: self, deadline, priority, tell };
        let mut under_way = FuturesUnordered::new();
        under_way.extend(batch.parts(calls.iter().enumerate().map(open).collect()));
        while let Some(still_open) = under_way.next().await {
            under_way.extend(batch.parts(still_open));
        }
    }
}

struct Batch<'a, T> {
    router: &'a Router,
    deadline: Moment,
    priority: Priority,
    tell: T,
}

impl<'a, T: Fn(usize, Outcome) + Send + Sync> Batch<'a, T> {
    /// Sends each call to its next server. Each part resolves to the calls that need another
    /// attempt.
    fn parts<'b>(&'b self, open: Vec<Open<'a>>) -> Vec<BoxFuture<'b, Vec<Open<'a>>>> {
        let mut groups: BTreeMap<(Address, bool), Vec<Open<'a>>> = BTreeMap::new();
        let mut resting = Vec::new();
        let mut longest = Duration::ZERO;
        for (at, mut in_flight) in open {
            let mut pause = in_flight.take_pause();
            if pause.is_zero() {
                match in_flight.destination() {
                    Err(error) => {
                        (self.tell)(at, Err(error));
                        continue;
                    }
                    Ok(Some(address)) => {
                        let group = groups.entry((address, in_flight.is_asking())).or_default();
                        group.push((at, in_flight));
                        continue;
                    }
                    Ok(None) => pause = in_flight.take_pause(),
                }
            }
            longest = longest.max(pause);
            resting.push((at, in_flight));
        }
        let mut parts = Vec::new();
        if !resting.is_empty() {
            parts.push(self.rest(resting, longest).boxed());
        }
        for ((address, asking), mut group) in groups {
            while !group.is_empty() {
                let others = group.split_off(group.len().min(PIPELINE));
                parts.push(self.part(address.clone(), asking, group).boxed());
                group = others;
            }
        }
        parts
    }

    async fn rest(&self, resting: Vec<Open<'a>>, pause: Duration) -> Vec<Open<'a>> {
        self.router.rest(pause, self.deadline).await;
        resting
    }

    /// Sends calls that have the same server in one pipeline: the master of their slots, or the
    /// target of an ASK.
    async fn part(&self, address: Address, asking: bool, mut part: Vec<Open<'a>>) -> Vec<Open<'a>> {
        let attempts = match self.texts(&address, asking, &mut part).await {
            Some(senders) => {
                let attempts = self.attempts(&address, asking, &part).await;
                for (at, sender) in senders {
                    attempts.get(at).inspect(|attempt| sender.learn(attempt));
                }
                attempts
            }
            None => each_one(&part, |_| Attempt::Silent { sent: None }),
        };
        let settled =
            part.into_iter().zip(attempts).filter_map(|((at, mut in_flight), attempt)| {
                match in_flight.settle(&address, attempt).transpose() {
                    None => return Some((at, in_flight)),
                    Some(outcome) => (self.tell)(at, outcome),
                }
                None
            });
        settled.collect()
    }

    /// For each script that the server does not know, picks one call of the part to send the text,
    /// unless another caller has sent it. Returns the places of those calls. `None` if that took
    /// too long, or if the slots have another master.
    async fn texts(
        &self,
        address: &Address,
        asking: bool,
        part: &mut [Open<'a>],
    ) -> Option<Vec<(usize, Sender)>> {
        let mut wanted: BTreeMap<&'static str, (&'static Script, Unknown)> = BTreeMap::new();
        for (script, unknown) in part.iter().filter_map(|(_, in_flight)| in_flight.wanted_text()) {
            let latest = &mut wanted.entry(script.name).or_insert((script, unknown)).1;
            latest.sent = latest.sent.max(unknown.sent);
            latest.again |= unknown.again;
        }
        let mut senders = Vec::new();
        // In the order of the names, so that two parts do not deadlock.
        for (name, (script, unknown)) in wanted {
            let (_, first) = part.first()?;
            let turn = self.router.texts.turn(address, script, unknown);
            let Waited::Done(sender) = first.wait(address, !asking, turn).await else {
                return None;
            };
            let mut sender = sender;
            for (at, (_, in_flight)) in part.iter_mut().enumerate() {
                if in_flight.wanted_text().is_some_and(|(script, _)| script.name == name) {
                    let sender = sender.take();
                    in_flight.bring_text(sender.is_some());
                    senders.extend(sender.map(|sender| (at, sender)));
                }
            }
        }
        Some(senders)
    }

    /// Sends the calls and waits for the answers, as long as an answer can still be of use.
    async fn attempts(&self, address: &Address, asking: bool, part: &[Open<'a>]) -> Vec<Attempt> {
        let Some((_, first)) = part.first() else {
            return Vec::new();
        };
        let connections = &self.router.connections;
        let ready = connections.ready(address);
        // The slots of a server usually leave it together, so watching one of them is enough. A
        // server that ASK named is not their master.
        let watch = (ready.is_none() || part.iter().any(|(_, in_flight)| in_flight.is_in_doubt()))
            && !asking;
        let connection = match ready {
            Some(connection) => connection,
            None => match first.wait(address, watch, connections.reach(address)).await {
                Waited::Done(Ok(connection)) => connection,
                Waited::Done(Err(failure)) => {
                    return each_one(part, |_| Attempt::Unconnected(failure.clone()));
                }
                Waited::MasterLeft | Waited::Late => {
                    return each_one(part, |_| Attempt::Silent { sent: None });
                }
            },
        };
        let limits: Vec<u64> =
            part.iter().map(|(_, in_flight)| in_flight.not_after(&connection)).collect();
        let sent = SentWith::default();
        let sending = self.pipelined(&connection, asking, part, &limits, &sent);
        match first.wait(address, watch, sending).await {
            Waited::Done(attempts) => attempts,
            Waited::MasterLeft | Waited::Late => {
                let was_sent = sent.give_up().is_some();
                each_one(&limits, |&limit| Attempt::Silent { sent: was_sent.then_some(limit) })
            }
        }
    }

    /// The outcome of each call of a pipeline.
    async fn pipelined(
        &self,
        connection: &Arc<Connection>,
        asking: bool,
        part: &[Open<'a>],
        limits: &[u64],
        sent: &SentWith,
    ) -> Vec<Attempt> {
        let Some((_, first)) = part.first() else {
            return Vec::new();
        };
        let turn = match connection.turn(self.priority, part.len(), first.queue_until()).await {
            Ok(turn) => turn,
            Err(none) => return each_one(part, |_| none.into()),
        };
        if !connection.is_usable() || self.router.connections.is_closed() {
            return each_one(part, |_| Attempt::Silent { sent: None });
        }
        // ASKING applies to the next command only.
        let prefix = || asking.then(Command::asking);
        let deletes: Vec<bool> =
            part.iter().map(|(_, in_flight)| in_flight.deletes_if_equal(connection)).collect();
        let with_limits = part.iter().zip(limits).zip(&deletes);
        let commands: Vec<Command> = with_limits
            .flat_map(|(((_, in_flight), &not_after), &deletes)| {
                prefix().into_iter().chain([in_flight.command(connection, not_after, deletes)])
            })
            .collect();
        if !sent.note(0) {
            return each_one(part, |_| Attempt::Silent { sent: None });
        }
        match connection.pipeline_with(Some(turn), &commands, self.deadline).await {
            Ok(Exchange { value, sent, received }) => {
                let mut replies = value.into_iter();
                let mut next = || replies.next().unwrap_or(Reply::Nil);
                let part = part.iter().zip(&deletes);
                part.map(|((_, in_flight), &deletes)| {
                    let asking = asking.then(&mut next);
                    let exchange = Exchange { value: next(), sent, received };
                    in_flight.hear(connection, exchange, asking, deletes)
                })
                .collect()
            }
            Err(Failure::Silent) => {
                connection.gave_up(self.router.clock.now(), self.router.limits.response_timeout);
                each_one(limits, |&limit| Attempt::Silent { sent: Some(limit) })
            }
            Err(Failure::Quiet) => each_one(limits, |&not_after| Attempt::Quiet { not_after }),
            Err(Failure::Broken(failure)) => each_one(limits, |&not_after| Attempt::Broken {
                failure: failure.clone(),
                not_after,
            }),
        }
    }
}

fn each_one<P>(part: &[P], attempt: impl Fn(&P) -> Attempt) -> Vec<Attempt> {
    part.iter().map(attempt).collect()
}
