//! Measures the figures that no other bench prints, on real servers.

use std::fs;
use std::time::Duration;

use futures::future::join_all;
use redis::{Cmd, cmd, pipe};
use rwlease::Client;

use crate::inputs::{
    CHANNEL, CLIENT, CLIENT_CONNECTION, COMMAND, CONNECTION, DIAL, Inputs, MAP_BYTES, MAPS,
    RELEASE, SIZES, SUBSCRIBE, TAKE,
};
use testkit::{Cluster, ClusterConfig, Server, ServerSettings};

const DIALS: usize = 1_000;
const CHANNELS: usize = 5_000;
const FETCHES: usize = 200;
const TASKS: usize = 64;
const PAIRS: usize = 20_000;
const CLIENTS: usize = 200;
/// More than a client dials for the slot map.
const MASTERS: usize = 8;

pub async fn measure(inputs: &mut Inputs) -> String {
    let server = Server::start(&ServerSettings::default()).await.unwrap();
    inputs.measured(COMMAND, command_overhead(&server, inputs).await);
    let (micros, bytes) = dials(&server).await;
    inputs.measured(DIAL, micros);
    inputs.measured(CONNECTION, bytes);
    let (micros, bytes) = channels(&server).await;
    inputs.measured(SUBSCRIBE, micros);
    inputs.measured(CHANNEL, bytes);
    for (at, masters) in SIZES.into_iter().enumerate() {
        let (micros, bytes) = map(usize::from(masters)).await;
        inputs.measured(MAPS[at], micros);
        inputs.measured(MAP_BYTES[at], bytes);
    }
    let (client, connection) = clients().await;
    inputs.measured(CLIENT, client);
    inputs.measured(CLIENT_CONNECTION, connection);
    server.version().to_string()
}

/// The server's processor time for a command of a pair, without the script.
async fn command_overhead(server: &Server, inputs: &Inputs) -> f64 {
    let locks = Client::connect([server.url()]).await.unwrap();
    let pairs = async |count: usize| {
        join_all((0..TASKS).map(|task| {
            let lock = locks.rwlock(format!("pair:{task}")).unwrap();
            async move {
                for _ in 0..count / TASKS {
                    let _ = lock.write().await.unwrap().release().await.unwrap();
                }
            }
        }))
        .await;
    };
    pairs(PAIRS / 10).await;
    let before = processor_time(server).await;
    pairs(PAIRS).await;
    let pair = (processor_time(server).await - before) / PAIRS as f64;
    ((pair - inputs.of(TAKE) - inputs.of(RELEASE)) / 2.0).max(0.0)
}

/// The server's processor time for a dial with a client's first commands, and the memory of the
/// connection.
async fn dials(server: &Server) -> (f64, f64) {
    let client = redis::Client::open(server.url()).unwrap();
    let begin = pipe().cmd("TIME").cmd("INFO").arg("server").cmd("CLUSTER").arg("MYID").clone();
    let dial = async || {
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let _: Result<(), _> = begin.query_async(&mut connection).await; // no cluster, so no id
        connection
    };
    drop(dial().await);
    let memory = server.used_memory().await.unwrap();
    let before = processor_time(server).await;
    let mut connections = Vec::new();
    for _ in 0..DIALS {
        connections.push(dial().await);
    }
    let micros = processor_time(server).await - before;
    // The buffers of idle connections shrink after two seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let bytes = server.used_memory().await.unwrap() - memory;
    (micros / DIALS as f64, bytes as f64 / DIALS as f64)
}

async fn channels(server: &Server) -> (f64, f64) {
    let (tell, _told) = tokio::sync::mpsc::unbounded_channel();
    let config = redis::AsyncConnectionConfig::new().set_push_sender(tell);
    let client = redis::Client::open(format!("{}?protocol=resp3", server.url())).unwrap();
    let mut connection =
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let memory = server.used_memory().await.unwrap();
    let before = processor_time(server).await;
    for at in 0..CHANNELS {
        let name = format!("{{{at:05}}}rwlease:0123456789abcdef0123456789abcdef");
        let _: () = cmd("SSUBSCRIBE").arg(name).query_async(&mut connection).await.unwrap();
    }
    let micros = processor_time(server).await - before;
    let bytes = server.used_memory().await.unwrap() - memory;
    (micros / CHANNELS as f64, bytes as f64 / CHANNELS as f64)
}

/// The server's time for the two commands that fetch the slot map, and the size of the answers. The
/// server knows `masters` masters with one replica each. The other nodes do not exist.
async fn map(masters: usize) -> (f64, f64) {
    let settings = ServerSettings { cluster: true, ..ServerSettings::default() }
        .line("cluster-node-timeout 3600000")
        .line("cluster-require-full-coverage no");
    let server = Server::start(&settings).await.unwrap();
    let own = server.folder().join("nodes.conf");
    server.kill().unwrap();
    while !server.has_ended().unwrap() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fs::write(own, nodes(masters, server.port(), server.bus_port())).unwrap();
    server.restart().await.unwrap();
    let fetch: [Cmd; 2] = [cmd("CLUSTER").arg("SLOTS").clone(), cmd("CLUSTER").arg("INFO").clone()];
    let mut connection = server.connect().await.unwrap();
    server.reset_stats().await.unwrap();
    let sent = async || -> f64 {
        server.info("stats").await.unwrap()["total_net_output_bytes"].parse().unwrap()
    };
    let before = sent().await;
    for _ in 0..FETCHES {
        for command in &fetch {
            let _: redis::Value = command.query_async(&mut connection).await.unwrap();
        }
    }
    let bytes = (sent().await - before) / FETCHES as f64;
    let stats = server.command_stats().await.unwrap();
    let micros: u64 = ["cluster|slots", "cluster|info"].iter().map(|name| stats[*name].usec).sum();
    (micros as f64 / FETCHES as f64, bytes)
}

/// The file in which a node stores its view of the cluster.
fn nodes(masters: usize, port: u16, bus_port: u16) -> String {
    let mut text = String::new();
    for master in 0..masters {
        let (first, last) = (16_384 * master / masters, 16_384 * (master + 1) / masters - 1);
        let (flags, at, bus) = match master {
            0 => ("myself,master", port, bus_port),
            _ => ("master", 20_000 + master as u16, 30_000 + master as u16),
        };
        let epoch = master + 1;
        text += &format!(
            "{master:040x} 127.0.0.1:{at}@{bus} {flags} - 0 0 {epoch} connected {first}-{last}\n"
        );
        let (replica, at, bus) = (masters + master, 22_000 + master, 32_000 + master);
        text += &format!(
            "{replica:040x} 127.0.0.1:{at}@{bus} slave {master:040x} 0 0 {epoch} connected\n"
        );
    }
    text + &format!("vars currentEpoch {masters} lastVoteEpoch 0\n")
}

/// The resident memory of a client, and of each of its connections.
async fn clients() -> (f64, f64) {
    let cluster = Cluster::start_with(ClusterConfig::of(MASTERS, 0)).await.unwrap();
    let before = resident();
    let connected = connections(&cluster).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(cluster.urls()).await.unwrap());
    }
    let (few, at_first) = (connections(&cluster).await - connected, resident());
    for locks in &clients {
        for slot in 0..MASTERS {
            let tag = rwlease::Slot::new((16_384 / MASTERS * slot) as u16).unwrap().hash_tag();
            let lock = locks.rwlock(format!("{{{tag}}}")).unwrap();
            let _ = lock.write().await.unwrap().release().await.unwrap();
        }
    }
    let (all, at_last) = (connections(&cluster).await - connected, resident());
    let each = (at_last - at_first) / (all - few);
    ((at_first - before - few * each) / CLIENTS as f64, each)
}

async fn connections(cluster: &Cluster) -> f64 {
    let mut connected = 0.0;
    for node in cluster.nodes() {
        connected +=
            node.info("clients").await.unwrap()["connected_clients"].parse::<f64>().unwrap();
    }
    connected
}

/// This process's memory in bytes.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) * 1024.0
}

/// The server's processor time, in µs.
async fn processor_time(server: &Server) -> f64 {
    let used = server.info("cpu").await.unwrap();
    let part = |name: &str| used[name].parse::<f64>().unwrap();
    (part("used_cpu_sys") + part("used_cpu_user")) * 1e6
}
