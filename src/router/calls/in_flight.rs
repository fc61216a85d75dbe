//! One call: its attempts, from server to server, until one answers or the deadline passes.

mod outcome;

use futures::future::{BoxFuture, Shared};
#[cfg(feature = "cluster-async")]
pub(crate) use outcome::MAX_PROTOCOL_ERRORS;
use rwlease_core::protocol::{
    Call, CallError, CallErrorKind, CallReply, Confirmation, ConfirmationResult, Doubt,
};
use rwlease_core::resp::{
    Address, Command, EncodedScriptCall, RespValue, ScriptShape, ServerError,
};
use rwlease_core::time::LocalInstant;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::ConnectionError;
use crate::router::Router;
use crate::router::calls::delifeq::{self, DelIfEqMiss};
use crate::router::calls::reply_action::merge_asking_reply;
use crate::router::calls::script_upload::NoScriptReply;
use crate::router::calls::send_gate::{SendGate, SendMarker};
use crate::router::cluster::refresh::RefreshSource;
use crate::router::connections::exchange::{ExchangeError, TimedReply};
use crate::router::connections::reply_timeout::reply_timeout;
use crate::router::connections::send_permit::{PermitError, PermitWait, SendPermit};
use crate::router::connections::server_connection::ServerConnection;
use crate::scripts::Script;

/// A call under way and the history of its attempts.
pub(crate) struct InFlightCall<'a> {
    router: &'a Router,
    call: &'a Call,
    /// What must confirm it. If anything, it uses the connections for confirmed calls.
    confirmation: Confirmation,
    deadline: LocalInstant,
    /// Passed before an attempt is sent, if the caller wants to know whether any was.
    gate: Option<&'a SendGate>,
    target: CallTarget,
    /// The server's own command did not do it: only the script can.
    script_only: bool,
    /// That command reported that there is nothing to delete, while nothing was in doubt.
    key_is_absent: bool,
    /// Redirects in a row.
    redirect_count: u32,
    /// Failed attempts in a row.
    failure_count: u32,
    /// The number of attempts on connections with malformed replies.
    protocol_errors: u32,
    /// The wait before the next attempt.
    pause: Duration,
    in_doubt: Doubt,
    last_error: Option<ServerError>,
    last_failure: Option<ConnectionError>,
    /// A server takes no connection of this client.
    refusal: Option<Refusal>,
}

/// A failure to connect that no retry at the same server can fix, and the refresh of the map that
/// was requested then: the map may be old, and the server another one or none of the cluster.
#[derive(Debug)]
struct Refusal {
    address: Address,
    failure: ConnectionError,
    refresh: Shared<BoxFuture<'static, ()>>,
}

/// Where the call goes next, and how.
#[derive(Debug, Default)]
struct CallTarget {
    /// `None` for the master of the slot.
    address: Option<Address>,
    /// The server that redirected the call there.
    named_by: Option<Address>,
    /// After ASK: the server imports the slot, and takes the call if `ASKING` precedes it.
    asking: bool,
    text: ScriptForm,
}

/// How the script is named.
#[derive(Clone, Copy, Debug, Default)]
enum ScriptForm {
    #[default]
    Digest,
    /// The server does not know it: send the text, unless another caller has sent it meanwhile.
    Upload(NoScriptReply),
    /// By its digest, because another caller has sent the text.
    UploadedByOther,
    /// By its text.
    Source,
}

#[derive(Debug)]
pub(crate) enum AttemptOutcome {
    /// A reply, and whether replicas and disks have the write, if they must.
    Replied(TimedReply<RespValue>, ConfirmationResult),
    /// The server's own command did nothing: the script is needed.
    DelIfEqMiss(DelIfEqMiss),
    /// No connection: nothing was sent.
    NotConnected(ConnectionError),
    /// No reply in time, or the slot has a new master. What was sent may still arrive until its
    /// `not_after`.
    NoReply {
        sent: Option<u64>,
    },
    /// No answer, because the connection brought nothing at all for too long. What was sent may
    /// still arrive.
    Quiet {
        not_after: u64,
    },
    /// The server is overloaded and it became too late to send the call: nothing was sent.
    Overloaded,
    ConnectionLost {
        failure: ConnectionError,
        not_after: u64,
    },
}

impl AttemptOutcome {
    /// The outcome of an attempt that was sent with this limit and has no reply.
    pub(crate) fn without_reply(error: ExchangeError, not_after: u64) -> AttemptOutcome {
        match error {
            ExchangeError::NoReply => AttemptOutcome::NoReply { sent: Some(not_after) },
            ExchangeError::Quiet => AttemptOutcome::Quiet { not_after },
            ExchangeError::Connection(failure) => {
                AttemptOutcome::ConnectionLost { failure, not_after }
            }
        }
    }

    /// The outcome of [`InFlightCall::connect`] without a connection.
    pub(crate) fn not_connected(failure: Option<ConnectionError>) -> AttemptOutcome {
        failure.map_or(AttemptOutcome::NoReply { sent: None }, AttemptOutcome::NotConnected)
    }

    fn was_not_sent(&self) -> bool {
        matches!(
            self,
            AttemptOutcome::NotConnected(_)
                | AttemptOutcome::NoReply { sent: None }
                | AttemptOutcome::Overloaded
        )
    }

    /// The label of the attempt in metrics, unless the answer decides it.
    fn label(&self) -> Option<&'static str> {
        match self {
            AttemptOutcome::Replied(..) => None,
            AttemptOutcome::DelIfEqMiss(DelIfEqMiss::Unsupported) => Some("rejected"),
            // The server's own command did nothing, and the script is called.
            AttemptOutcome::DelIfEqMiss(_) => Some("delifeq_miss"),
            AttemptOutcome::NotConnected(_) => Some("not_connected"),
            AttemptOutcome::NoReply { sent: None } | AttemptOutcome::Overloaded => Some("not_sent"),
            AttemptOutcome::NoReply { sent: Some(_) } | AttemptOutcome::Quiet { .. } => {
                Some("no_reply")
            }
            AttemptOutcome::ConnectionLost { failure, .. } if failure.is_protocol_error => {
                Some("malformed")
            }
            AttemptOutcome::ConnectionLost { .. } => Some("connection_lost"),
        }
    }
}

impl<'a> InFlightCall<'a> {
    pub(crate) fn new(
        router: &'a Router,
        call: &'a Call,
        confirmation: Confirmation,
        deadline: LocalInstant,
        gate: Option<&'a SendGate>,
    ) -> Self {
        InFlightCall {
            router,
            call,
            confirmation,
            deadline,
            gate,
            target: CallTarget::default(),
            script_only: false,
            key_is_absent: false,
            redirect_count: 0,
            failure_count: 0,
            protocol_errors: 0,
            pause: Duration::ZERO,
            in_doubt: Doubt::None,
            last_error: None,
            last_failure: None,
            refusal: None,
        }
    }

    /// Makes attempts until there is an answer.
    pub(crate) async fn run(&mut self) -> Result<CallReply, CallError> {
        loop {
            if self.is_given_up() {
                return Err(self.call_error(CallErrorKind::Closed));
            }
            if let Some(address) = self.next_server()? {
                let attempt = self.attempt(&address).await;
                if self.is_given_up() {
                    return Err(self.call_error(CallErrorKind::Closed));
                }
                if let Some(answer) = self.apply_outcome(&address, attempt)? {
                    return Ok(answer);
                }
            }
            let pause = self.take_pause();
            self.router.back_off(pause, self.deadline).await;
        }
    }

    fn is_given_up(&self) -> bool {
        self.gate.is_some_and(SendGate::is_closed)
    }

    /// The server for the next attempt; `None` while it is unknown. Fails when it is too late for
    /// another attempt.
    pub(crate) fn next_server(&mut self) -> Result<Option<Address>, CallError> {
        if self.router.connections.is_closed() {
            return Err(self.call_error(self.router.runtime.closed()));
        }
        let known = self.target.address.clone();
        let address = known.or_else(|| self.router.topology.master_of(self.call.slot));
        if self.router.clock.now() >= self.deadline {
            if let Some(failure) = address.as_ref().and_then(|address| self.refusal_by(address)) {
                return Err(self.unconnected(failure));
            }
            let reason = match address {
                None => CallErrorKind::SlotUnassigned(self.call.slot),
                Some(_) if self.is_redirected() => {
                    CallErrorKind::TooManyRedirects(self.redirect_count)
                }
                Some(address) => {
                    // A dial can take longer than the call.
                    let reason = || self.router.connections.dial_failure(&address);
                    self.last_failure = self.last_failure.take().or_else(reason);
                    CallErrorKind::TimedOut(self.last_error.take())
                }
            };
            return Err(self.call_error(reason));
        }
        if address.is_none() {
            drop(self.router.topology.refresh(RefreshSource::Any));
            self.increase_backoff();
        }
        Ok(address)
    }

    /// Why a server takes no connection of this client, if no retry can fix that.
    fn refusal_by(&mut self, address: &Address) -> Option<ConnectionError> {
        let refusal = self.refusal.take().filter(|refusal| refusal.address == *address);
        let dialled = || self.router.connections.resting_failure(address);
        refusal
            .map(|refusal| refusal.failure)
            .or_else(|| dialled().filter(|failure| failure.is_permanent))
    }

    /// Takes the wait before the next attempt.
    pub(crate) fn take_pause(&mut self) -> Duration {
        mem::take(&mut self.pause)
    }

    /// Returns true if the next server is not the slot's master, so that `ASKING` must precede the
    /// call.
    pub(crate) fn needs_asking(&self) -> bool {
        self.target.asking
    }

    /// Returns true if an earlier attempt may still arrive.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.in_doubt.is_none()
    }

    /// Returns the script whose source the server lacks, with the reply `NOSCRIPT`.
    pub(crate) fn missing_script(&self) -> Option<(&'static Script, NoScriptReply)> {
        match self.target.text {
            ScriptForm::Upload(unknown) => {
                Some((self.router.scripts.get(self.call.script), unknown))
            }
            _ => None,
        }
    }

    /// With `brings`, this call sends the text. Otherwise it relies on another call that has sent
    /// it or sends it in the same pipeline.
    pub(crate) fn set_upload(&mut self, brings: bool) {
        self.target.text = if brings { ScriptForm::Source } else { ScriptForm::UploadedByOther };
    }

    /// How long to wait for a permit. The call is sent only with time for its reply: without, its
    /// outcome would only be in doubt. But this waits for a quarter of the time in any case, so
    /// that a caller who repeats the call does not spin.
    pub(crate) fn permit_wait(&self, connection: &ServerConnection) -> PermitWait {
        let now = self.router.clock.now();
        let left = self.deadline.saturating_duration_since(now);
        let kept = self.router.limits.response_timeout.min(left / 2);
        let kept = kept.max(connection.min_reply_time(left));
        let send_by = self.deadline.saturating_sub(kept);
        PermitWait { send_by, ends: send_by.max(now.saturating_add(left / 4)) }
    }

    /// Until when an attempt at that server may arrive, by that server's clock.
    pub(crate) fn not_after(&self, connection: &ServerConnection) -> u64 {
        connection.server_ms(self.call.not_after)
    }

    /// Returns true if the server's own command is sent in place of the script.
    pub(crate) fn deletes_if_equal(&self, connection: &ServerConnection) -> bool {
        self.call.script.is_delifeq()
            && !self.script_only
            && !self.brings_text()
            && connection.has_delifeq()
    }

    /// The command for that server.
    pub(crate) fn to_command(
        &self,
        connection: &ServerConnection,
        not_after: u64,
        deletes: bool,
    ) -> Command {
        if deletes {
            return delifeq::command(self.call);
        }
        script_call(self.script_words(), self.call, connection.name(), not_after).to_command()
    }

    /// The outcome of an answer to that command, and of the one to `ASKING` before it.
    pub(crate) fn outcome_of_reply(
        &self,
        connection: &ServerConnection,
        exchange: TimedReply<RespValue>,
        asking: Option<RespValue>,
        deletes: bool,
    ) -> AttemptOutcome {
        let TimedReply { mut value, sent_at, received_at } = exchange;
        if deletes {
            value = match delifeq::parse_reply(value) {
                Ok(reply) => reply,
                Err(undone) => {
                    if undone == DelIfEqMiss::Unsupported {
                        connection.disable_delifeq();
                    }
                    return AttemptOutcome::DelIfEqMiss(undone);
                }
            };
        }
        if let Some(asking) = asking {
            value = merge_asking_reply(asking, value);
        }
        connection.observe(self.call.slot, sent_at, received_at, &value);
        AttemptOutcome::Replied(TimedReply { value, sent_at, received_at }, Ok(()))
    }

    /// The words that name the script, or bring its text.
    fn script_words(&self) -> &'static Command {
        self.router.scripts.get(self.call.script).words(self.brings_text())
    }

    fn brings_text(&self) -> bool {
        matches!(self.target.text, ScriptForm::Source)
    }

    /// Sends the call and waits for the answer, as long as an answer can still be of use.
    async fn attempt(&mut self, address: &Address) -> AttemptOutcome {
        match self.missing_script() {
            None => self.attempt_once(address).await,
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
        unknown: NoScriptReply,
    ) -> AttemptOutcome {
        let turn = self.router.script_uploads.acquire_turn(address, script, unknown);
        let Some(sender) = self.wait(address, !self.target.asking, turn).await else {
            return AttemptOutcome::NoReply { sent: None };
        };
        self.set_upload(sender.is_some());
        let attempt = self.attempt_once(address).await;
        if let Some(sender) = sender {
            sender.finish(&attempt);
        }
        attempt
    }

    async fn attempt_once(&self, address: &Address) -> AttemptOutcome {
        // Rare cases have a boxed future, so that the future of the usual one stays small.
        if !self.confirmation.is_empty() {
            return Box::pin(self.attempt_confirmed(address)).await;
        }
        match self.router.connections.get(address) {
            // Without trouble, only the answer is waited for. (While the slot migrates, the server
            // that ASK named is not the master and need not be watched.)
            Some(connection) if self.in_doubt.is_none() || self.target.asking => {
                self.send(&connection, &SendMarker::default()).await
            }
            ready => Box::pin(self.attempt_with_master_watch(address, ready)).await,
        }
    }

    /// As `attempt`, after failures: queries other nodes for the slot's master at the same time.
    async fn attempt_with_master_watch(
        &self,
        address: &Address,
        ready: Option<Arc<ServerConnection>>,
    ) -> AttemptOutcome {
        let watch = !self.target.asking;
        let connection = match ready {
            Some(connection) => connection,
            None => match self.connect(address, watch).await {
                Ok(connection) => connection,
                Err(failure) => return AttemptOutcome::not_connected(failure),
            },
        };
        if !watch {
            return self.send(&connection, &SendMarker::default()).await;
        }
        let sent_with = SendMarker::default();
        match self.wait(address, true, self.send(&connection, &sent_with)).await {
            Some(attempt) => attempt,
            None => AttemptOutcome::NoReply { sent: sent_with.cancel() },
        }
    }

    /// Connects to the server. The error is `None` if the wait ended before.
    pub(crate) async fn connect(
        &self,
        address: &Address,
        watch: bool,
    ) -> Result<Arc<ServerConnection>, Option<ConnectionError>> {
        let connecting = self.router.connections.connect(address, true);
        self.wait(address, watch, connecting).await.ok_or(None)?.map_err(Some)
    }

    /// Sends the call in a group of calls with the same confirmation.
    async fn attempt_confirmed(&self, address: &Address) -> AttemptOutcome {
        let replicated = &self.router.replicated;
        let watch = (!self.in_doubt.is_none() || !replicated.is_ready(address, self.confirmation))
            && !self.target.asking;
        let (asking, script) = (self.target.asking, self.script_words());
        let sent_with = Arc::<SendMarker>::default();
        if self.gate.is_some_and(|gate| !gate.pass_later(&sent_with)) {
            return AttemptOutcome::NoReply { sent: None };
        }
        let sending = replicated.send(
            address,
            self.call,
            self.confirmation,
            asking,
            script,
            sent_with.clone(),
        );
        let attempt = match self.wait(address, watch, sending).await {
            Some(attempt) => attempt,
            None => AttemptOutcome::NoReply { sent: sent_with.cancel() },
        };
        if let Some(gate) = self.gate.filter(|_| attempt.was_not_sent()) {
            gate.take_back(&sent_with);
        }
        attempt
    }

    async fn send(
        &self,
        connection: &Arc<ServerConnection>,
        sent_with: &SendMarker,
    ) -> AttemptOutcome {
        let permit = match connection.try_permit() {
            Ok(Some(permit)) => permit,
            Ok(None) => match Box::pin(connection.permit(self.permit_wait(connection))).await {
                Ok(permit) => permit,
                Err(none) => return none.into(),
            },
            Err(none) => return none.into(),
        };
        self.send_with(permit, connection, sent_with).await
    }

    async fn send_with(
        &self,
        permit: SendPermit<'_>,
        connection: &Arc<ServerConnection>,
        sent_with: &SendMarker,
    ) -> AttemptOutcome {
        let not_after = self.not_after(connection);
        let deletes = self.deletes_if_equal(connection);
        let is_wanted = self.gate.is_none_or(SendGate::pass);
        if !is_wanted || !sent_with.try_mark_sent(not_after) {
            return AttemptOutcome::NoReply { sent: None };
        }
        let mut asking = None;
        let outcome = if !self.target.asking && !deletes {
            let call = script_call(self.script_words(), self.call, connection.name(), not_after);
            connection.call_script(permit, &call, self.deadline).await
        } else if self.target.asking {
            let command = self.to_command(connection, not_after, deletes);
            let both = [Command::asking(), command];
            let sending = Box::pin(connection.pipeline(Some(permit), &both, self.deadline));
            sending.await.map(|exchange| {
                exchange.map(|mut replies| {
                    // A pipeline has an answer to each command.
                    let answer = replies.pop().unwrap_or(RespValue::Nil);
                    asking = replies.pop();
                    answer
                })
            })
        } else {
            let command = delifeq::command(self.call);
            connection.call(Some(permit), command, self.deadline).await
        };
        match outcome {
            Ok(exchange) => self.outcome_of_reply(connection, exchange, asking, deletes),
            Err(error) => AttemptOutcome::without_reply(error, not_after),
        }
    }

    /// Waits until the work is done. `None` if the slot has another master (if that is watched), or
    /// the deadline passes before.
    pub(crate) async fn wait<T>(
        &self,
        address: &Address,
        watch: bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.router.topology.wait_master_changed(self.call.slot, address), if watch => None,
            () = reply_timeout(&*self.router.clock, self.deadline) => None,
        }
    }
}

impl From<PermitError> for AttemptOutcome {
    fn from(none: PermitError) -> AttemptOutcome {
        match none {
            PermitError::DeadlineExceeded => AttemptOutcome::Overloaded,
            PermitError::ConnectionRetired => AttemptOutcome::NoReply { sent: None },
        }
    }
}

/// The call to the server with that name. The envelope is filled in for each attempt.
pub(crate) fn script_call<'a>(
    script: &'a Command,
    call: &'a Call,
    name: &'a str,
    not_after: u64,
) -> EncodedScriptCall<'a> {
    EncodedScriptCall {
        script,
        key: &call.key,
        second_key: call.second_key.as_deref(),
        server_name: name,
        not_after: call.not_after.map(|_| not_after),
        args: &call.args,
        shape: ScriptShape {
            slot: call.slot,
            statuses: call.script.statuses(),
            id: call.args.leading_id().filter(|_| call.script.can_grant()),
        },
    }
}
