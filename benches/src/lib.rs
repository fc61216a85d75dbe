//! The code that the benches share: contenders, the cluster, and tables of results.

mod baseline;
mod baseline_connection;
mod cluster;
mod goals;
mod other_libraries;
mod rwlease_lock;
mod table;

use std::time::Duration;

pub use baseline::{
    BaselineClient, PUBLISHED_ACQUIRE, PUBLISHED_RELEASE, ScriptPair, ScriptsOnly, SetNx,
};
pub use cluster::BenchCluster;
pub use goals::{Goals, exit_code};
pub use other_libraries::OtherLibraries;
pub use rwlease_lock::{ReadPercent, RwleaseLock};
pub use table::Table;

/// Returns the processor time of this process.
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the median, or NaN without values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns true if the command line has this option.
pub fn has_option(name: &str) -> bool {
    std::env::args().any(|word| word == name)
}

/// Returns the number behind this option of the command line, or the default.
pub fn number_option(name: &str, default: u64) -> u64 {
    let number = std::env::args().skip_while(|word| word != name).nth(1);
    number.and_then(|word| word.parse().ok()).unwrap_or(default)
}
