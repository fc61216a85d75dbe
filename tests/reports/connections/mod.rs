//! Reports about connections, clusters and sentinels.

use testkit::{PollLimit, Server, ServerSettings};

mod glide_5678;
mod jedis_3309;
mod node_redis_1510;
mod node_redis_932;
mod redis_12798;
mod redis_doc_2420;
mod rueidis_37;
mod rueidis_539;
mod sage_237;
mod samyama_graph_1322;
mod stackexchange_redis_1029;

/// A cluster of one node, which serves every slot.
async fn lone_node(line: &str) -> Server {
    let settings = ServerSettings { cluster: true, ..ServerSettings::default() };
    let node = Server::start(&settings.line(line)).await.unwrap();
    node.run_words::<()>("CLUSTER ADDSLOTSRANGE 0 16383").await.unwrap();
    let wait_limit = PollLimit::new("the cluster to serve");
    while !node.run_words::<String>("CLUSTER INFO").await.unwrap().contains("cluster_state:ok") {
        wait_limit.pause("it does not").await.unwrap();
    }
    node
}

/// Waits until the node lists itself at this port.
async fn until_announced(node: &Server, port: u16) {
    let wait_limit = PollLimit::new("the node to announce the port");
    while !node.run_words::<String>("CLUSTER NODES").await.unwrap().contains(&format!(":{port}@")) {
        wait_limit.pause("it does not").await.unwrap();
    }
}
