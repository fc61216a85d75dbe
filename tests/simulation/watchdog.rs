//! Prints the seed of a run that does not end. Nothing else stops a script, or a task that never
//! waits.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};
use std::{process, thread};

/// The longest time that a run may take. A run usually takes less than a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// The seeds and the start times of the runs under way.
static RUNNING: Mutex<BTreeMap<u64, (u64, Instant)>> = Mutex::new(BTreeMap::new());

/// Watches a run until it is dropped.
#[derive(Debug)]
pub struct Watch(u64);

/// Aborts this process if the run of this seed takes too long.
pub fn watch(seed: u64) -> Watch {
    static STARTED: Once = Once::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    STARTED.call_once(|| drop(thread::spawn(look_after_all)));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    RUNNING.lock().unwrap().insert(number, (seed, Instant::now()));
    Watch(number)
}

impl Drop for Watch {
    fn drop(&mut self) {
        RUNNING.lock().unwrap().remove(&self.0);
    }
}

fn look_after_all() {
    loop {
        thread::sleep(Duration::from_millis(500));
        let running = RUNNING.lock().unwrap();
        let late = running.values().find(|(_, started)| started.elapsed() > PATIENCE);
        if let Some((seed, _)) = late {
            // Bypasses the tests' capture.
            let _ = writeln!(stdout(), "\nthis run does not end: seed {seed}");
            process::abort();
        }
    }
}
