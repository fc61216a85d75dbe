//! The servers that the tests of [`servers`](super::servers) change.

use std::borrow::Borrow;
use std::time::Duration;

use redis::{Value, cmd};
use rwlease::{Client, ClientBuilder, Slot};

use testkit::{
    Backend, Cluster, ClusterConfig, Error, FailoverMode, Result, SentinelDeployment, Server,
    SlotMigration,
};

/// Servers of a cluster, by their numbers, and the way to connect to them.
pub trait Servers {
    async fn connect(&self, settings: ClientBuilder) -> rwlease::Result<Client>;
    /// Whether they have sharded pub/sub.
    fn push(&self) -> bool;
    async fn master_of(&self, slot: Slot) -> Result<usize>;
    async fn masters(&self) -> Result<Vec<usize>>;

    /// A real server. Embedded ones override each method that calls this.
    fn server(&self, _: usize) -> &Server {
        panic!("the servers are embedded")
    }

    async fn begin_move(&self, slot: Slot, _: usize) -> Result<SlotMigration> {
        Err(Error::new(format!("no cluster moves {slot}")))
    }
    async fn move_keys(&self, step: SlotMigration) -> Result {
        Err(Error::new(format!("no cluster moves {step:?}")))
    }
    async fn finish_move(&self, step: SlotMigration) -> Result {
        Err(Error::new(format!("no cluster moves {step:?}")))
    }
    /// Whether a key is already at the target.
    async fn has_moved(&self, _: SlotMigration, _: &str) -> Result<bool> {
        Ok(false)
    }
    async fn move_slot(&self, slot: Slot, to: usize) -> Result {
        if self.master_of(slot).await? == to {
            return Ok(());
        }
        let step = self.begin_move(slot, to).await?;
        self.move_keys(step).await?;
        self.finish_move(step).await
    }

    /// Lets a replica replace a master, with all its writes.
    async fn fail_over(&self, master: usize) -> Result;
    /// Kills a master. Its replica replaces it some time later.
    async fn kill(&self, master: usize) -> Result {
        self.server(master).kill()
    }
    /// Freezes a master. Its replica replaces it some time later.
    async fn freeze(&self, master: usize) -> Result {
        self.server(master).freeze()
    }
    async fn thaw(&self, server: usize) -> Result {
        self.server(server).thaw()
    }
    /// Closes all connections of clients, repeatedly.
    async fn storm(&self, rounds: usize, pause: Duration) -> Result;

    async fn flush_scripts(&self) -> Result {
        for master in self.masters().await? {
            self.server(master).run_words::<()>("SCRIPT FLUSH").await?;
            self.server(master).reset_stats().await?;
        }
        Ok(())
    }
    /// How often each master was sent the text of a script since the reset.
    async fn texts_since(&self) -> Result<Vec<u64>> {
        let mut texts = Vec::new();
        for master in self.masters().await? {
            texts.push(self.server(master).calls("eval").await?);
        }
        Ok(texts)
    }
    /// A server's answer, as words.
    async fn say(&self, server: usize, words: &[&str]) -> Result<Vec<String>> {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        Ok(match self.server(server).run(&command).await? {
            Value::Array(words) => words.into_iter().map(word).collect::<Result<_>>()?,
            single => vec![word(single)?],
        })
    }
}

/// Starts a cluster, and two clients over that backend.
pub async fn two_clients(backend: Backend) -> (Client, Client, Cluster) {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.expect("a cluster");
    let connect = async |node: usize| {
        let url = cluster.node(node).url();
        backend.connect(Client::builder(), &[url]).await.expect("a client")
    };
    (connect(0).await, connect(1).await, cluster)
}

/// Starts real servers, for that backend.
pub fn real(backend: Backend) -> impl AsyncFn(usize, usize) -> Result<(Backend, Cluster)> {
    async move |masters, replicas| {
        Ok((backend, Cluster::start_with(ClusterConfig::of(masters, replicas)).await?))
    }
}

impl<C: Borrow<Cluster>> Servers for (Backend, C) {
    async fn connect(&self, settings: ClientBuilder) -> rwlease::Result<Client> {
        let url = self.1.borrow().node(self.1.borrow().running()[0]).url();
        self.0.connect(settings, &[url]).await
    }

    fn push(&self) -> bool {
        self.1.borrow().version().has_sharded_pubsub()
    }

    async fn master_of(&self, slot: Slot) -> Result<usize> {
        self.1.borrow().master_of(slot.get()).await
    }

    async fn masters(&self) -> Result<Vec<usize>> {
        self.1.borrow().masters().await
    }

    async fn begin_move(&self, slot: Slot, to: usize) -> Result<SlotMigration> {
        self.1.borrow().begin_migration(slot.get(), to).await
    }

    async fn move_keys(&self, step: SlotMigration) -> Result {
        self.1.borrow().move_keys(step).await.map(drop)
    }

    async fn finish_move(&self, step: SlotMigration) -> Result {
        self.1.borrow().finish_migration(step).await
    }

    async fn has_moved(&self, step: SlotMigration, key: &str) -> Result<bool> {
        let mut asking = redis::pipe();
        asking.cmd("ASKING").ignore().cmd("EXISTS").arg(key);
        let mut connection = self.1.borrow().node(step.to).connect().await?;
        let (is_there,): (bool,) = asking.query_async(&mut connection).await?;
        Ok(is_there)
    }

    async fn fail_over(&self, master: usize) -> Result {
        let replica = self.1.borrow().replicas_of(master).await?[0];
        self.1.borrow().fail_over(replica, FailoverMode::Orderly).await
    }

    async fn storm(&self, rounds: usize, pause: Duration) -> Result {
        assert!(self.1.borrow().kill_clients_repeatedly(rounds, pause).await? > 20);
        Ok(())
    }

    fn server(&self, number: usize) -> &Server {
        self.1.borrow().node(number)
    }
}

fn word(value: Value) -> Result<String> {
    Ok(redis::from_redis_value(value)?)
}

/// A server that sentinels watch, and the backend that connects to it.
#[derive(Debug)]
pub struct SentinelSite(pub Backend, pub SentinelDeployment);

impl Servers for SentinelSite {
    async fn connect(&self, settings: ClientBuilder) -> rwlease::Result<Client> {
        self.0.connect(settings, &[self.1.url()]).await
    }

    fn push(&self) -> bool {
        self.1.server(0).version().has_sharded_pubsub()
    }

    async fn master_of(&self, _: Slot) -> Result<usize> {
        self.1.master().await
    }

    async fn masters(&self) -> Result<Vec<usize>> {
        Ok(vec![self.1.master().await?])
    }

    async fn fail_over(&self, _: usize) -> Result {
        self.1.fail_over().await.map(drop)
    }

    async fn storm(&self, rounds: usize, pause: Duration) -> Result {
        assert!(self.1.storm(rounds, pause).await? > 20);
        Ok(())
    }

    fn server(&self, number: usize) -> &Server {
        self.1.server(number)
    }
}
