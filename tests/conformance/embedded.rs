//! The conformance suite over the embedded engine.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::lock_tests;
use conformance::site::Servers;
use futures::FutureExt;
use rwlease::embedded::{EmbeddedCluster, FaultInjector, ServedCommand};
use rwlease::{Client, ClientBuilder, ErrorKind, Slot};
#[cfg(any(
    feature = "native",
    feature = "redis",
    feature = "fred",
    feature = "cluster-async"
))]
use testkit::Backend;
#[cfg(feature = "cluster-async")]
use testkit::{Cluster, ClusterConfig};
use testkit::{Error, Result, SlotMigration};
use tokio::time::sleep;

lock_tests!(two_clients());
conformance::server_tests!(by start);
conformance::server_tests!(by start, with push);

async fn two_clients() -> (Client, Client, EmbeddedCluster) {
    let engine = EmbeddedCluster::new();
    let connect = async || Client::builder().connect_embedded(&engine).await.unwrap();
    (connect().await, connect().await, engine)
}

/// An engine's servers.
struct Embedded {
    engine: EmbeddedCluster,
    faults: FaultInjector,
    /// How often each was sent the text of a script.
    texts: Arc<Mutex<Vec<u64>>>,
}

async fn start(masters: u16, replicas: u16) -> Result<Embedded> {
    let engine = EmbeddedCluster::builder().masters(masters).replicas(replicas).build();
    let texts = Arc::new(Mutex::new(vec![0; usize::from(masters)]));
    let counted = texts.clone();
    engine.set_observer(move |served: &ServedCommand<'_>| {
        let mut texts = counted.lock().unwrap();
        if served.words()[0] == b"EVAL"
            && let Some(texts) = texts.get_mut(served.server())
        {
            *texts += 1;
        }
    });
    Ok(Embedded { faults: engine.faults(), engine, texts })
}

impl Embedded {
    /// Other servers notice this only later.
    fn replace(&self, master: usize) {
        let faults = self.faults.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(1)).await;
            faults.promote(master, 0)
        });
    }
}

impl Servers for Embedded {
    async fn connect(&self, settings: ClientBuilder) -> rwlease::Result<Client> {
        settings.connect_embedded(&self.engine).await
    }

    fn push(&self) -> bool {
        true
    }

    async fn master_of(&self, slot: Slot) -> Result<usize> {
        Ok(self.faults.master_of(slot))
    }

    async fn masters(&self) -> Result<Vec<usize>> {
        let slots = (0..).map_while(Slot::new).step_by(64);
        let masters: BTreeSet<usize> = slots.map(|slot| self.faults.master_of(slot)).collect();
        Ok(masters.into_iter().collect())
    }

    async fn begin_move(&self, slot: Slot, to: usize) -> Result<SlotMigration> {
        let from = self.faults.master_of(slot);
        match self.faults.begin_move(slot, to) {
            true => Ok(SlotMigration { slot: slot.get(), from, to }),
            false => Err(Error::new(format!("{slot} does not move to {to}"))),
        }
    }

    async fn move_keys(&self, step: SlotMigration) -> Result {
        while self.faults.move_key(slot(step)) {}
        Ok(())
    }

    async fn finish_move(&self, step: SlotMigration) -> Result {
        assert!(self.faults.finish_move(slot(step)));
        Ok(())
    }

    /// The source redirects calls for keys that it no longer has.
    async fn has_moved(&self, step: SlotMigration, key: &str) -> Result<bool> {
        let said = self.say(step.from, &["EXISTS", key]).await?;
        Ok(said[0].starts_with("-ASK "))
    }

    async fn fail_over(&self, master: usize) -> Result {
        self.faults.promote(master, 0);
        Ok(())
    }

    async fn kill(&self, master: usize) -> Result {
        self.faults.stop(master);
        self.replace(master);
        Ok(())
    }

    async fn freeze(&self, master: usize) -> Result {
        self.faults.pause(master);
        self.replace(master);
        Ok(())
    }

    async fn thaw(&self, server: usize) -> Result {
        self.faults.resume(server);
        Ok(())
    }

    async fn storm(&self, rounds: usize, pause: Duration) -> Result {
        for _ in 0..rounds {
            for master in self.masters().await? {
                self.faults.kill_connections(master);
            }
            sleep(pause).await;
        }
        Ok(())
    }

    async fn flush_scripts(&self) -> Result {
        for master in self.masters().await? {
            self.faults.flush_scripts(master);
        }
        self.texts.lock().unwrap().fill(0);
        Ok(())
    }

    async fn texts_since(&self) -> Result<Vec<u64>> {
        Ok(self.texts.lock().unwrap().clone())
    }

    async fn say(&self, server: usize, words: &[&str]) -> Result<Vec<String>> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        Ok(self.engine.execute(server, &words))
    }
}

fn slot(step: SlotMigration) -> Slot {
    Slot::new(step.slot).expect("one that moves")
}

#[cfg(any(feature = "native", feature = "redis"))]
#[tokio::test]
async fn connect_embedded_with_settings_for_urls_is_refused() {
    let engine = EmbeddedCluster::builder().manual_time().build();
    let connect = async |settings: ClientBuilder| settings.connect_embedded(&engine).await;
    crate::must_refuse(testkit::url_only_settings(), connect).await;
}

/// The connections of the library send changed scripts.
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
#[tokio::test]
async fn changed_scripts_are_sent() {
    let folder = testkit::TempFolder::of_scripts("scripts").unwrap();
    let file = folder.join("inspect.lua");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("redis.call('ECHO', 'changed')\n{text}")).unwrap();
    for backend in [
        #[cfg(feature = "native")]
        Backend::Native,
        #[cfg(feature = "redis")]
        Backend::Redis,
        #[cfg(feature = "fred")]
        Backend::Fred,
    ] {
        let server = testkit::StandaloneServer::start().await.unwrap();
        let settings = Client::builder().scripts_from(&*folder).unwrap();
        let client = backend.connect(settings, &[server.url()]).await.unwrap();
        client.rwlock("changed").unwrap().status().await.unwrap();
        let stats: String = server.run_words("INFO commandstats").await.unwrap();
        assert!(stats.contains("cmdstat_echo:calls=1,"), "{backend:?}: {stats}");
    }
}

/// A connection of the application sends the scripts of the library.
#[cfg(feature = "cluster-async")]
#[tokio::test]
async fn changed_scripts_are_refused_with_a_shared_connection() {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await.unwrap();
    let settings = Client::builder().scripts_from(testkit::project_root().join("lua")).unwrap();
    let connect = async |settings| Backend::ClusterAsync.connect(settings, &cluster.urls()).await;
    crate::must_refuse([("scripts_from", settings)], connect).await;
}

#[test]
fn a_client_needs_a_runtime() {
    let engine = EmbeddedCluster::new();
    let connecting = Client::builder().connect_embedded(&engine);
    let error = connecting.now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert!(error.to_string().contains("tokio"), "{error}");
}

#[cfg(any(feature = "native", feature = "redis"))]
#[test]
fn no_password_is_shown() {
    let builder = Client::builder().urls(["redis://user:secret@127.0.0.1:1"]);
    assert!(!format!("{builder:?}").contains("secret"));
}

#[tokio::test]
async fn time_limits_of_the_router_are_checked() {
    let settings = [
        ("connect_timeout", Client::builder().connect_timeout(Duration::ZERO)),
        ("response_timeout", Client::builder().response_timeout(Duration::ZERO)),
        ("response_timeout", Client::builder().response_timeout(Duration::MAX)),
        ("margin", Client::builder().safety_margin(Duration::MAX)),
    ];
    let engine = EmbeddedCluster::new();
    crate::must_refuse(settings, async |it: ClientBuilder| it.connect_embedded(&engine).await)
        .await;
}
