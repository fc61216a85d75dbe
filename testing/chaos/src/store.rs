//! What the locks protect: a fenced value for each name, a counter, on a separate server that no
//! fault affects. The scripts are those of the library.
//!
//! A writer enters with its token, which shuts out all older ones, reads the counter, and writes it
//! back plus one. So a lost update shows as a counter below the number of writes.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd};

use testkit::{Error, Result, Server, ServerSettings, StandaloneServer};

/// Returns the place in the order of the store and the counter, or zeros if the token is refused.
const AFTER_ENTER: &str = "
if reply[1] ~= 'value' and reply[1] ~= 'no_value' then return {0, 0} end
return {redis.call('INCR', 'sequence'), tonumber(reply[5] or '0')}";

/// Returns the place in the order of the store, or 0 if the token is refused.
const AFTER_SET: &str = "
if type(reply) ~= 'string' or not string.find(reply, '^written ') then return 0 end
redis.call('INCR', 'writes:' .. KEYS[1])
return redis.call('INCR', 'sequence')";

/// How long a token is kept without a value.
const RETENTION_MS: u64 = 86_400_000;

/// The script of the library, and after it one that reads its reply.
fn followed(name: &str, after: &str) -> Result<String> {
    let script = rwlease::scripts().find(|script| script.name() == name);
    let script = script.ok_or_else(|| Error::new(format!("there is no script {name}")))?;
    let text = script.text();
    Ok(format!(
        "local reply = (function()\n{text}\nend)()
if type(reply) == 'table' and reply.err then return reply end
{after}"
    ))
}

/// The server of the store. Workers reach it by a socket file, even if their network is cut.
#[derive(Debug)]
pub struct Store(StandaloneServer);

impl Store {
    pub async fn start() -> Result<Store> {
        let settings = ServerSettings::default().line("unixsocket store.sock");
        Ok(Store(StandaloneServer::start_with(settings).await?))
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.0.folder().join("store.sock").display())
    }

    pub fn server(&self) -> &Server {
        &self.0
    }

    /// The names whose counters are below the number of writes: each lost an update.
    pub async fn behind(&self) -> Result<Vec<String>> {
        let mut behind = Vec::new();
        let mut connection = self.0.connect().await?;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("store:*").query_async(&mut connection).await?;
        for key in keys {
            let counter: Option<u64> =
                redis::cmd("HGET").arg(&key).arg("value").query_async(&mut connection).await?;
            let writes = format!("writes:{key}");
            let writes: Option<u64> =
                redis::cmd("GET").arg(writes).query_async(&mut connection).await?;
            if counter != writes {
                behind.push(format!("{key}: {counter:?} after {writes:?} writes"));
            }
        }
        Ok(behind)
    }
}

/// A worker's way to the store, and the digests of the scripts there.
#[derive(Clone, Debug)]
pub struct StoreClient {
    connection: MultiplexedConnection,
    enter: String,
    set: String,
}

impl StoreClient {
    pub async fn connect(url: &str) -> Result<StoreClient> {
        // The store is always there. Only the worker can be late.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut load = redis::pipe();
        for (name, after) in [("fenced/enter", AFTER_ENTER), ("fenced/set", AFTER_SET)] {
            load.cmd("SCRIPT").arg("LOAD").arg(followed(name, after)?);
        }
        let (enter, set) = load.query_async(&mut connection).await?;
        Ok(StoreClient { connection, enter, set })
    }

    /// Shuts out all older tokens. Returns the write's place in the store's order and the counter,
    /// or nothing if this token is shut out.
    pub async fn enter(&mut self, write: &StoreWrite<'_>) -> Result<Option<(u64, u64)>> {
        let (sequence, counter): (u64, u64) =
            write.script(&self.enter, 1).query_async(&mut self.connection).await?;
        Ok((sequence > 0).then_some((sequence, counter)))
    }

    pub async fn read(&mut self, name: &str) -> Result<Option<u64>> {
        let mut command = redis::cmd("HGET");
        command.arg(format!("store:{name}")).arg("value");
        Ok(command.query_async(&mut self.connection).await?)
    }

    /// Returns the write's place in the store's order, or nothing if the token is shut out.
    pub async fn set(&mut self, write: &StoreWrite<'_>, counter: u64) -> Result<Option<u64>> {
        let mut command = write.script(&self.set, 2);
        command.arg(0).arg("any").arg(counter);
        let sequence: u64 = command.query_async(&mut self.connection).await?;
        Ok((sequence > 0).then_some(sequence))
    }
}

/// A write under a lock: the lock's name, the token, and the number of the hold in its worker.
#[derive(Clone, Copy, Debug)]
pub struct StoreWrite<'a> {
    pub name: &'a str,
    pub token: u64,
    pub hold: u64,
}

impl StoreWrite<'_> {
    /// A call of a script with the arguments that both have.
    fn script(&self, digest: &str, sequence: u64) -> Cmd {
        let writer = format!("{:010}-{:010}", std::process::id(), self.hold);
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(1).arg(format!("store:{}", self.name)).arg("store");
        command.arg(self.name).arg(self.token).arg(writer).arg(sequence).arg("-").arg(RETENTION_MS);
        command
    }
}
