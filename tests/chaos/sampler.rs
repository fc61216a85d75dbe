//! Samples the machine's clocks during a run. A step of the clock that servers use, or a standstill
//! of the machine, is a suspect when something is wrong.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::ClockId;
use serde_json::{Value, json};

use super::history::{Nanos, now};
use crate::support::Result;

const EVERY: Duration = Duration::from_millis(100);

/// The number of readings a sample. The shortest one counts, because the scheduler may interrupt
/// this thread between the two clocks.
const READINGS: usize = 3;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The monotonic clock, which clients use for leases.
    pub at: Nanos,
    /// How far the wall clock, which servers use, is ahead of it, in nanoseconds.
    pub ahead: i64,
}

/// A thread that notes a sample every 100 ms, in a file too, until this is dropped.
#[derive(Debug)]
pub struct Sampler {
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The result of the samples of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    pub samples: usize,
    /// The largest change of the difference from one sample to the next, and when that was.
    pub step: Option<(Nanos, i64)>,
    /// The same over the whole run.
    pub drift: i64,
    /// The longest time that a sample came late, and when it came.
    pub standstill: Option<(Nanos, Nanos)>,
}

impl Sampler {
    pub fn start(log: &Path) -> Result<Sampler> {
        let mut log = File::create(log)?;
        let (samples, stop) = (Arc::<Mutex<Vec<Sample>>>::default(), Arc::<AtomicBool>::default());
        let (noted, ends) = (samples.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("clocks".into()).spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let sample = Sample::take();
                // Without the file, the run is judged nevertheless.
                let _ = writeln!(log, "{} {}", sample.at, sample.ahead);
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                std::thread::sleep(EVERY);
            }
        })?;
        Ok(Sampler { samples, stop, thread: Some(thread) })
    }

    pub fn clocks(&self) -> Clocks {
        Clocks::of(&self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has nothing to say
        }
    }
}

impl Sample {
    fn take() -> Sample {
        let readings = (0..READINGS).map(|_| {
            let before = now();
            let wall = rustix::time::clock_gettime(ClockId::Realtime);
            let after = now();
            let at = before + (after - before) / 2;
            let wall = wall.tv_sec * 1_000_000_000 + wall.tv_nsec;
            let sample = Sample { at, ahead: wall - at as i64 };
            (after - before, sample)
        });
        let best = readings.min_by_key(|(took, _)| *took);
        best.map_or(Sample { at: now(), ahead: 0 }, |(_, sample)| sample)
    }
}

impl Clocks {
    pub fn of(samples: &[Sample]) -> Clocks {
        let steps = samples.windows(2).map(|pair| (pair[1].at, pair[1].ahead - pair[0].ahead));
        let late = samples.windows(2).map(|pair| {
            (pair[1].at, (pair[1].at - pair[0].at).saturating_sub(EVERY.as_nanos() as Nanos))
        });
        Clocks {
            samples: samples.len(),
            step: steps.max_by_key(|(_, step)| step.abs()),
            drift: samples.last().map_or(0, |last| last.ahead - samples[0].ahead),
            standstill: late.max_by_key(|(_, late)| *late),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "clock_samples": self.samples,
            "clock_step_ns": self.step.map(|(_, step)| step),
            "clock_drift_ns": self.drift,
            "standstill_ns": self.standstill.map(|(_, late)| late),
        })
    }

    /// One line for the report of a run.
    pub fn told(&self) -> String {
        let signed = |nanos: i64| {
            let sign = if nanos < 0 { "-" } else { "" };
            format!("{sign}{:?}", Duration::from_nanos(nanos.unsigned_abs()))
        };
        let (Some((stepped, step)), Some((stood, late))) = (self.step, self.standstill) else {
            return format!("clocks: {} samples, too few to tell", self.samples);
        };
        format!(
            "clocks: {} samples; the wall clock's largest step {} (at {stepped}), {} in all; the machine's longest standstill {:?} (until {stood})",
            self.samples,
            signed(step),
            signed(self.drift),
            Duration::from_nanos(late),
        )
    }
}
