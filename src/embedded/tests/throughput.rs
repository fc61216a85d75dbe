//! How fast scripts run. The speed is not asserted. Run it by `cargo test --release --features
//! embedded throughput -- --ignored --nocapture`.

#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use super::words;
use crate::backend::RespValue;
use crate::embedded::EmbeddedCluster;

const SCRIPT: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local lock = redis.call('HMGET', KEYS[1], 'version', 'fence', 'until', 'writer', 'readers', 'read_min')
    redis.call('HSET', KEYS[1], 'version', '1', 'writer', ARGV[1], 'fence', string.format('%.0f', (lock[2] or 0) + 1))
    redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + 30000))
    redis.call('HSET', KEYS[1], 'r:' .. ARGV[1], string.format('%.0f', now))
    redis.call('HGET', KEYS[1], 'r:' .. ARGV[1])
    redis.call('HDEL', KEYS[1], 'r:' .. ARGV[1])
    redis.call('PTTL', KEYS[1])
    return {now, 'granted', 0}";

#[test]
#[ignore = "a measurement"]
fn throughput_of_a_script_of_eight_calls() {
    const RUNS: usize = 400_000;
    for builder in [EmbeddedCluster::builder().standalone(), EmbeddedCluster::builder().masters(1)]
    {
        let engine = builder.manual_time().build();
        let RespValue::String(digest) = engine.query(0, &words(&["SCRIPT", "LOAD", SCRIPT])) else {
            panic!("not loaded");
        };
        let key = |number| format!("rwlease:order:{{{number}}}");
        let call = |key: String| {
            words(&[b"EVALSHA", &*digest, b"1", key.as_bytes(), b"master-of-it-0001"])
        };
        let commands: Vec<_> = (0..1000).map(|number| call(key(number))).collect();
        let start = Instant::now();
        for command in commands.iter().cycle().take(RUNS) {
            assert!(matches!(engine.query(0, command), RespValue::Array(_)));
        }
        let rate = RUNS as f64 / start.elapsed().as_secs_f64();
        println!("{rate:.0} scripts a second, {:?}", engine.script_stats());
    }
}
