//! Compares a pure step with the served engine.

use std::time::Duration;

use bytes::Bytes;
use rwlease::embedded::EmbeddedCluster;
use rwlease::testing::{LockHash, ScriptInput, ScriptStep, Scripts};
use rwlease_core::resp::RespValue;

use crate::engine::Engine;
use crate::random_calls::{Calls, heard_channels};
use crate::side::{CommandServer, Lock};

/// A served call and a pure step from the same state have the same result.
#[test]
fn a_pure_step_does_what_a_served_call_does() {
    let scripts = || Scripts::embedded().iter();
    let mut pure = ScriptStep::new(scripts().map(|script| (script.name(), script.text()))).unwrap();
    let heard: Vec<Bytes> = heard_channels().map(Bytes::from).collect();
    let mut published = 0;
    for seed in 0..20 {
        let cluster = EmbeddedCluster::builder().manual_time();
        let mut engine = Engine::start(cluster, heard_channels());
        let mut calls = Calls::new(seed);
        let mut pauses = fastrand::Rng::with_seed(seed);
        for _ in 0..1_000 {
            engine.cluster.advance(Duration::from_micros(pauses.u64(..300_000)));
            let call = calls.next(engine.cluster.now().as_millis() as u64);
            let [key] = &call.keys[..] else { continue };
            let Some(script) = scripts().find(|script| script.name() == call.script) else {
                continue;
            };
            let is_string =
                ["set_nx/", "client_record/"].iter().any(|of| call.script.starts_with(of));
            if is_string || key == "mutex" {
                continue; // no hash
            }
            let (now, before) = (server_us(&engine), lock_at(&engine, key));
            let args: Vec<&[u8]> = call.args.iter().map(Vec::as_slice).collect();
            let eval = [&b"EVAL"[..], script.text().as_bytes(), b"1", key.as_bytes()];
            let reply = engine.query(&[&eval[..], &args].concat());
            let run = ScriptInput {
                script: call.script,
                key: key.as_bytes(),
                args: &args,
                now,
                subscribed_channels: &heard,
            };
            let ran = pure.run(&before, &run).unwrap();
            assert_eq!(ran.reply, reply, "seed {seed}, {call:?}");
            assert_eq!(ran.lock, lock_at(&engine, key), "seed {seed}, {call:?}");
            let messages = engine.messages();
            published += messages.len();
            assert_eq!(ran.messages, messages, "seed {seed}, {call:?}");
            calls.learn(&call, &reply);
        }
    }
    assert!(published > 100, "{published} messages say too little");
}

/// The server's time in microseconds.
fn server_us(engine: &Engine) -> u64 {
    let RespValue::Array(time) = engine.query(&["TIME"]) else { panic!("no time") };
    let part = |part: &RespValue| match part {
        RespValue::String(digits) => str::from_utf8(digits).unwrap().parse::<u64>().unwrap(),
        other => panic!("{other:?} in a time"),
    };
    part(&time[0]) * 1_000_000 + part(&time[1])
}

fn lock_at(engine: &Engine, key: &str) -> LockHash {
    let lock = Lock::at(engine, key);
    LockHash { fields: lock.printable(), ends: lock.ends }
}
