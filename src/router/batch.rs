//! Many calls at once: one pipeline for those that go to the same server.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;

use crate::clock::Moment;
use crate::node::{Address, Words};
use crate::router::Router;
use crate::router::call::{Answer, Call, CallError};
use crate::router::connection::{Connection, Exchange, Failure};
use crate::router::course::{Attempt, Course, command};

/// The most calls in one pipeline, so that no server is kept from others for long.
const PIPELINE: usize = 128;

type Outcome = Result<Answer, CallError>;

impl Router {
    /// Brings all calls to their servers at the same time, and gives their answers in the same order. A call that is
    /// redirected goes on alone, and a server that is slow delays only the calls to it.
    pub(crate) async fn batch(&self, calls: &[Call], deadline: Moment) -> Vec<Outcome> {
        let mut groups: BTreeMap<Option<Address>, Vec<usize>> = BTreeMap::new();
        for (at, call) in calls.iter().enumerate() {
            groups.entry(self.topology.owner(call.slot)).or_default().push(at);
        }
        let pipelines = groups
            .iter()
            .flat_map(|(address, group)| group.chunks(PIPELINE).map(move |part| (address, part)));
        let parts = join_all(pipelines.map(|(address, part)| async move {
            let calls = part.iter().map(|&at| &calls[at]);
            let outcomes = match address {
                Some(address) => self.part(address, calls.collect(), deadline).await,
                None => join_all(calls.map(|call| self.call(call, deadline))).await,
            };
            part.iter().copied().zip(outcomes).collect::<Vec<_>>()
        }));
        let mut outcomes: Vec<_> = parts.await.into_iter().flatten().collect();
        outcomes.sort_unstable_by_key(|(at, _)| *at);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Calls that go to the same server in one pipeline.
    async fn part(&self, address: &Address, calls: Vec<&Call>, deadline: Moment) -> Vec<Outcome> {
        let Some(connection) = self.connections.ready(address) else {
            // One dial serves them all, and each of them notices by itself if the slot has another owner.
            return join_all(calls.into_iter().map(|call| self.call(call, deadline))).await;
        };
        let attempts = self.pipelined(&connection, &calls, deadline).await;
        join_all(
            calls
                .into_iter()
                .zip(attempts)
                .map(|(call, attempt)| Course::new(self, call, deadline).resume(address.clone(), attempt)),
        )
        .await
    }

    /// What came of each call of a pipeline.
    async fn pipelined(&self, connection: &Arc<Connection>, calls: &[&Call], deadline: Moment) -> Vec<Attempt> {
        let clock = &*self.clock;
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
