//! The published single-hash lock, judged by the same rule: at most one writer, and no reader
//! beside it.

use std::time::Duration;

use fastrand::Rng;
use rwlease::embedded::EmbeddedCluster;

const SCRIPTS: [&str; 4] = [
    include_str!("../support/published/single_hash/acquire_read.lua"),
    include_str!("../support/published/single_hash/acquire_write.lua"),
    include_str!("../support/published/single_hash/release_read.lua"),
    include_str!("../support/published/single_hash/release_write.lua"),
];
const KEY: &[u8] = b"lock";
const TIMEOUTS_MS: [u64; 3] = [10_000, 1_000, 3_000]; // of the key, of a reader, of a writer

/// A user whose clock is slightly off.
#[derive(Debug)]
struct User {
    ahead_ms: u64,
    /// Its hold: whether it writes, and when it acquired the lock by its own clock.
    held: Option<(bool, u64)>,
}

/// The number of steps until two conflicting users hold the lock.
pub fn steps_until_broken(seed: u64, users: usize, most_ahead_ms: u64) -> Option<u64> {
    let mut rng = Rng::with_seed(seed);
    let engine = EmbeddedCluster::builder().standalone().manual_time().build();
    let mut users: Vec<User> =
        (0..users).map(|_| User { ahead_ms: rng.u64(0..=most_ahead_ms), held: None }).collect();
    for step in 1..100_000 {
        engine.advance(Duration::from_millis(rng.u64(1..200)));
        let now = engine.now().as_millis() as u64;
        let at = rng.usize(0..users.len());
        users[at].act(&engine, &mut rng, now);
        let holds = |user: &&User, writes: bool| user.holds(now, writes);
        let writers = users.iter().filter(|user| holds(user, true)).count();
        let readers = users.iter().filter(|user| holds(user, false)).count();
        if writers > 1 || (writers == 1 && readers > 0) {
            return Some(step);
        }
    }
    None
}

impl User {
    fn act(&mut self, engine: &EmbeddedCluster, rng: &mut Rng, now: u64) {
        let mine = now + self.ahead_ms;
        match self.held.take() {
            Some((writes, taken)) => {
                let release = SCRIPTS[if writes { 3 } else { 2 }];
                engine.execute(
                    0,
                    &[b"EVAL", release.as_bytes(), b"1", KEY, taken.to_string().as_bytes()],
                );
            }
            None => {
                let writes = rng.bool();
                let acquire = SCRIPTS[usize::from(writes)];
                let numbers =
                    TIMEOUTS_MS.into_iter().chain([mine]).map(|number| number.to_string());
                let numbers: Vec<String> = numbers.collect();
                let mut words: Vec<&[u8]> = vec![b"EVAL", acquire.as_bytes(), b"1", KEY];
                words.extend(numbers.iter().map(|number| number.as_bytes()));
                if engine.execute(0, &words) == ["1"] {
                    self.held = Some((writes, mine));
                }
            }
        }
    }

    /// A user relies on its hold until its own timeout, by its own clock.
    fn holds(&self, now: u64, writes: bool) -> bool {
        let timeout = TIMEOUTS_MS[if writes { 2 } else { 1 }];
        self.held
            .is_some_and(|(wrote, taken)| wrote == writes && now + self.ahead_ms < taken + timeout)
    }
}
