//! The conformance suite on one server that sentinels watch.

use std::time::Duration;

use redis::{Value, cmd};
use rwlease::{Builder, ErrorKind, Locks, Sentinel, Slot};

use crate::conformance::site::{Servers, word};
use crate::support::{
    Backend, Error, Result, SentinelConfigForTest, SentinelDeployment, SlotMigration,
};

/// Makes the tests of one backend.
macro_rules! sentinel_tests {
    ($module:ident, $backend:expr) => {
        mod $module {
            use super::*;

            lock_tests!(two_clients);
            server_tests! { by watched; on 1 masters with 1:
                scripts_are_sent_where_they_are_unknown
                keys_of_others_are_left_alone
                connections_that_are_cut_cost_nothing
                a_hand_off_needs_no_poll
                a_failover_by_order_loses_no_lock
                a_dead_master_is_replaced
                a_frozen_master_is_left
            }

            async fn two_clients() -> (Locks, Locks, SentinelDeployment) {
                let sentinels = SentinelDeployment::start().await.unwrap();
                let connect =
                    async || $backend.connect(Locks::builder(), &[sentinels.url()]).await.unwrap();
                (connect().await, connect().await, sentinels)
            }

            async fn watched(_: usize, replicas: usize) -> Result<(Backend, SentinelDeployment)> {
                Ok((
                    $backend,
                    SentinelDeployment::start_with(SentinelConfigForTest::of(replicas)).await?,
                ))
            }
        }
    };
}

#[cfg(feature = "native")]
sentinel_tests!(native, Backend::Native);
#[cfg(feature = "redis")]
sentinel_tests!(redis_crate, Backend::Redis);

impl Servers for (Backend, SentinelDeployment) {
    async fn connect(&self, settings: Builder) -> rwlease::Result<Locks> {
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

    async fn begin_move(&self, _: Slot, _: usize) -> Result<SlotMigration> {
        Err(Error::new("no slot moves without a cluster"))
    }

    async fn move_keys(&self, _: SlotMigration) -> Result {
        Err(Error::new("no slot moves without a cluster"))
    }

    async fn finish_move(&self, _: SlotMigration) -> Result {
        Err(Error::new("no slot moves without a cluster"))
    }

    async fn has_moved(&self, _: SlotMigration, _: &str) -> Result<bool> {
        Ok(false)
    }

    async fn fail_over(&self, _: usize) -> Result {
        self.1.fail_over().await.map(drop)
    }

    async fn kill(&self, master: usize) -> Result {
        self.1.server(master).kill()
    }

    async fn freeze(&self, master: usize) -> Result {
        self.1.server(master).freeze()
    }

    async fn thaw(&self, server: usize) -> Result {
        self.1.server(server).thaw()
    }

    async fn storm(&self, rounds: usize, pause: Duration) -> Result {
        assert!(self.1.storm(rounds, pause).await? > 20);
        Ok(())
    }

    async fn flush_scripts(&self) -> Result {
        let master = self.1.server(self.1.master().await?);
        master.run_words::<()>("SCRIPT FLUSH").await?;
        master.reset_stats().await
    }

    async fn texts_since(&self) -> Result<Vec<u64>> {
        Ok(vec![self.1.server(self.1.master().await?).calls("eval").await?])
    }

    async fn say(&self, server: usize, words: &[&str]) -> Result<Vec<String>> {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        Ok(match self.1.server(server).run(&command).await? {
            Value::Array(words) => words.into_iter().map(word).collect::<Result<_>>()?,
            single => vec![word(single)?],
        })
    }
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let of = |urls: &[&str]| Locks::builder().servers(urls);
    let named = || Sentinel::new("mymaster").node("127.0.0.1:1");
    let sentinel = |sentinel| Locks::builder().sentinel(sentinel);
    for (settings, why) in [
        (of(&["redis+sentinel://127.0.0.1:1"]), "URL of sentinels"),
        (of(&["redis+sentinel://127.0.0.1:1/a", "redis://127.0.0.1:1"]), "not both"),
        (of(&["redis+sentinel://127.0.0.1:1/a", "redis+sentinel://127.0.0.1:2/b"]), "differ"),
        (of(&["redis+sentinel://127.0.0.1:1/a"]).sentinel(named()), "not both"),
        (sentinel(Sentinel::new("mymaster")), "no sentinel was named"),
        (sentinel(Sentinel::new("").node("127.0.0.1:1")), "no name"),
        (sentinel(Sentinel::new("my master").node("127.0.0.1:1")), "a space"),
        (sentinel(Sentinel::new("mymaster").node("127.0.0.1:x")), "`host:port`"),
        (sentinel(named()).tls_roots("PEM"), "certificates"),
    ] {
        let error = settings.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    let two = of(&["redis+sentinel://127.0.0.1:1/a", "redis+sentinel://127.0.0.1:2/a"]);
    assert_eq!(two.connect().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let secret = format!("{:?}", of(&["redis+sentinel://user:secret@s/a"]));
    assert!(!secret.contains("secret"), "{secret}");
    let parsed: Sentinel = "redis+sentinel://user:secret@s/a".parse().unwrap();
    assert!(!format!("{parsed:?}").contains("secret"), "{parsed:?}");
}
