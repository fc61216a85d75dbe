//! The floor, without this library: the client crates, or a minimal connection of our own, with one
//! connection to each master and known slots.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use rwlease::Slot;
use smallvec::SmallVec;

use crate::baseline_connection::BaselineConnection;
use load::Lock;
use testkit::{Backend, Cluster};

const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
const LEASE: &[u8] = b"30000";
/// The scripts of the published single-hash lock.
pub const PUBLISHED_ACQUIRE: &str = include_str!("published/acquire_write.lua");
pub const PUBLISHED_RELEASE: &str = include_str!("published/release_write.lua");

static OWNERS: AtomicU64 = AtomicU64::new(0);

/// The digests of the loaded scripts, and the connection to each slot's master.
pub struct BaselineClient {
    connections: Vec<Connection>,
    /// The index of each slot's connection.
    connection_of_slot: Vec<u8>,
    digests: [String; 6],
}

enum Connection {
    Redis(MultiplexedConnection),
    Native(Arc<BaselineConnection>),
    Fred(fred::clients::Client),
}

impl BaselineClient {
    pub async fn connect(backend: Backend, cluster: &Cluster) -> Arc<BaselineClient> {
        let view = cluster.view().await.expect("no view of the cluster");
        let (mut connections, mut ways, mut digests) =
            (Vec::new(), vec![0; 1 << 14], Default::default());
        for master in cluster.masters().await.expect("no masters") {
            let node = cluster.node(master);
            let own =
                |name| rwlease::scripts().find(|script| script.name() == name).expect(name).text();
            digests = futures::future::join_all(
                [
                    own("acquire_write"),
                    own("acquire_read"),
                    own("release"),
                    COMPARE_AND_DELETE,
                    PUBLISHED_ACQUIRE,
                    PUBLISHED_RELEASE,
                ]
                .map(async |text| {
                    let load = redis::cmd("SCRIPT").arg("LOAD").arg(text).to_owned();
                    node.run::<String>(&load).await.expect("not loaded")
                }),
            )
            .await
            .try_into()
            .expect("as many");
            for range in &view.0[cluster.id(master)].slots {
                ways[usize::from(*range.start())..=usize::from(*range.end())]
                    .fill(connections.len() as u8);
            }
            connections.push(match backend {
                Backend::Fred => Connection::Fred(fred_client(node.port()).await),
                Backend::Native => Connection::Native(BaselineConnection::open(node.port()).await),
                _ => Connection::Redis(redis_client(&node.url()).await),
            });
        }
        Arc::new(BaselineClient { connections, connection_of_slot: ways, digests })
    }

    /// Sends a command, without more allocations than the client crate needs.
    async fn call(&self, key: &str, words: &[&[u8]]) {
        match &self.connections
            [usize::from(self.connection_of_slot[usize::from(Slot::of(key).get())])]
        {
            Connection::Redis(connection) => {
                let mut command = redis::Cmd::with_capacity(
                    words.len(),
                    words.iter().map(|word| word.len()).sum(),
                );
                for word in words {
                    command.arg(word);
                }
                let _: redis::Value =
                    command.query_async(&mut connection.clone()).await.expect("no answer");
            }
            Connection::Native(connection) => {
                let reply = connection.call(words).await;
                assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
            }
            Connection::Fred(client) => {
                use fred::interfaces::ClientLike;
                use fred::types::{ClusterHash, CustomCommand, Resp3Frame};

                let name = std::str::from_utf8(words[0]).expect("a command's name").to_owned();
                let command = CustomCommand::new(name, ClusterHash::Random, false);
                let args = words[1..].to_vec();
                let reply = client.custom_raw(command, args).await.expect("no answer");
                assert!(!matches!(reply, Resp3Frame::SimpleError { .. }), "{reply:?}");
            }
        }
    }

    async fn script<const N: usize>(&self, digest: usize, key: &str, args: [&[u8]; N]) {
        let begin: [&[u8]; 4] = [b"EVALSHA", self.digests[digest].as_bytes(), b"1", key.as_bytes()];
        let mut words: SmallVec<[&[u8]; 16]> = begin.into_iter().collect();
        words.extend(args);
        self.call(key, &words).await;
    }
}

type Id = [u8; 18];

fn id() -> Id {
    let mut id = [b'0'; 18];
    let number = OWNERS.fetch_add(1, Ordering::Relaxed);
    write!(&mut id[..], "{number:018}").expect("it has room");
    id
}

/// The purpose of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptPair {
    Write,
    Read,
    /// A write by the published single-hash protocol.
    Published,
}

/// The scripts alone, on an uncontended lock.
#[derive(Clone)]
pub struct ScriptsOnly(pub Arc<BaselineClient>, pub ScriptPair, pub Arc<str>);

impl Lock for ScriptsOnly {
    type Held = (ScriptsOnly, Id);

    async fn take(&self) -> Self::Held {
        let ScriptsOnly(bare, kind, key) = self;
        let id = id();
        match kind {
            ScriptPair::Published => bare.script(4, key, [LEASE, LEASE, LEASE, &id]).await,
            // With the arguments for a place in the queue, as a waiting request sends it.
            kind => {
                let args: [&[u8]; 8] =
                    [b"-", b"0", &id, LEASE, b"f", b"1", b"0", b"1000 6000 10000 -"];
                bare.script(usize::from(*kind == ScriptPair::Read), key, args).await
            }
        }
        (self.clone(), id)
    }

    async fn release((ScriptsOnly(bare, kind, key), id): Self::Held) {
        match kind {
            ScriptPair::Published => bare.script(5, &key, [&id]).await,
            _ => bare.script(2, &key, [b"-", &id]).await,
        }
    }
}

/// `SET NX PX` and compare-and-delete: the lowest cost of any lock.
#[derive(Clone)]
pub struct SetNx(pub Arc<BaselineClient>, pub Arc<str>);

impl Lock for SetNx {
    type Held = (SetNx, Id);

    async fn take(&self) -> Self::Held {
        let id = id();
        let key = &*self.1;
        self.0.call(key, &[b"SET", key.as_bytes(), &id, b"NX", b"PX", LEASE]).await;
        (self.clone(), id)
    }

    async fn release((SetNx(bare, key), id): Self::Held) {
        bare.script(3, &key, [&id]).await;
    }
}

async fn redis_client(url: &str) -> MultiplexedConnection {
    use redis::IntoConnectionInfo;

    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info().expect("a URL").set_tcp_settings(tcp);
    let client = redis::Client::open(info).expect("a client");
    client.get_multiplexed_async_connection().await.expect("not connected")
}

async fn fred_client(port: u16) -> fred::clients::Client {
    use fred::interfaces::ClientLike;
    use fred::types::RespVersion;
    use fred::types::config::{Config, ConnectionConfig, ServerConfig, TcpConfig};

    let config = Config {
        server: ServerConfig::new_centralized("127.0.0.1", port),
        version: RespVersion::RESP3,
        ..Config::default()
    };
    let connection = ConnectionConfig {
        tcp: TcpConfig { nodelay: Some(true), ..TcpConfig::default() },
        ..Default::default()
    };
    let client = fred::clients::Client::new(config, None, Some(connection), None);
    client.init().await.expect("not connected");
    client
}
