//! Prints the seed of a run that does not end. Nothing else stops a script, or a task that never
//! waits.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};
use std::{process, thread};

/// The message before the seed of a run that does not end.
pub const STUCK: &str = "this run does not end: seed ";

/// The longest time that a run may take, in ms. A run usually takes less than a second.
static PATIENCE: AtomicU64 = AtomicU64::new(60_000);

/// The seeds and the start times of the runs under way.
static RUNNING: Mutex<BTreeMap<u64, (u64, Instant)>> = Mutex::new(BTreeMap::new());

/// Watches a run until it is dropped.
#[derive(Debug)]
pub struct Watched(u64);

pub fn set_patience(wait_limit: Duration) {
    PATIENCE.store(wait_limit.as_millis() as u64, Ordering::Relaxed);
}

/// Aborts this process if the run of this seed takes too long.
pub fn watch(seed: u64) -> Watched {
    static STARTED: Once = Once::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    STARTED.call_once(|| drop(thread::spawn(look_after_all)));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    RUNNING.lock().unwrap().insert(number, (seed, Instant::now()));
    Watched(number)
}

impl Drop for Watched {
    fn drop(&mut self) {
        RUNNING.lock().unwrap().remove(&self.0);
    }
}

fn look_after_all() {
    loop {
        thread::sleep(Duration::from_millis(500));
        let wait_limit = Duration::from_millis(PATIENCE.load(Ordering::Relaxed));
        let running = RUNNING.lock().unwrap();
        if let Some((seed, _)) =
            running.values().find(|(_, started)| started.elapsed() > wait_limit)
        {
            let _ = writeln!(stdout(), "\n{STUCK}{seed}"); // bypasses the tests' capture
            process::abort();
        }
    }
}
