//! Many calls at once: one pipeline for those that go to the same server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;

use crate::clock::Moment;
use crate::node::{Address, Words};
use crate::router::call::{Answer, Call, CallError};
use crate::router::connection::{Connection, Exchange, Failure};
use crate::router::course::{Attempt, Course, command};
use crate::router::{Router, lock};

/// The most calls in one pipeline, so that no server is kept from others for long.
const PIPELINE: usize = 128;

type Outcome = Result<Answer, CallError>;

impl Router {
    /// Brings all calls to their servers at the same time, and gives their answers in the same order. A call that is
    /// redirected goes on alone, and a server that is slow delays only the calls to it.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) async fn batch(&self, calls: &[Call], deadline: Moment) -> Vec<Outcome> {
        let outcomes = Mutex::new(Vec::with_capacity(calls.len()));
        self.each(calls, deadline, |at, outcome| lock(&outcomes).push((at, outcome)))
            .await;
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_unstable_by_key(|(at, _)| *at);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// As `batch`, but tells of each answer (by the call's place) as it comes, so that none waits for a slower one.
    pub(crate) async fn each(&self, calls: &[Call], deadline: Moment, tell: impl Fn(usize, Outcome) + Send + Sync) {
        let mut groups: BTreeMap<Option<Address>, Vec<usize>> = BTreeMap::new();
        for (at, call) in calls.iter().enumerate() {
            groups.entry(self.topology.owner(call.slot)).or_default().push(at);
        }
        let pipelines = groups
            .iter()
            .flat_map(|(address, group)| group.chunks(PIPELINE).map(move |part| (address, part)));
        let tell = &tell;
        join_all(pipelines.map(|(address, part)| self.part(address.as_ref(), calls, part, deadline, tell))).await;
    }

    /// Calls that go to the same server in one pipeline.
    async fn part(
        &self,
        address: Option<&Address>,
        calls: &[Call],
        part: &[usize],
        deadline: Moment,
        tell: &(impl Fn(usize, Outcome) + Send + Sync),
    ) {
        let ready = address.and_then(|address| Some((address, self.connections.ready(address)?)));
        let Some((address, connection)) = ready else {
            // One dial serves them all, and each of them notices by itself if the slot has another owner.
            join_all(
                part.iter()
                    .map(|&at| async move { tell(at, self.call(&calls[at], deadline).await) }),
            )
            .await;
            return;
        };
        let together: Vec<&Call> = part.iter().map(|&at| &calls[at]).collect();
        let attempts = self.pipelined(&connection, &together, deadline).await;
        join_all(part.iter().zip(attempts).map(|(&at, attempt)| async move {
            let course = Course::new(self, &calls[at], deadline);
            tell(at, course.resume(address.clone(), attempt).await);
        }))
        .await;
    }

    /// What came of each call of a pipeline.
    async fn pipelined(&self, connection: &Arc<Connection>, calls: &[&Call], deadline: Moment) -> Vec<Attempt> {
        let clock = &*self.clock;
        let turn = connection.turn(clock, deadline).await;
        let Some(_turn) = turn.filter(|_| connection.is_usable()) else {
            return calls.iter().map(|_| Attempt::Silent { sent: None }).collect();
        };
        let limits: Vec<u64> = calls.iter().map(|call| connection.server_ms(call.not_after)).collect();
        let commands: Vec<Words> = calls
            .iter()
            .zip(&limits)
            .map(|(call, &not_after)| command(call, false, connection.name(), not_after))
            .collect();
        let until = clock.now().after(self.response_timeout).min(deadline);
        match connection.pipeline(clock, &commands, until).await {
            Ok(Exchange { value, sent, received }) => value
                .into_iter()
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
                connection.gave_up(clock.now(), self.response_timeout);
                limits
                    .into_iter()
                    .map(|not_after| Attempt::Silent { sent: Some(not_after) })
                    .collect()
            }
            Err(Failure::Broken(failure)) => limits
                .into_iter()
                .map(|not_after| Attempt::Broken {
                    failure: failure.shared(),
                    not_after,
                })
                .collect(),
        }
    }
}
