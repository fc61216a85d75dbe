//! One call: its attempts, from server to server, until one answers or the deadline passes.

mod settle;

#[cfg(feature = "cluster-async")]
pub(crate) use settle::MAX_PROTOCOL_ERRORS;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::node::{
    Address, Command, GRANTED, NodeError, Reply, ScriptCall, ScriptShape, ServerError,
};
use crate::router::Router;
use crate::router::answer::after_asking;
use crate::router::call::{Answer, Call, CallError, Reason, Script};
use crate::router::connection::{Connection, Exchange, Failure, NoPermit, Permit};
use crate::router::delete_if_equal::{self, Undone};
use crate::router::sent_with::SentWith;
use crate::router::telemetry::Attempted;
use crate::router::texts::Unknown;
use crate::router::time_out::time_out;
use crate::router::topology::RefreshFrom;

/// A call under way and the history of its attempts.
#[derive(Debug)]
pub(crate) struct InFlightCall<'a> {
    router: &'a Router,
    call: &'a Call,
    /// How many replicas must confirm it. If any, it uses the connections for confirmed calls.
    replicas: u32,
    confirmed: u32,
    deadline: Moment,
    next: Target,
    /// The server's own command did not do it: only the script can.
    by_script: bool,
    /// That command reported that there is nothing to delete, while nothing was in doubt.
    is_gone: bool,
    /// Redirects in a row.
    redirects: u32,
    /// Failed attempts in a row.
    troubles: u32,
    /// Attempts whose connection brought replies that did not fit the commands.
    protocol_errors: u32,
    /// The wait before the next attempt.
    pause: Duration,
    in_doubt: Option<u64>,
    last_error: Option<ServerError>,
    last_failure: Option<NodeError>,
}

/// Where the call goes next, and how.
#[derive(Debug, Default)]
struct Target {
    /// `None` for the master of the slot.
    address: Option<Address>,
    /// The server that redirected the call there.
    named_by: Option<Address>,
    /// After ASK: the server imports the slot, and takes the call if `ASKING` precedes it.
    asking: bool,
    text: Text,
}

/// How the script is named.
#[derive(Clone, Copy, Debug, Default)]
enum Text {
    /// By its digest.
    #[default]
    Digest,
    /// The server does not know it: send the text, unless another caller has sent it meanwhile.
    Wanted(Unknown),
    /// By its digest, because another caller has sent the text.
    Believed,
    /// By its text.
    Whole,
}

/// The outcome of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    Answered(Exchange<Reply>),
    /// A reply, with the number of replicas that have the write.
    Confirmed(Exchange<Reply>, u32),
    /// The server's own command did nothing: the script is needed.
    Undone(Undone),
    /// No connection: nothing was sent.
    Unconnected(NodeError),
    /// No answer in time, or the slot has another master meanwhile. What was sent may still arrive
    /// until its `not_after`.
    Silent {
        sent: Option<u64>,
    },
    /// No answer, because the connection brought nothing at all for too long. What was sent may
    /// still arrive.
    Quiet {
        not_after: u64,
    },
    /// The server is overloaded and it became too late to send the call: nothing was sent.
    Crowded,
    Broken {
        failure: NodeError,
        not_after: u64,
    },
}

impl Attempt {
    /// How the attempt is counted, unless the answer decides that.
    fn outcome(&self) -> Option<Attempted> {
        match self {
            Attempt::Answered(_) | Attempt::Confirmed(..) => None,
            Attempt::Undone(Undone::Refused) => Some(Attempted::Refused),
            Attempt::Undone(_) => Some(Attempted::Undone),
            Attempt::Unconnected(_) => Some(Attempted::Unconnected),
            Attempt::Silent { sent: None } | Attempt::Crowded => Some(Attempted::Unsent),
            Attempt::Silent { sent: Some(_) } | Attempt::Quiet { .. } => Some(Attempted::Silent),
            Attempt::Broken { failure, .. } if failure.is_protocol_error => {
                Some(Attempted::Garbled)
            }
            Attempt::Broken { .. } => Some(Attempted::Broken),
        }
    }
}

/// How a wait ended.
pub(crate) enum Waited<T> {
    Done(T),
    MasterLeft,
    Late,
}

impl<'a> InFlightCall<'a> {
    pub(crate) fn new(router: &'a Router, call: &'a Call, deadline: Moment) -> Self {
        InFlightCall {
            router,
            call,
            replicas: 0,
            confirmed: 0,
            deadline,
            next: Target::default(),
            by_script: false,
            is_gone: false,
            redirects: 0,
            troubles: 0,
            protocol_errors: 0,
            pause: Duration::ZERO,
            in_doubt: None,
            last_error: None,
            last_failure: None,
        }
    }

    /// As `new`, with the number of replicas that must confirm it.
    pub(crate) fn confirmed(
        router: &'a Router,
        call: &'a Call,
        replicas: u32,
        deadline: Moment,
    ) -> Self {
        InFlightCall { replicas, ..InFlightCall::new(router, call, deadline) }
    }

    /// Makes attempts until there is an answer.
    pub(crate) async fn run(&mut self) -> Result<Answer, CallError> {
        loop {
            if let Some(address) = self.destination()? {
                let attempt = self.attempt(&address).await;
                if let Some(answer) = self.settle(&address, attempt)? {
                    return Ok(answer);
                }
            }
            let pause = self.take_pause();
            self.router.rest(pause, self.deadline).await;
        }
    }

    /// The server for the next attempt; `None` while it is unknown. Fails when it is too late for
    /// another attempt.
    pub(crate) fn destination(&mut self) -> Result<Option<Address>, CallError> {
        if self.router.connections.is_closed() {
            return Err(self.failed(self.router.closed()));
        }
        let known = self.next.address.clone();
        let address = known.or_else(|| self.router.topology.master_of(self.call.slot));
        if self.router.clock.now() >= self.deadline {
            let reason = match address {
                None => Reason::NoNode(self.call.slot),
                Some(_) if self.is_redirected() => Reason::TooManyRedirects(self.redirects),
                Some(_) => Reason::TimedOut(self.last_error.take()),
            };
            return Err(self.failed(reason));
        }
        if address.is_none() {
            drop(self.router.topology.refresh(RefreshFrom::Anyone));
            self.lengthen_pause();
        }
        Ok(address)
    }

    /// Takes the wait before the next attempt.
    pub(crate) fn take_pause(&mut self) -> Duration {
        mem::take(&mut self.pause)
    }

    /// Returns true if the next server is not the slot's master, so that `ASKING` must precede the
    /// call.
    pub(crate) fn is_asking(&self) -> bool {
        self.next.asking
    }

    /// Returns true if an earlier attempt may still arrive.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.is_some()
    }

    /// The script whose text the server lacks, and what is known about that.
    pub(crate) fn wanted_text(&self) -> Option<(&'static Script, Unknown)> {
        match self.next.text {
            Text::Wanted(unknown) => Some((self.call.script, unknown)),
            _ => None,
        }
    }

    /// With `brings`, this call sends the text. Otherwise it relies on another call that has sent
    /// it or sends it in the same pipeline.
    pub(crate) fn bring_text(&mut self, brings: bool) {
        self.next.text = if brings { Text::Whole } else { Text::Believed };
    }

    /// How long to wait for a permit. This ends before the deadline: a call without time for its
    /// answer would only leave its outcome in doubt.
    pub(crate) fn queue_until(&self) -> Moment {
        let left = self.deadline.since(self.router.clock.now());
        self.deadline.before(self.router.limits.response_timeout.min(left / 2))
    }

    /// Until when an attempt at that server may arrive, by that server's clock.
    pub(crate) fn not_after(&self, connection: &Connection) -> u64 {
        connection.server_ms(self.call.not_after)
    }

    /// Returns true if the server's own command is sent in place of the script.
    pub(crate) fn deletes_if_equal(&self, connection: &Connection) -> bool {
        self.call.script.deletes_if_equal
            && !self.by_script
            && !self.brings_text()
            && connection.deletes_if_equal()
    }

    /// The command for that server.
    pub(crate) fn command(
        &self,
        connection: &Connection,
        not_after: u64,
        deletes: bool,
    ) -> Command {
        if deletes {
            return delete_if_equal::command(self.call);
        }
        command(self.call, self.brings_text(), connection.name(), not_after)
    }

    /// The outcome of an answer to that command, and of the one to `ASKING` before it.
    pub(crate) fn hear(
        &self,
        connection: &Connection,
        exchange: Exchange<Reply>,
        asking: Option<Reply>,
        deletes: bool,
    ) -> Attempt {
        let Exchange { mut value, sent, received } = exchange;
        if deletes {
            value = match delete_if_equal::read(value) {
                Ok(reply) => reply,
                Err(undone) => {
                    if undone == Undone::Refused {
                        connection.note_refused_delete();
                    }
                    return Attempt::Undone(undone);
                }
            };
        }
        if let Some(asking) = asking {
            value = after_asking(asking, value);
        }
        connection.observe(self.call.slot, sent, received, &value);
        Attempt::Answered(Exchange { value, sent, received })
    }

    fn brings_text(&self) -> bool {
        matches!(self.next.text, Text::Whole)
    }

    /// Sends the call and waits for the answer, as long as an answer can still be of use.
    async fn attempt(&mut self, address: &Address) -> Attempt {
        match self.wanted_text() {
            None => self.attempt_as_is(address).await,
            Some((script, unknown)) => {
                Box::pin(self.attempt_with_text(address, script, unknown)).await
            }
        }
    }

    /// As `attempt`, with the text of the script, or after another call has sent it.
    async fn attempt_with_text(
        &mut self,
        address: &Address,
        script: &Script,
        unknown: Unknown,
    ) -> Attempt {
        let turn = self.router.texts.turn(address, script, unknown);
        let Waited::Done(sender) = self.wait(address, !self.next.asking, turn).await else {
            return Attempt::Silent { sent: None };
        };
        self.bring_text(sender.is_some());
        let attempt = self.attempt_as_is(address).await;
        if let Some(sender) = sender {
            sender.learn(&attempt);
        }
        attempt
    }

    async fn attempt_as_is(&self, address: &Address) -> Attempt {
        // Rare cases have a boxed future, so that the future of the usual one stays small.
        if self.replicas > 0 {
            return Box::pin(self.attempt_confirmed(address)).await;
        }
        match self.router.connections.ready(address) {
            // Without trouble, only the answer is waited for. (While the slot migrates, the server
            // that ASK named is not the master and need not be watched.)
            Some(connection) if self.in_doubt.is_none() || self.next.asking => {
                self.send(&connection, &SentWith::default()).await
            }
            ready => Box::pin(self.attempt_watched(address, ready)).await,
        }
    }

    /// As `attempt`, in trouble: other nodes are queried for the slot's master meanwhile.
    async fn attempt_watched(&self, address: &Address, ready: Option<Arc<Connection>>) -> Attempt {
        let watch = !self.next.asking;
        let connection = match ready {
            Some(connection) => connection,
            None => {
                let connecting = self.router.connections.reach(address);
                match self.wait(address, watch, connecting).await {
                    Waited::Done(Ok(connection)) => connection,
                    Waited::Done(Err(failure)) => return Attempt::Unconnected(failure),
                    Waited::MasterLeft | Waited::Late => return Attempt::Silent { sent: None },
                }
            }
        };
        if watch {
            self.send_watched(address, &connection).await
        } else {
            self.send(&connection, &SentWith::default()).await
        }
    }

    /// Sends the call in a group of calls that replicas must confirm.
    async fn attempt_confirmed(&self, address: &Address) -> Attempt {
        let replicated = &self.router.replicated;
        let watch = (self.in_doubt.is_some() || !replicated.is_ready(address, self.replicas))
            && !self.next.asking;
        let (asking, text) = (self.next.asking, self.brings_text());
        let sent_with = Arc::<SentWith>::default();
        let sending =
            replicated.send(address, self.call, self.replicas, asking, text, sent_with.clone());
        match self.wait(address, watch, sending).await {
            Waited::Done(attempt) => attempt,
            Waited::MasterLeft | Waited::Late => Attempt::Silent { sent: sent_with.give_up() },
        }
    }

    async fn send(&self, connection: &Arc<Connection>, sent_with: &SentWith) -> Attempt {
        let permit = match connection.try_permit() {
            Ok(Some(permit)) => permit,
            Ok(None) => match Box::pin(connection.permit(self.queue_until())).await {
                Ok(permit) => permit,
                Err(none) => return none.into(),
            },
            Err(none) => return none.into(),
        };
        self.send_with(permit, connection, sent_with).await
    }

    async fn send_with(
        &self,
        permit: Permit<'_>,
        connection: &Arc<Connection>,
        sent_with: &SentWith,
    ) -> Attempt {
        let not_after = self.not_after(connection);
        let deletes = self.deletes_if_equal(connection);
        if !sent_with.note(not_after) {
            return Attempt::Silent { sent: None };
        }
        let mut asking = None;
        let outcome = if !self.next.asking && !deletes {
            let call = script_call(self.call, self.brings_text(), connection.name(), not_after);
            connection.call_script_with(permit, &call, self.deadline).await
        } else if self.next.asking {
            let command = self.command(connection, not_after, deletes);
            let both = [Command::asking(), command];
            Box::pin(connection.pipeline_with(Some(permit), &both, self.deadline)).await.map(
                |exchange| {
                    let Exchange { mut value, sent, received } = exchange;
                    // A pipeline has an answer to each command.
                    let answer = value.pop().unwrap_or(Reply::Nil);
                    asking = value.pop();
                    Exchange { value: answer, sent, received }
                },
            )
        } else {
            let command = delete_if_equal::command(self.call);
            connection.call_with(Some(permit), command, self.deadline).await
        };
        match outcome {
            Ok(exchange) => self.hear(connection, exchange, asking, deletes),
            Err(Failure::Broken(failure)) => Attempt::Broken { failure, not_after },
            Err(Failure::Silent) => {
                connection.gave_up(self.router.clock.now(), self.router.limits.response_timeout);
                Attempt::Silent { sent: Some(not_after) }
            }
            Err(Failure::Quiet) => Attempt::Quiet { not_after },
        }
    }

    /// As `send`, but ends as soon as another node reports another master for the slot.
    async fn send_watched(&self, address: &Address, connection: &Arc<Connection>) -> Attempt {
        let sent_with = SentWith::default();
        match self.wait(address, true, self.send(connection, &sent_with)).await {
            Waited::Done(attempt) => attempt,
            Waited::MasterLeft | Waited::Late => Attempt::Silent { sent: sent_with.give_up() },
        }
    }

    /// Waits until the work is done, the slot has another master (if that is watched), or the
    /// deadline passes.
    pub(crate) async fn wait<T>(
        &self,
        address: &Address,
        watch: bool,
        work: impl Future<Output = T>,
    ) -> Waited<T> {
        tokio::select! {
            biased;
            done = work => Waited::Done(done),
            () = self.router.topology.master_left(self.call.slot, address), if watch => Waited::MasterLeft,
            () = time_out(&*self.router.clock, self.deadline) => Waited::Late,
        }
    }
}

impl From<NoPermit> for Attempt {
    fn from(none: NoPermit) -> Attempt {
        match none {
            NoPermit::Late => Attempt::Crowded,
            NoPermit::Retired => Attempt::Silent { sent: None },
        }
    }
}

/// The command for a call to the server with that name. The envelope is filled in for each attempt.
pub(crate) fn command(call: &Call, text: bool, name: &str, not_after: u64) -> Command {
    script_call(call, text, name, not_after).to_command()
}

fn script_call<'a>(call: &'a Call, text: bool, name: &'a str, not_after: u64) -> ScriptCall<'a> {
    ScriptCall {
        script: if text { &call.script.by_text } else { &call.script.by_digest },
        key: &call.key,
        second_key: call.second_key.as_deref(),
        name,
        not_after: call.not_after.map(|_| not_after),
        args: &call.args,
        shape: ScriptShape {
            slot: call.slot,
            statuses: call.script.statuses,
            id: call.args.leading_id().filter(|_| call.script.statuses.contains(&GRANTED)),
        },
    }
}
