//! What the workers did, from their logs: one line an event, and each hold assembled from its
//! lines.
//!
//! `<ns> R <id> <name> r|w`: requested; for permits of a semaphore `<permits>/<limit>` instead of
//! the mode. `G <id> <token> <deadline> own|cached`: granted, and believed until the deadline
//! (never, if the guard came too late); `cached` by a cached handle, which may not have called the
//! server. `D <id> <deadline>`: renewed. `K <id> <permits>`: keeps that many, and is about to
//! release the others. `L <id>`: the loss was noticed. `W <id> <sequence>`, `V <id>`: a write was
//! accepted by the store, or refused. `E <id> held|lost`: the release is about to be called. `X
//! <id> <outcome>`: its result. `N <id>`: a try was told that the lock is not available. `F <id>
//! <kind> <text>`: nothing was granted. `Z <ms>`: the runtime was blocked for that long until now.
//! `T <tasks>`: so many tasks live in the runtime.
//! Times are of CLOCK_BOOTTIME, which all processes of a machine share.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::time::ClockId;

use testkit::{Error, Result};

/// Nanoseconds of the machine's clock.
pub type Nanos = u64;

/// The clock that leases are counted by.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(CLOCK);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How far the clock that servers use is ahead of the clock of leases, in nanoseconds.
pub fn wall_clock_lead() -> i64 {
    let wall = rustix::time::clock_gettime(ClockId::Realtime);
    wall.tv_sec * 1_000_000_000 + wall.tv_nsec - now() as i64
}

/// The log of one worker, which survives it.
#[derive(Debug)]
pub struct Log(Mutex<(File, u64)>);

impl Log {
    pub fn create(path: &Path) -> Result<Log> {
        Ok(Log(Mutex::new((File::create(path)?, 0))))
    }

    /// Requests are numbered in the order of the lines.
    pub fn request(&self, name: usize, what: impl Display) -> u64 {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = log.1;
        log.1 += 1;
        // A log that cannot be written shows as a history with holes.
        let _ = log.0.write_all(format!("{} R {id} {name} {what}\n", now()).as_bytes());
        id
    }

    /// An event at a moment that was noted before.
    pub fn note(&self, at: Nanos, event: std::fmt::Arguments<'_>) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = log.0.write_all(format!("{at} {event}\n").as_bytes());
    }
}

/// One request for a lock, and its outcome.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    pub worker: usize,
    pub name: usize,
    /// Holders of permits are like readers, apart from the limit.
    pub is_write: bool,
    pub permits: Option<Permits>,
    pub requested: Nanos,
    pub granted: Option<Grant>,
    /// When its holder noticed that it was lost.
    pub lost: Option<Nanos>,
    /// When its holder called the release, and whether it still relied on the lock.
    pub ended: Option<(Nanos, bool)>,
    pub released: Option<(Nanos, Outcome)>,
    /// When the try was refused.
    pub refused: Option<Nanos>,
    /// The kind and the time of the error.
    pub failed: Option<(Nanos, String)>,
    /// The writes, each with its place in the store's own order if the store accepted it.
    pub writes: Vec<Option<u64>>,
    /// From when on it relied on fewer permits, and on how many.
    pub kept: Vec<(Nanos, u32)>,
}

/// The permits that are requested, and the semaphore's limit.
#[derive(Clone, Copy, Debug)]
pub struct Permits {
    pub wanted: u32,
    pub limit: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub at: Nanos,
    pub token: u64,
    /// Until when the holder relied on the lock, by its last logged event.
    pub deadline: Nanos,
    /// Whether a cached handle granted it: readers of one process may share a token, and the
    /// process may keep a released lock for a while.
    pub cached: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Released,
    AlreadyLost,
    Unknown,
    Failed,
}

/// The history of a run.
#[derive(Debug, Default)]
pub struct History {
    workers: Vec<Source>,
}

#[derive(Debug, Default)]
struct Source {
    holds: Vec<Hold>,
    /// When the process was killed.
    killed: Option<Nanos>,
    /// How long its runtime was blocked, each time.
    stalls: Vec<Nanos>,
    /// How many tasks lived in its runtime, by its last word.
    tasks: u64,
    /// The times of its events, nearly in order.
    moments: Vec<Nanos>,
    log: Option<Tail>,
}

impl History {
    /// Adds a worker, and returns its number.
    pub fn add(&mut self, log: Option<PathBuf>) -> usize {
        self.workers.push(Source {
            log: log.map(|path| Tail { path, place: 0, rest: String::new() }),
            ..Source::default()
        });
        self.workers.len() - 1
    }

    pub fn killed(&mut self, worker: usize, at: Nanos) {
        self.workers[worker].killed = Some(at);
    }

    /// The last time at which a worker is known to have lived.
    pub fn lived_until(&self, worker: usize) -> Nanos {
        let source = &self.workers[worker];
        source
            .killed
            .unwrap_or_else(|| source.moments.iter().rev().take(64).copied().max().unwrap_or(0))
    }

    /// Whether a worker logged an event between two moments. If not, it may have been stopped.
    pub fn was_awake(&self, worker: usize, from: Nanos, until: Nanos) -> bool {
        self.workers[worker].moments.iter().any(|&at| at > from && at < until)
    }

    pub fn when_killed(&self, worker: usize) -> Option<Nanos> {
        self.workers[worker].killed
    }

    pub fn stalls(&self, worker: usize) -> &[Nanos] {
        &self.workers[worker].stalls
    }

    /// How many tasks live in its runtime, by its last word.
    pub fn tasks(&self, worker: usize) -> u64 {
        self.workers[worker].tasks
    }

    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.workers.iter().flat_map(|source| &source.holds)
    }

    /// The requests since then.
    pub fn recent(&self, since: Nanos) -> impl Iterator<Item = &Hold> {
        let is_recent = move |hold: &&Hold| hold.requested >= since;
        self.workers.iter().flat_map(move |source| source.holds.iter().rev().take_while(is_recent))
    }

    /// Reads what was written since the last call.
    pub fn read(&mut self) -> Result {
        for worker in 0..self.workers.len() {
            let Some(tail) = &mut self.workers[worker].log else {
                continue;
            };
            for line in tail.lines()?.lines() {
                self.apply(worker, line)?;
            }
        }
        Ok(())
    }

    /// One line of a worker.
    pub fn apply(&mut self, worker: usize, line: &str) -> Result {
        let source = &mut self.workers[worker];
        source
            .apply(worker, line)
            .ok_or_else(|| Error::new(format!("not a line of worker {worker}: {line}")))
    }
}

impl Source {
    fn apply(&mut self, worker: usize, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let at: Nanos = words.next()?.parse().ok()?;
        self.moments.push(at);
        let event = words.next()?;
        let number: u64 = words.next()?.parse().ok()?;
        if event == "Z" {
            self.stalls.push(number);
            return Some(());
        }
        if event == "T" {
            self.tasks = number;
            return Some(());
        }
        if event == "R" {
            let name = words.next()?.parse().ok()?;
            let what = words.next()?;
            let permits = what.split_once('/').map(Permits::parse);
            let permits = if let Some(permits) = permits { Some(permits?) } else { None };
            let is_write = what == "w";
            let request = Hold { worker, name, is_write, requested: at, ..Hold::default() };
            self.holds.push(Hold { permits, ..request });
            return (self.holds.len() as u64 == number + 1).then_some(());
        }
        let hold = self.holds.get_mut(number as usize)?;
        match event {
            "G" => {
                let (token, deadline) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let cached = words.next() == Some("cached");
                hold.granted = Some(Grant { at, token, deadline, cached });
            }
            "D" => hold.granted.as_mut()?.deadline = words.next()?.parse().ok()?,
            "K" => hold.kept.push((at, words.next()?.parse().ok()?)),
            "L" => hold.lost = Some(at),
            "W" => hold.writes.push(Some(words.next()?.parse().ok()?)),
            "V" => hold.writes.push(None),
            "E" => hold.ended = Some((at, words.next()? == "held")),
            "X" => hold.released = Some((at, Outcome::parse(words.next()?))),
            "N" => hold.refused = Some(at),
            "F" => hold.failed = Some((at, words.next()?.to_owned())),
            _ => return None,
        }
        Some(())
    }
}

impl Permits {
    fn parse((wanted, limit): (&str, &str)) -> Option<Permits> {
        Some(Permits { wanted: wanted.parse().ok()?, limit: limit.parse().ok()? })
    }
}

impl Outcome {
    fn parse(word: &str) -> Outcome {
        match word {
            "Released" => Outcome::Released,
            "AlreadyLost" => Outcome::AlreadyLost,
            "Unknown" => Outcome::Unknown,
            _ => Outcome::Failed,
        }
    }
}

/// A file that grows. An incomplete line is read once it is complete.
#[derive(Debug)]
struct Tail {
    path: PathBuf,
    place: u64,
    rest: String,
}

impl Tail {
    fn lines(&mut self) -> Result<String> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(self.place))?;
        let mut text = std::mem::take(&mut self.rest);
        self.place += file.read_to_string(&mut text)? as u64;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.rest = text.split_off(whole);
        Ok(text)
    }
}
