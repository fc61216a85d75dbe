//! Random calls: the fast paths do the same as the slow path, and the hash is valid after each
//! call.

use super::super::fixture::{HERE, TAG, id};
use super::bench::Bench;

const NAMES: [&str; 12] = [
    "ann1", "ann2", "ann3", "ann4", "ann5", "bob1", "bob2", "bob3", "bob4", "bob5", "cid1", "cid2",
];

#[test]
fn semaphore_fast_paths_equal_the_slow_path() {
    let given = std::env::var("RWLEASE_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("RWLEASE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..20 {
        let (mut usual, mut whole) = (Bench::new(), Bench::slow_path());
        whole.lab.set_clock(usual.lab.now_us());
        for step in 0..60 {
            let (script, args) = call(&mut random, &mut usual);
            let (one, other) = (usual.send(script, &args), whole.send(script, &args));
            let at = format!("seed {seed}, round {round}, step {step}: {script} {args:?}");
            // A usual release does not read the clock.
            let plain = |answer: &super::super::fixture::Answer| {
                answer.clone().map(|mut reply| {
                    reply.now = 0;
                    reply
                })
            };
            assert_eq!(plain(&one), plain(&other), "{at}");
            // A usual release neither looks for dead holders nor changes the key's life.
            if script == "release" && usual.state() != whole.state() {
                for _ in 0..NAMES.len() {
                    usual.send("grant_waiters", &[HERE]).unwrap();
                    whole.send("grant_waiters", &[HERE]).unwrap();
                }
                if is_idle(&mut usual) && is_idle(&mut whole) {
                    usual.delete();
                    whole.delete();
                }
            }
            let mut states = [&mut usual, &mut whole].map(Bench::state);
            for state in states.iter_mut().flatten() {
                state.flags &= 2; // the other flag may stay when the life is short again
                if state.holders == 0 {
                    state.least = 0; // it has no meaning then
                }
            }
            assert_eq!(states[0], states[1], "{at}");
            let ms = [0, 0, 0, 1, 300, 1_000, 4_000, 11_000][random.usize(..8)];
            usual.lab.pass(ms);
            whole.lab.pass(ms);
            let us = usual.lab.now_us();
            whole.lab.set_clock(us);
        }
    }
}

fn is_idle(bench: &mut Bench) -> bool {
    bench.state().is_none_or(|state| state.holders == 0 && state.queue.is_empty())
}

fn call(random: &mut fastrand::Rng, bench: &mut Bench) -> (&'static str, Vec<String>) {
    let id = id(NAMES[random.usize(..NAMES.len())]);
    let permits = [1, 1, 1, 2, 3, 5, 8][random.usize(..7)].to_string();
    let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
    match random.u32(..20) {
        0..=7 => {
            let limit = if random.u32(..20) == 0 { "9" } else { "8" };
            let lease = ["500", "3000", "90000"][random.usize(..3)];
            ("acquire", words(&[HERE, "0", &id, lease, &permits, limit, TAG]))
        }
        8..=10 => {
            let place = "1000 5000 1000 -";
            ("acquire", words(&[HERE, "0", &id, "3000", &permits, "8", TAG, place]))
        }
        11..=14 => ("release", words(&[HERE, &id])),
        15..=16 => {
            let lease = ["100", "5000", "90000"][random.usize(..3)];
            let (held, token) = bench.held_by(&id).unwrap_or((1, 1));
            // Mostly what it has; else fewer permits or more, or another token.
            let permits = if random.u32(..3) == 0 { permits } else { held.to_string() };
            let token = (token + random.u64(..8) / 7).to_string();
            ("renew", words(&[HERE, &id, lease, &permits, &token]))
        }
        17 => ("release_permits", words(&[HERE, &id, &permits])),
        18 => ("grant_waiters", words(&[HERE])),
        _ => match random.bool() {
            true => ("set_limit", words(&[HERE, "0", "8", "5"])),
            false => ("set_limit", words(&[HERE, "0", "5", "8"])),
        },
    }
}
