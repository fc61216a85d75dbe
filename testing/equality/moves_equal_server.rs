//! While a slot moves, the engine answers as a real cluster does: both take the same steps.

use std::sync::Arc;

use rwlease::Slot;
use rwlease::embedded::EmbeddedCluster;
use rwlease::testing::{CommandConnection, embedded_connector};
use rwlease_core::resp::{Command, RespValue};
use testkit::{Cluster, ClusterConfig, SlotMigration};
use tokio::runtime::{Builder, Runtime};

use crate::at_once;
use crate::judge::Judge;
use crate::real::RealConnection;

/// Two masters with half of the slots each, real ones and embedded ones. The slot of `{t}` is the
/// first one's.
struct Pair {
    runtime: Runtime,
    cluster: Cluster,
    real: [RealConnection; 2],
    judge: Judge,
    engine: EmbeddedCluster,
    embedded: [Arc<dyn CommandConnection>; 2],
    step: &'static str,
    wrong: Vec<String>,
}

const SOURCE: usize = 0;
const TARGET: usize = 1;

#[test]
fn a_moving_slot_is_answered_for_as_by_a_cluster() {
    let tag = (0..).map(|number| number.to_string()).find(|tag| Slot::of(tag).get() < 8192);
    let tag = tag.unwrap();
    let slot = Slot::of(&tag);
    let foreign =
        (0..).map(|number| format!("far{number}")).find(|key| Slot::of(key).get() >= 8192);
    let [first, second, third] = ["a", "b", "c"].map(|key| format!("{{{tag}}}{key}"));
    let (first, second, third, foreign) =
        (first.as_str(), second.as_str(), third.as_str(), &*foreign.unwrap());
    let channel = format!("{{{tag}}}channel");
    let channel = channel.as_str();

    const HGET: &str = "return redis.call('HGET', KEYS[1], 'f')";
    const HSET: &str = "return redis.call('HSET', KEYS[1], 'f', 'v')";
    const GET_OTHER: &str = "return redis.call('HGET', ARGV[1], 'f')";
    const TRY_OTHER: &str = "return redis.pcall('HGET', ARGV[1], 'f')";
    const DEL_OTHERS: &str = "return redis.call('DEL', ARGV[1], ARGV[2])";
    const FIND_OTHERS: &str = "return redis.call('EXISTS', ARGV[1], ARGV[2])";
    const SET_OTHER: &str =
        "redis.call('HSET', KEYS[1], 'g', 'v') return redis.call('HSET', ARGV[1], 'f', 'v')";
    const ANEW: &str = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'f', 'v')";
    const EMPTIED: &str =
        "redis.call('HDEL', KEYS[1], 'f') return redis.call('HSET', KEYS[1], 'f', 'v')";
    const PUBLISH: &str = "return redis.call('SPUBLISH', ARGV[1], 'x')";
    const UNKNOWN: &str = "ffffffffffffffffffffffffffffffffffffffff";

    let mut pair = Pair::start();

    pair.step = "before the move";
    for server in [SOURCE, TARGET] {
        pair.query(server, &["EVAL", HSET, "1", first]);
        pair.query(server, &["EVAL", HGET, "1", first]);
        pair.query(server, &["HGET", first, "f"]);
        pair.query(server, &["EVALSHA", UNKNOWN, "1", first]);
        pair.query(server, &["EVAL", HGET, "2", first, second]);
        pair.query(server, &["EVAL", HGET, "2", first, foreign]);
        pair.query(server, &["DEL", first, foreign]);
        pair.query(server, &["EVAL", GET_OTHER, "0", first]);
        pair.query(server, &["EVAL", GET_OTHER, "1", first, foreign]);
        pair.query(server, &["EVAL", SET_OTHER, "1", first, foreign]);
        pair.query(server, &["EVAL", GET_OTHER, "1", foreign, first]);
        if pair.judge.is_same_version {
            // Valkey 9.1 refuses every script after this one.
            pair.query(server, &["EVAL", DEL_OTHERS, "0", first, foreign]);
        }
        pair.query(server, &["EVAL", FIND_OTHERS, "0", first, second]);
        pair.query(server, &["EVAL", TRY_OTHER, "0", first]);
        pair.query(server, &["SPUBLISH", channel, "x"]);
        pair.query(server, &["EVAL", PUBLISH, "0", channel]);
        pair.query(server, &["EVAL", PUBLISH, "1", first, channel]);
        pair.query(server, &["ASKING"]);
        pair.query(server, &["EVAL", HGET, "1", first]);
        pair.query(server, &["EVAL", "return 1", "0"]);
        pair.query(server, &["CLUSTER", "KEYSLOT", first]);
        pair.query(server, &["SCAN", "0"]);
    }

    pair.step = "while it moves, two keys at the source";
    for key in [first, third] {
        pair.query(SOURCE, &["EVAL", HSET, "1", key]);
    }
    let step = pair.open(slot);
    for server in [SOURCE, TARGET] {
        for asking in [false, true] {
            for command in [
                &["EVAL", HGET, "1", first][..],
                &["EVALSHA", UNKNOWN, "1", first],
                &["EVALSHA", UNKNOWN, "1", second],
                &["EVAL", HGET, "1", second],
                &["EVAL", HSET, "1", second],
                &["EVAL", HGET, "2", first, second],
                &["EVAL", HGET, "2", second, first],
                &["EVAL", HGET, "2", second, second],
                &["EVAL", GET_OTHER, "1", first, second],
                &["EVAL", GET_OTHER, "1", second, first],
                &["EVAL", SET_OTHER, "1", second, second],
                &["EVAL", GET_OTHER, "0", first],
                &["EVAL", GET_OTHER, "0", second],
                &["EVAL", EMPTIED, "1", third],
                &["EVAL", ANEW, "1", second],
                &["EVAL", EMPTIED, "1", second],
                &["EXISTS", first, second],
                &["DEL", second],
                &["SPUBLISH", channel, "x"],
                &["EVAL", PUBLISH, "0", channel],
                &["EVAL", PUBLISH, "1", first, channel],
                &["EVAL", PUBLISH, "1", second, channel],
            ] {
                if asking {
                    pair.query(server, &["ASKING"]);
                }
                pair.query(server, command);
            }
        }
    }
    pair.query(TARGET, &["ASKING"]);
    pair.query(TARGET, &["PING"]);
    pair.query(TARGET, &["EVAL", HGET, "1", first]); // ASKING was for PING

    pair.step = "the key has moved";
    pair.query(TARGET, &["ASKING"]);
    pair.query(TARGET, &["EVAL", "return redis.call('HSET', KEYS[1], 'f', 'moved')", "1", first]);
    pair.close(slot, step);
    for server in [SOURCE, TARGET] {
        pair.query(server, &["EVAL", HGET, "1", first]);
        pair.query(server, &["EVAL", HGET, "1", second]);
        pair.query(server, &["EVAL", SET_OTHER, "1", second, first]);
        pair.query(server, &["SPUBLISH", channel, "x"]);
        pair.query(server, &["ASKING"]);
        pair.query(server, &["EVAL", HGET, "1", first]);
    }
    assert!(pair.wrong.is_empty(), "{} differ:\n{}", pair.wrong.len(), pair.wrong.join("\n"));
}

impl Pair {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let cluster = runtime.block_on(Cluster::start_with(ClusterConfig::of(2, 0))).unwrap();
        let mut real = [SOURCE, TARGET].map(|node| RealConnection::to(cluster.node(node)));
        let judge = Judge::of(&mut real[SOURCE]);
        let engine = EmbeddedCluster::builder().masters(2).replicas(0).build();
        let connector = embedded_connector(&engine);
        let addresses = engine.addresses();
        let embedded = [SOURCE, TARGET]
            .map(|server| at_once(connector.connect(&addresses[server], None)).unwrap());
        Pair { runtime, cluster, real, judge, engine, embedded, step: "", wrong: Vec::new() }
    }

    fn query(&mut self, server: usize, command: &[&str]) {
        let expected = self.real[server].query(command);
        let expected = self.essence(expected);
        let actual = at_once(self.embedded[server].call(Command::from_words(command))).unwrap();
        let actual = self.essence(actual);
        if expected != actual {
            let command = command.join(" ");
            let step = self.step;
            let line = format!(
                "{step}, server {server}: {command}\n   server {expected:?}\n   engine {actual:?}"
            );
            self.wrong.push(line);
        }
    }

    /// The part of a reply that must be equal, with the servers' numbers in place of their
    /// addresses.
    fn essence(&self, reply: RespValue) -> RespValue {
        let mut error = match self.judge.essence(reply) {
            RespValue::Error(error) => error,
            other => return other,
        };
        for (index, address) in self.engine.addresses().iter().enumerate() {
            let real = format!("127.0.0.1:{}", self.cluster.node(index).port());
            let name = format!("server {index}");
            error.message =
                error.message.replace(&real, &name).replace(&address.to_string(), &name);
        }
        RespValue::Error(error)
    }

    fn open(&mut self, slot: Slot) -> SlotMigration {
        assert!(self.engine.faults().begin_move(slot, TARGET));
        let opening = self.cluster.begin_migration(slot.get(), TARGET);
        self.runtime.block_on(opening).unwrap()
    }

    fn close(&mut self, slot: Slot, step: SlotMigration) {
        let moving = self.cluster.replace_keys(step);
        assert_eq!(self.runtime.block_on(moving).unwrap(), 1);
        self.runtime.block_on(self.cluster.finish_migration(step)).unwrap();
        assert!(self.engine.faults().finish_move(slot));
    }
}
