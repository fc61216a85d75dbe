//! What the locks protect: a counter for each name that compares fencing tokens, on a separate
//! server that no fault affects.
//!
//! A writer enters with its token, which shuts out all older ones, reads the counter, and writes it
//! back plus one. So a lost update shows as a counter below the number of writes.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd};

use testkit::{Result, Server, ServerSettings, StandaloneServer};

const ENTER: &str = "
local fence = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < fence then return {0, 0} end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return {redis.call('INCR', 'sequence'), tonumber(redis.call('HGET', KEYS[1], 'counter') or '0')}";

const WRITE: &str = "
local fence = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < fence then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'counter', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'writes', 1)
return redis.call('INCR', 'sequence')";

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
            let mut both = redis::cmd("HMGET");
            both.arg(&key).arg("counter").arg("writes");
            let (counter, writes): (Option<u64>, Option<u64>) =
                both.query_async(&mut connection).await?;
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
    write: String,
}

impl StoreClient {
    pub async fn connect(url: &str) -> Result<StoreClient> {
        // The store is always there. Only the worker can be late.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut load = redis::pipe();
        for text in [ENTER, WRITE] {
            load.cmd("SCRIPT").arg("LOAD").arg(text);
        }
        let (enter, write) = load.query_async(&mut connection).await?;
        Ok(StoreClient { connection, enter, write })
    }

    /// Shuts out all older tokens. Returns the write's place in the store's order and the counter,
    /// or nothing if this token is shut out.
    pub async fn enter(&mut self, name: &str, token: u64) -> Result<Option<(u64, u64)>> {
        let (sequence, counter): (u64, u64) =
            script(&self.enter, name).arg(token).query_async(&mut self.connection).await?;
        Ok((sequence > 0).then_some((sequence, counter)))
    }

    pub async fn read(&mut self, name: &str) -> Result<Option<u64>> {
        let mut command = redis::cmd("HGET");
        command.arg(format!("store:{name}")).arg("counter");
        Ok(command.query_async(&mut self.connection).await?)
    }

    /// Returns the write's place in the store's order, or nothing if the token is shut out.
    pub async fn write(&mut self, name: &str, token: u64, counter: u64) -> Result<Option<u64>> {
        let mut command = script(&self.write, name);
        let sequence: u64 =
            command.arg(token).arg(counter).query_async(&mut self.connection).await?;
        Ok((sequence > 0).then_some(sequence))
    }
}

fn script(digest: &str, name: &str) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(1).arg(format!("store:{name}"));
    command
}
