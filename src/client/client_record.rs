//! The records of clients: each client writes its own, and reads those of others for queries.
//!
//! A record is best effort. No request waits for it, and a failure is an event at most.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use rwlease_core::protocol::{
    AcquisitionId, Call, CallError, CallErrorKind, CallReply, ClientId, ClientInfo, Confirmation,
    WriteRecordRequest, parse_record_reply, read_record,
};
use rwlease_core::time::LocalInstant;
use tokio::task::AbortHandle;

use crate::backend::{LIB_NAME, LIB_VERSION};
use crate::backoff::with_jitter;
use crate::client::label::host_name;
use crate::client::{ClientInner, telemetry};
use crate::error::Error;
use crate::locks::lock;
use crate::on_drop::OnDrop;
use crate::router::Priority;
use crate::telemetry::emit_in_drop;

/// How long the servers keep a record that was written again.
const RECORD_TTL: Duration = Duration::from_secs(24 * 3600);

/// How long the servers keep the first record. Clients that live for seconds leave many.
const FIRST_RECORD_TTL: Duration = Duration::from_secs(2 * 3600);

/// The longest time between two writes of a record.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);

/// The longest time from a failed write to the next one.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// How long a query waits for the records: it is also made while a master is away.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a missing record is not looked up again.
const MISSING_FOR: Duration = Duration::from_secs(5);

/// The most clients that one client knows.
const MAX_KNOWN: usize = 1024;

/// The task that keeps the record of a client written, and counts the client, until this is
/// dropped.
#[derive(Debug)]
struct RecordTask {
    task: AbortHandle,
    client: ClientId,
    info: ClientInfo,
}

impl RecordTask {
    /// `None` for a client without a label.
    fn start(client: &Arc<ClientInner>) -> Option<RecordTask> {
        let version = format!("{LIB_NAME}/{LIB_VERSION}");
        let label = client.settings.label.text()?;
        // The reply to the first write has the time of the start.
        let info = ClientInfo::new(label, host_name(), std::process::id(), version);
        telemetry::set_client(&client.id(), &info, true);
        let task = client.spawn("client record", keep_written(client.clone(), info.clone()));
        Some(RecordTask { task, client: client.id(), info })
    }
}

impl Drop for RecordTask {
    fn drop(&mut self) {
        self.task.abort();
        emit_in_drop(|| telemetry::set_client(&self.client, &self.info, false));
    }
}

#[derive(Debug, Default)]
pub(crate) struct ClientRecord(Mutex<Option<RecordTask>>);

impl ClientInner {
    /// Starts the record. It ends when the result is dropped, if [`ClientInner::end_record`] has
    /// not ended it before.
    pub(crate) fn start_record(self: &Arc<Self>) -> OnDrop<impl FnOnce() + use<>> {
        let client = self.clone();
        let end = OnDrop::new(move || client.end_record());
        let task = RecordTask::start(self);
        *lock(&self.record.0) = task;
        if self.registry().is_closed {
            self.end_record(); // it may have been shut down before
        }
        end
    }
}

/// Writes the record now and before each hour has passed, until the client is shut down.
async fn keep_written(client: Arc<ClientInner>, mut info: ClientInfo) {
    let connected_at = client.clock.now();
    let description = info.description();
    let mut ttl = FIRST_RECORD_TTL;
    loop {
        let age = client.clock.now().saturating_duration_since(connected_at);
        let request = WriteRecordRequest { age, ttl, description: &description };
        let call = request.call(&client.settings.key_prefix, &client.id());
        let deadline = client.call_deadline(Confirmation::default());
        let (written, pause) = match client.transport.call(&call, deadline).await {
            Ok(reply) => (request.read(reply.value).map_err(Error::from), RENEWAL_INTERVAL),
            Err(error) => match error.kind {
                CallErrorKind::Closed | CallErrorKind::ClientFailed(_) => return,
                CallErrorKind::Rejected(_) => (Err(error.into()), RENEWAL_INTERVAL),
                _ => (Err(error.into()), RETRY_INTERVAL),
            },
        };
        telemetry::emit_client_record(&client.id(), &info, written.as_ref().err());
        if let Ok(started_at) = written {
            info.started_at = started_at;
            ttl = RECORD_TTL;
            client.known_clients.insert(client.id(), client.clock.now(), Some(info.clone()));
        }
        client.clock.sleep_until(client.clock.now().saturating_add(with_jitter(pause))).await;
    }
}

/// The clients that this client knows. What a client says of itself does not change.
#[derive(Debug, Default)]
pub(crate) struct KnownClients(Mutex<FxHashMap<ClientId, KnownClient>>);

#[derive(Debug)]
struct KnownClient {
    seen_at: LocalInstant,
    info: Option<ClientInfo>,
}

impl KnownClients {
    /// Removes the clients that were read first if there are too many.
    fn insert(&self, client: ClientId, seen_at: LocalInstant, info: Option<ClientInfo>) {
        let mut known = lock(&self.0);
        if known.len() >= MAX_KNOWN && !known.contains_key(&client) {
            let oldest = known.values().map(|known| known.seen_at).min();
            known.retain(|_, known| Some(known.seen_at) > oldest);
        }
        known.insert(client, KnownClient { seen_at, info });
    }

    /// Returns `None` if the record must be read: it is not known, and it was not missing just now.
    fn get(&self, client: &ClientId, now: LocalInstant) -> Option<Option<ClientInfo>> {
        let known = lock(&self.0);
        let KnownClient { seen_at, info } = known.get(client)?;
        let is_fresh = info.is_some() || now.saturating_duration_since(*seen_at) < MISSING_FOR;
        is_fresh.then(|| info.clone())
    }
}

impl ClientInner {
    /// The client has ended: it does not write its record again, and is not counted any more.
    pub(crate) fn end_record(&self) {
        let record = lock(&self.record.0).take(); // dropped with nothing locked: a subscriber runs
        drop(record);
    }

    /// Adds who the clients of these acquisitions are, as far as it can be read in a second.
    pub(crate) async fn describe_clients<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a str, &'a mut Option<ClientInfo>)>,
    ) {
        let mut of_client: BTreeMap<ClientId, Vec<&mut Option<ClientInfo>>> = BTreeMap::new();
        for (id, info) in entries {
            if let Some(id) = AcquisitionId::parse(id) {
                of_client.entry(id.client()).or_default().push(info);
            }
        }
        let found = self.read_records(of_client.keys().copied()).await;
        for (client, infos) in of_client {
            infos.into_iter().for_each(|info| *info = found.get(&client).cloned());
        }
    }

    /// Returns the records that are known, and reads the others.
    async fn read_records(
        &self,
        clients: impl Iterator<Item = ClientId>,
    ) -> BTreeMap<ClientId, ClientInfo> {
        let now = self.clock.now();
        let is_unnamed = self.settings.label.text().is_none();
        let (mut found, mut clients): (_, Vec<ClientId>) = (BTreeMap::new(), clients.collect());
        clients.retain(|client| match self.known_clients.get(client, now) {
            Some(info) => {
                found.extend(info.map(|info| (*client, info)));
                false
            }
            None => !(is_unnamed && *client == self.id()),
        });
        let found = Mutex::new(found);
        let prefix = &self.settings.key_prefix;
        let calls: Vec<Call> = clients.iter().map(|client| read_record(prefix, client)).collect();
        let deadline = now.saturating_add(READ_TIMEOUT.min(self.settings.acquisition.call_timeout));
        let on_reply = |index: usize, reply: Result<CallReply, CallError>| {
            let Some(client) = clients.get(index) else { return };
            let info =
                reply.map_err(Error::from).and_then(|reply| Ok(parse_record_reply(reply.value)?));
            let info = info.unwrap_or_else(|error| {
                telemetry::emit_record_unread(client, &error);
                None
            });
            // The query replies from `found`: other queries can remove a known client meanwhile.
            let mut found = lock(&found);
            found.extend(info.clone().map(|info| (*client, info)));
            self.known_clients.insert(*client, now, info);
        };
        self.transport.call_each(&calls, deadline, Priority::Normal, on_reply).await;
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
