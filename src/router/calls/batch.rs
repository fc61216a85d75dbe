//! Sends many calls at once, in one pipeline for each server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use rwlease_core::protocol::{Call, CallError, CallReply, Confirmation};
use rwlease_core::resp::{Address, Command};
use rwlease_core::time::LocalInstant;

use crate::router::Router;
use crate::router::calls::in_flight::{AttemptOutcome, InFlightCall};
use crate::router::calls::script_upload::{NoScriptReply, UploadTurn};
use crate::router::calls::send_gate::SendMarker;
use crate::router::connections::send_permit::Priority;
use crate::router::connections::server_connection::ServerConnection;
use crate::scripts::Script;

/// The most calls in one pipeline, so that a batch does not keep a server from others for long.
const MAX_PIPELINE: usize = 128;

type CallResult = Result<CallReply, CallError>;

/// A call without a reply yet, and its position in the batch.
type OpenCall<'a> = (usize, InFlightCall<'a>);

impl Router {
    /// Sends all calls at the same time, and reports each answer, with the call's place, as it
    /// comes: no call waits for a slower one. Retries are sent in pipelines too, so a server in
    /// trouble delays the others little.
    pub(crate) async fn call_each(
        &self,
        calls: &[Call],
        deadline: LocalInstant,
        priority: Priority,
        on_reply: impl Fn(usize, CallResult) + Send + Sync,
    ) {
        let none = Confirmation::default();
        let open = |(at, call)| (at, InFlightCall::new(self, call, none, deadline, None));
        let batch = CallBatch { router: self, deadline, priority, on_reply };
        let mut under_way = FuturesUnordered::new();
        under_way.extend(batch.group_by_server(calls.iter().enumerate().map(open).collect()));
        while let Some(still_open) = under_way.next().await {
            under_way.extend(batch.group_by_server(still_open));
        }
    }
}

struct CallBatch<'a, T> {
    router: &'a Router,
    deadline: LocalInstant,
    priority: Priority,
    on_reply: T,
}

impl<'a, T: Fn(usize, CallResult) + Send + Sync> CallBatch<'a, T> {
    /// Sends each call to its next server. Each part resolves to the calls that need another
    /// attempt.
    fn group_by_server<'b>(
        &'b self,
        open: Vec<OpenCall<'a>>,
    ) -> Vec<BoxFuture<'b, Vec<OpenCall<'a>>>> {
        let mut groups: BTreeMap<(Address, bool), Vec<OpenCall<'a>>> = BTreeMap::new();
        let mut resting = Vec::new();
        let mut longest = Duration::ZERO;
        for (at, mut in_flight) in open {
            let mut pause = in_flight.take_pause();
            if pause.is_zero() {
                match in_flight.next_server() {
                    Err(error) => {
                        (self.on_reply)(at, Err(error));
                        continue;
                    }
                    Ok(Some(address)) => {
                        let group = groups.entry((address, in_flight.needs_asking())).or_default();
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
            parts.push(self.wait_and_retry(resting, longest).boxed());
        }
        for ((address, asking), mut group) in groups {
            while !group.is_empty() {
                let others = group.split_off(group.len().min(MAX_PIPELINE));
                parts.push(self.send_group(address.clone(), asking, group).boxed());
                group = others;
            }
        }
        parts
    }

    async fn wait_and_retry(
        &self,
        resting: Vec<OpenCall<'a>>,
        pause: Duration,
    ) -> Vec<OpenCall<'a>> {
        self.router.back_off(pause, self.deadline).await;
        resting
    }

    /// Sends calls that have the same server in one pipeline: the master of their slots, or the
    /// target of an ASK.
    async fn send_group(
        &self,
        address: Address,
        asking: bool,
        mut part: Vec<OpenCall<'a>>,
    ) -> Vec<OpenCall<'a>> {
        let attempts = match self.claim_script_uploads(&address, asking, &mut part).await {
            Some(senders) => {
                let attempts = self.send_and_wait(&address, asking, &part).await;
                for (at, sender) in senders {
                    attempts.get(at).inspect(|attempt| sender.finish(attempt));
                }
                attempts
            }
            None => same_outcome(&part, |_| AttemptOutcome::NoReply { sent: None }),
        };
        let settled =
            part.into_iter().zip(attempts).filter_map(|((at, mut in_flight), attempt)| {
                match in_flight.apply_outcome(&address, attempt).transpose() {
                    None => return Some((at, in_flight)),
                    Some(outcome) => (self.on_reply)(at, outcome),
                }
                None
            });
        settled.collect()
    }

    /// For each script that the server does not know, picks one call of the part to send the text,
    /// unless another caller has sent it. Returns the places of those calls. `None` if that took
    /// too long, or if the slots have another master.
    async fn claim_script_uploads(
        &self,
        address: &Address,
        asking: bool,
        part: &mut [OpenCall<'a>],
    ) -> Option<Vec<(usize, UploadTurn)>> {
        let mut wanted: BTreeMap<&'static str, (&'static Script, NoScriptReply)> = BTreeMap::new();
        for (script, unknown) in part.iter().filter_map(|(_, in_flight)| in_flight.missing_script())
        {
            let latest = &mut wanted.entry(script.name()).or_insert((script, unknown)).1;
            latest.sent_at = latest.sent_at.max(unknown.sent_at);
            latest.was_believed_loaded |= unknown.was_believed_loaded;
        }
        let mut senders = Vec::new();
        // In the order of the names, so that two parts do not deadlock.
        for (name, (script, unknown)) in wanted {
            let (_, first) = part.first()?;
            let turn = self.router.script_uploads.acquire_turn(address, script, unknown);
            let mut sender = first.wait(address, !asking, turn).await?;
            for (at, (_, in_flight)) in part.iter_mut().enumerate() {
                if in_flight.missing_script().is_some_and(|(script, _)| script.name() == name) {
                    let sender = sender.take();
                    in_flight.set_upload(sender.is_some());
                    senders.extend(sender.map(|sender| (at, sender)));
                }
            }
        }
        Some(senders)
    }

    /// Sends the calls and waits for the answers, as long as an answer can still be of use.
    async fn send_and_wait(
        &self,
        address: &Address,
        asking: bool,
        part: &[OpenCall<'a>],
    ) -> Vec<AttemptOutcome> {
        let Some((_, first)) = part.first() else {
            return Vec::new();
        };
        let ready = self.router.connections.get(address);
        // The slots of a server usually leave it together, so watching one of them is enough. A
        // server that ASK named is not their master.
        let watch = (ready.is_none() || part.iter().any(|(_, in_flight)| in_flight.is_in_doubt()))
            && !asking;
        let connection = match ready {
            Some(connection) => connection,
            None => match first.connect(address, watch).await {
                Ok(connection) => connection,
                Err(failure) => {
                    return same_outcome(part, |_| AttemptOutcome::not_connected(failure.clone()));
                }
            },
        };
        let limits: Vec<u64> =
            part.iter().map(|(_, in_flight)| in_flight.not_after(&connection)).collect();
        let sent = SendMarker::default();
        let sending = self.pipelined(&connection, asking, part, &limits, &sent);
        match first.wait(address, watch, sending).await {
            Some(attempts) => attempts,
            None => {
                let was_sent = sent.cancel().is_some();
                same_outcome(&limits, |&limit| AttemptOutcome::NoReply {
                    sent: was_sent.then_some(limit),
                })
            }
        }
    }

    /// The outcome of each call of a pipeline.
    async fn pipelined(
        &self,
        connection: &Arc<ServerConnection>,
        asking: bool,
        part: &[OpenCall<'a>],
        limits: &[u64],
        sent: &SendMarker,
    ) -> Vec<AttemptOutcome> {
        let Some((_, first)) = part.first() else {
            return Vec::new();
        };
        let turn = match connection
            .pipeline_permit(self.priority, part.len(), first.permit_wait(connection))
            .await
        {
            Ok(turn) => turn,
            Err(none) => return same_outcome(part, |_| none.into()),
        };
        if !connection.is_usable() || self.router.connections.is_closed() {
            return same_outcome(part, |_| AttemptOutcome::NoReply { sent: None });
        }
        // ASKING applies to the next command only.
        let prefix = || asking.then(Command::asking);
        let deletes: Vec<bool> =
            part.iter().map(|(_, in_flight)| in_flight.deletes_if_equal(connection)).collect();
        let with_limits = part.iter().zip(limits).zip(&deletes);
        let commands: Vec<Command> = with_limits
            .flat_map(|(((_, in_flight), &not_after), &deletes)| {
                prefix().into_iter().chain([in_flight.to_command(connection, not_after, deletes)])
            })
            .collect();
        if !sent.try_mark_sent(0) {
            return same_outcome(part, |_| AttemptOutcome::NoReply { sent: None });
        }
        match connection.pipeline(Some(turn), &commands, self.deadline).await {
            Ok(exchange) => {
                let mut next = exchange.into_each();
                let part = part.iter().zip(&deletes);
                part.map(|((_, in_flight), &deletes)| {
                    let asking = asking.then(|| next().value);
                    let exchange = next();
                    in_flight.outcome_of_reply(connection, exchange, asking, deletes)
                })
                .collect()
            }
            Err(error) => same_outcome(limits, |&not_after| {
                AttemptOutcome::without_reply(error.clone(), not_after)
            }),
        }
    }
}

fn same_outcome<P>(part: &[P], attempt: impl Fn(&P) -> AttemptOutcome) -> Vec<AttemptOutcome> {
    part.iter().map(attempt).collect()
}
