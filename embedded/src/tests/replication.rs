//! Replicas that lag, and what `WAIT` counts.

use rwlease_core::resp::RespValue;
use rwlease_core::slot::Slot;

use super::{at_once, text, words};
use crate::link::CommandLink;
use crate::{EmbeddedCluster, WaitSemantics};

const KEY: &str = "key";

/// The shard of the key, in an engine whose time stands still.
struct Shard {
    engine: EmbeddedCluster,
    master: usize,
}

impl Shard {
    fn new(covers: WaitSemantics, replicas: u16) -> Shard {
        let engine =
            EmbeddedCluster::builder().replicas(replicas).wait_semantics(covers).manual_time();
        let engine = engine.build();
        let master = engine.faults().master_of(Slot::of(KEY));
        Shard { engine, master }
    }

    fn connect(&self) -> Session {
        let address = &self.engine.addresses()[self.master];
        Session(self.engine.connect(address).unwrap())
    }

    fn replicas(&self) -> Vec<usize> {
        self.engine.faults().replicas(self.master)
    }

    fn hold_back(&self) {
        let faults = self.engine.faults();
        faults.replicas(self.master).into_iter().for_each(|it| faults.lag_replica(it));
    }

    fn catch_up(&self) {
        let faults = self.engine.faults();
        faults.replicas(self.master).into_iter().for_each(|it| faults.sync_replica(it));
    }

    /// Promotes a replica, and returns the value that it has.
    fn promoted_value(&self, lose: usize) -> RespValue {
        let new = self.engine.faults().promote(self.master, lose).unwrap();
        self.engine.query(new, &words(&["GET", KEY]))
    }
}

struct Session(CommandLink);

impl Session {
    fn call(&self, command: &[&str]) -> RespValue {
        at_once(super::call(&self.0, words(command))).unwrap()
    }

    fn set(&self, value: &str) {
        assert_eq!(self.call(&["SET", KEY, value]), text("OK"));
    }

    fn wait(&self) -> i64 {
        match self.call(&["WAIT", "1", "100"]) {
            RespValue::Int(replicas) => replicas,
            other => panic!("{other:?}"),
        }
    }
}

const BOTH: [WaitSemantics; 2] = [WaitSemantics::AllWrites, WaitSemantics::OwnWrites];

#[test]
fn replicas_confirm_what_they_have() {
    for covers in BOTH {
        let shard = Shard::new(covers, 2);
        let session = shard.connect();
        session.set("1");
        assert_eq!(session.wait(), 2);
        shard.engine.faults().lag_replica(shard.replicas()[0]);
        assert_eq!(session.wait(), 2, "nothing was written since");
        session.set("2");
        assert_eq!(session.wait(), 1);
        shard.hold_back();
        session.set("3");
        assert_eq!(session.wait(), 0);
        shard.engine.faults().sync_replica(shard.replicas()[1]);
        assert_eq!(session.wait(), 1);
        shard.catch_up();
        assert_eq!(session.wait(), 2);
    }
}

#[test]
fn a_write_of_the_same_value_is_a_write_and_a_deletion_of_nothing_is_none() {
    let shard = Shard::new(WaitSemantics::OwnWrites, 1);
    shard.connect().call(&["HSET", "{key}h", "field", "1"]);
    shard.hold_back();
    shard.connect().set("noise");
    for (command, confirmed) in [
        (&["HDEL", "{key}h", "other"][..], 1),
        (&["HGET", "{key}h", "field"], 1),
        (&["HSET", "{key}h", "field", "1"], 0),
    ] {
        let session = shard.connect();
        session.call(command);
        assert_eq!(session.wait(), confirmed, "{command:?}");
    }
}

#[test]
fn wait_after_read_on_new_connection_differs_by_server() {
    for (covers, after_a_look) in [(WaitSemantics::AllWrites, 0), (WaitSemantics::OwnWrites, 1)] {
        let shard = Shard::new(covers, 1);
        shard.hold_back();
        let writes = shard.connect();
        writes.set("1");
        assert_eq!(writes.wait(), 0);
        let looks = shard.connect();
        assert_eq!(looks.wait(), 1, "it covers nothing yet");
        assert_eq!(looks.call(&["EVAL", "return redis.call('GET', KEYS[1])", "1", KEY]), text("1"));
        assert_eq!(looks.wait(), after_a_look, "{covers:?}");
        assert_eq!(writes.wait(), 0, "what others do changes nothing for it");
        looks.call(&["EVAL", "return redis.call('SET', KEYS[1], '2')", "1", KEY]);
        assert_eq!(looks.wait(), 0);
    }
}

#[test]
fn a_replica_that_takes_over_has_what_it_acknowledged() {
    for covers in BOTH {
        let shard = Shard::new(covers, 1);
        let session = shard.connect();
        session.set("1");
        assert_eq!(session.wait(), 1);
        session.set("2");
        session.set("3");
        assert_eq!(shard.promoted_value(100), text("1"));
        let refused = session.call(&["WAIT", "1", "100"]);
        assert!(matches!(refused, RespValue::Error(_)), "a replica has none to wait for");
    }
}

#[test]
fn a_replica_that_lags_takes_over_with_what_it_had() {
    let shard = Shard::new(WaitSemantics::OwnWrites, 1);
    let session = shard.connect();
    session.set("1");
    shard.hold_back();
    session.set("2");
    assert_eq!(session.wait(), 0);
    shard.catch_up();
    shard.hold_back();
    session.set("3");
    for number in 0..5_000 {
        session.set(&number.to_string());
    }
    assert_eq!(shard.promoted_value(0), text("2"));
}

/// It does not know the new master, and has none of its writes.
#[test]
fn a_replica_that_lags_is_not_counted_by_another_master() {
    let mut shard = Shard::new(WaitSemantics::OwnWrites, 2);
    let session = shard.connect();
    session.set("1");
    let replicas = shard.replicas();
    shard.engine.faults().lag_replica(replicas[1]);
    session.set("2");
    shard.engine.faults().isolate(shard.master);
    let new = shard.engine.faults().promote(shard.master, 0).unwrap();
    assert_eq!(new, replicas[0]);
    shard.master = new;
    let session = shard.connect();
    assert_eq!(session.wait(), 0);
    shard.catch_up();
    session.set("3");
    assert_eq!(session.wait(), 1);
    assert_eq!(shard.promoted_value(100), text("3"));
}

#[test]
fn a_replica_that_stands_still_lags_and_one_that_is_dead_is_not_connected() {
    let shard = Shard::new(WaitSemantics::OwnWrites, 1);
    let session = shard.connect();
    session.set("1");
    let replica = shard.replicas()[0];
    shard.engine.faults().pause(replica);
    assert_eq!(session.wait(), 1, "it had this");
    session.set("2");
    assert_eq!(session.wait(), 0);
    assert_eq!(shard.connect().wait(), 1, "it is connected");
    shard.engine.faults().resume(replica);
    assert_eq!(session.wait(), 1);
    shard.engine.faults().stop(replica);
    assert_eq!(shard.connect().wait(), 0);
}

#[test]
fn replicas_of_an_isolated_master_confirm_nothing_and_catch_up_when_it_rejoins() {
    for covers in BOTH {
        let shard = Shard::new(covers, 2);
        let session = shard.connect();
        session.set("before");
        assert_eq!(session.wait(), 2);
        shard.engine.faults().isolate(shard.master);
        assert_eq!(session.wait(), 0, "it hears nothing of what they have");
        session.set("alone");
        shard.engine.faults().lag_replica(shard.replicas()[1]);
        shard.engine.faults().rejoin(shard.master);
        assert_eq!(session.wait(), 1, "{covers:?}: one lags");
        shard.catch_up();
        assert_eq!(session.wait(), 2);
        assert_eq!(shard.promoted_value(0), text("alone"));
    }
}

#[test]
fn a_replica_that_replaces_an_isolated_master_has_what_that_had_before() {
    let mut shard = Shard::new(WaitSemantics::OwnWrites, 2);
    let session = shard.connect();
    session.set("before");
    shard.engine.faults().isolate(shard.master);
    session.set("alone");
    shard.catch_up(); // it cannot
    let old = shard.master;
    shard.master = shard.engine.faults().promote(old, 0).unwrap();
    let session = shard.connect();
    assert_eq!(session.call(&["GET", KEY]), text("before"));
    session.set("after");
    assert_eq!(session.wait(), 1, "the other replica follows the new master");
    shard.engine.faults().rejoin(old);
    assert_eq!(session.wait(), 2);
}

#[test]
fn an_isolated_replica_is_neither_counted_nor_promoted_until_it_rejoins() {
    let shard = Shard::new(WaitSemantics::AllWrites, 2);
    let session = shard.connect();
    let replicas = shard.replicas();
    shard.engine.faults().isolate(replicas[0]);
    session.set("1");
    assert_eq!(session.wait(), 1);
    shard.engine.faults().isolate(replicas[1]);
    assert_eq!(session.wait(), 0);
    assert_eq!(shard.engine.faults().promote(shard.master, 0), None);
    shard.engine.faults().rejoin(replicas[0]);
    assert_eq!(session.wait(), 1);
    assert_eq!(shard.promoted_value(0), text("1"));
}
