//! Many calls at once: pipelines for those that go to the same server.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;

use crate::clock::Moment;
use crate::node::{Address, Words};
use crate::router::call::{Answer, Call, CallError};
use crate::router::connection::{Connection, Exchange, Failure};
use crate::router::course::{Attempt, Course, Waited};
use crate::router::{Router, lock};

/// The most calls in one pipeline, so that no server is kept from others for long.
const PIPELINE: usize = 128;

type Outcome = Result<Answer, CallError>;

/// A call that has no answer yet, and its place in the batch.
type Open<'a> = (usize, Course<'a>);

impl Router {
    /// Brings all calls to their servers at the same time, and gives their answers in the same order.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) async fn batch(&self, calls: &[Call], deadline: Moment) -> Vec<Outcome> {
        let outcomes = Mutex::new(Vec::with_capacity(calls.len()));
        self.each(calls, deadline, |at, outcome| lock(&outcomes).push((at, outcome)))
            .await;
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_unstable_by_key(|(at, _)| *at);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// As `batch`, but tells of each answer (by the call's place) as it comes, so that none waits for a slower one. What a
    /// server does not answer is sent again in pipelines too, so that a sick server costs the others little.
    pub(crate) async fn each(&self, calls: &[Call], deadline: Moment, tell: impl Fn(usize, Outcome) + Send + Sync) {
        let open = |(at, call)| (at, Course::new(self, call, deadline));
        let batch = Batch {
            router: self,
            deadline,
            tell,
        };
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
    tell: T,
}

impl<'a, T: Fn(usize, Outcome) + Send + Sync> Batch<'a, T> {
    /// Sends each call to where it has to go next. Each part ends with the calls that have to go on from there.
    fn parts<'b>(&'b self, open: Vec<Open<'a>>) -> Vec<BoxFuture<'b, Vec<Open<'a>>>> {
        let mut groups: BTreeMap<(Address, bool), Vec<Open<'a>>> = BTreeMap::new();
        let mut resting = Vec::new();
        let mut longest = Duration::ZERO;
        for (at, mut course) in open {
            let mut pause = course.take_pause();
            if pause.is_zero() {
                match course.destination() {
                    Err(error) => {
                        (self.tell)(at, Err(error));
                        continue;
                    }
                    Ok(Some(address)) => {
                        let group = groups.entry((address, course.is_guest())).or_default();
                        group.push((at, course));
                        continue;
                    }
                    Ok(None) => pause = course.take_pause(),
                }
            }
            longest = longest.max(pause);
            resting.push((at, course));
        }
        let mut parts = Vec::new();
        if !resting.is_empty() {
            parts.push(self.rest(resting, longest).boxed());
        }
        for ((address, as_guests), mut group) in groups {
            while !group.is_empty() {
                let others = group.split_off(group.len().min(PIPELINE));
                parts.push(self.part(address.clone(), as_guests, group).boxed());
                group = others;
            }
        }
        parts
    }

    async fn rest(&self, resting: Vec<Open<'a>>, pause: Duration) -> Vec<Open<'a>> {
        self.router.rest(pause, self.deadline).await;
        resting
    }

    /// Calls that go to the same server in one pipeline, to the owner of their slots or as guests.
    async fn part(&self, address: Address, as_guests: bool, mut part: Vec<Open<'a>>) -> Vec<Open<'a>> {
        text_once(&mut part);
        let attempts = self.attempts(&address, as_guests, &part).await;
        let settled = part
            .into_iter()
            .zip(attempts)
            .filter_map(|((at, mut course), attempt)| {
                match course.settle(&address, attempt).transpose() {
                    None => return Some((at, course)),
                    Some(outcome) => (self.tell)(at, outcome),
                }
                None
            });
        settled.collect()
    }

    /// Sends the calls and waits for the answers, but not longer than is of use.
    async fn attempts(&self, address: &Address, as_guests: bool, part: &[Open<'a>]) -> Vec<Attempt> {
        let Some((_, first)) = part.first() else {
            return Vec::new();
        };
        let connections = &self.router.connections;
        let ready = connections.ready(address);
        // The slots of a server leave it together as a rule: one of them is enough to watch. A guest's server need not own them.
        let watch = (ready.is_none() || part.iter().any(|(_, course)| course.is_loose())) && !as_guests;
        let connection = match ready {
            Some(connection) => connection,
            None => match first.wait(address, watch, connections.connect(address)).await {
                Waited::Done(Ok(connection)) => connection,
                Waited::Done(Err(failure)) => return each_one(part, |_| Attempt::Unconnected(failure.clone())),
                Waited::OwnerLeft | Waited::Late => return each_one(part, |_| Attempt::Silent { sent: None }),
            },
        };
        let limits: Vec<u64> = part.iter().map(|(_, course)| course.not_after(&connection)).collect();
        let sending = self.pipelined(&connection, as_guests, part, &limits);
        match first.wait(address, watch, sending).await {
            Waited::Done(attempts) => attempts,
            Waited::OwnerLeft | Waited::Late => each_one(&limits, |&limit| Attempt::Silent { sent: Some(limit) }),
        }
    }

    /// What comes of each call of a pipeline.
    async fn pipelined(
        &self,
        connection: &Connection,
        as_guests: bool,
        part: &[Open<'a>],
        limits: &[u64],
    ) -> Vec<Attempt> {
        let clock = &*self.router.clock;
        let turn = connection.turn(clock, self.deadline).await;
        let is_open = connection.is_usable() && !self.router.connections.is_closed();
        let Some(_turn) = turn.filter(|_| is_open) else {
            return each_one(part, |_| Attempt::Silent { sent: None });
        };
        // It holds for one command.
        let asking = || as_guests.then(|| Words::new().word("ASKING"));
        let with_limits = part.iter().zip(limits);
        let commands: Vec<Words> = with_limits
            .flat_map(|((_, course), &not_after)| asking().into_iter().chain([course.command(connection, not_after)]))
            .collect();
        let each = if as_guests { 2 } else { 1 };
        let patience = self.router.response_timeout;
        let until = clock.now().after(patience).min(self.deadline);
        match connection.pipeline(clock, &commands, until).await {
            Ok(Exchange { value, sent, received }) => value
                .into_iter()
                .skip(each - 1)
                .step_by(each)
                .map(|reply| {
                    connection.observe(sent, received, &reply);
                    Attempt::Answered(Exchange {
                        value: reply,
                        sent,
                        received,
                    })
                })
                .collect(),
            Err(Failure::Silent) => {
                connection.gave_up(clock.now(), patience);
                each_one(limits, |&limit| Attempt::Silent { sent: Some(limit) })
            }
            Err(Failure::Broken(failure)) => each_one(limits, |&not_after| Attempt::Broken {
                failure: failure.clone(),
                not_after,
            }),
        }
    }
}

/// Once a pipeline has brought the text of a script, the server knows it for the calls behind.
fn text_once(part: &mut [Open<'_>]) {
    let mut brought = Vec::new();
    for (_, course) in part {
        let Some(script) = course.text() else { continue };
        if brought.contains(&script.name) {
            course.without_text();
        } else {
            brought.push(script.name);
        }
    }
}

fn each_one<P>(part: &[P], attempt: impl Fn(&P) -> Attempt) -> Vec<Attempt> {
    part.iter().map(attempt).collect()
}
