//! Compares two reports.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The rate, the median and the p99 of the new report as ratios to the old one, for the rows of
/// both.
pub fn diff(old: &str, new: &str) -> String {
    let old: BTreeMap<String, [f64; 3]> = old.lines().filter_map(read).collect();
    let mut text = format!("{:<66} {:>9} {:>9} {:>9}\n", "new / old", "pairs/s", "median", "p99");
    for (what, after) in new.lines().filter_map(read) {
        let Some(before) = old.get(&what) else {
            continue;
        };
        let [rate, median, p99] = [0, 1, 2].map(|at| after[at] / before[at]);
        let _ = writeln!(text, "{what:<66} {rate:>9.2} {median:>9.2} {p99:>9.2}");
    }
    text
}

fn read(line: &str) -> Option<(String, [f64; 3])> {
    let words: Vec<&str> = line.split('\t').collect();
    let [scenario, contender, tasks, numbers @ ..] = words.as_slice() else {
        return None;
    };
    let numbers: Vec<f64> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
    Some((format!("{scenario}, {contender}, {tasks} tasks"), numbers.try_into().ok()?))
}
