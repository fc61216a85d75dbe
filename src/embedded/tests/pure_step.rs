//! Compares a pure step with the served engine.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::random_calls::{Calls, heard_channels};
use crate::backend::{Command, PubSubEvent};
use crate::embedded::script_step::{LISTENER, SERVER, ScriptInput, ScriptStep, lock_at};
use crate::embedded::{EmbeddedCluster, lock};
use crate::protocol::Scripts;

/// A served call and a pure step from the same state have the same result.
#[test]
fn a_pure_step_does_what_a_served_call_does() {
    let scripts = || Scripts::embedded().all().into_iter();
    let mut pure = ScriptStep::new(scripts().map(|script| (script.name(), script.text()))).unwrap();
    let heard: Vec<Bytes> = heard_channels().map(Bytes::from).collect();
    let mut published = 0;
    for seed in 0..20 {
        let engine = EmbeddedCluster::builder().standalone().manual_time().build();
        let (sender, mut notices) = mpsc::unbounded_channel();
        {
            let mut world = lock(&engine.shared.world);
            let subscribers = &mut world.servers[SERVER].subscribers;
            subscribers.connect(LISTENER, sender);
            heard.iter().for_each(|channel| subscribers.subscribe(LISTENER, channel.clone()));
        }
        let mut calls = Calls::new(seed);
        let mut pauses = fastrand::Rng::with_seed(seed);
        for _ in 0..1_000 {
            engine.advance(Duration::from_micros(pauses.u64(..300_000)));
            let call = calls.next(engine.now().as_millis() as u64);
            let [key] = &call.keys[..] else { continue };
            let Some(script) = scripts().find(|script| script.name() == call.script) else {
                continue;
            };
            if call.script.starts_with("mutex/") || key == "mutex" {
                continue; // no hash
            }
            let world = &engine.shared.world;
            let now = lock(world).now(SERVER);
            lock(world).servers[SERVER].store.begin(now / 1000);
            let before = lock_at(world, key.as_bytes());
            let eval = Command::new().arg("EVAL").arg(script.text()).arg("1").arg(key);
            let eval = call.args.iter().fold(eval, |eval, word| eval.arg(word));
            let reply = engine.query(SERVER, &eval);
            let args: Vec<&[u8]> = call.args.iter().map(Vec::as_slice).collect();
            let run = ScriptInput {
                script: call.script,
                key: key.as_bytes(),
                args: &args,
                now,
                subscribed_channels: &heard,
            };
            let ran = pure.run(&before, &run).unwrap();
            assert_eq!(ran.reply, reply, "seed {seed}, {call:?}");
            assert_eq!(ran.lock, lock_at(world, key.as_bytes()), "seed {seed}, {call:?}");
            let mut messages = Vec::new();
            while let Ok(notice) = notices.try_recv() {
                if let PubSubEvent::Message { channel, payload } = notice {
                    messages.push((channel, payload));
                }
            }
            published += messages.len();
            assert_eq!(ran.messages, messages, "seed {seed}, {call:?}");
            calls.learn(&call, &reply);
        }
    }
    assert!(published > 100, "{published} messages say too little");
}
