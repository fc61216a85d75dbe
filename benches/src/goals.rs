//! The report of a bench's goals.

use std::fmt;
use std::process::ExitCode;

use crate::Table;

/// The exit status of a bench that ran well and missed a goal. No panic or error uses it.
const GOAL_MISSED: u8 = 3;

pub fn exit_code(met: bool) -> ExitCode {
    if met { ExitCode::SUCCESS } else { ExitCode::from(GOAL_MISSED) }
}

/// The goals and the results, and whether all goals are met.
pub struct Goals {
    table: Table,
    all_met: bool,
}

impl Goals {
    pub fn new(title: &str) -> Goals {
        Goals { table: Table::new(&[title, "wanted", "measured", ""]), all_met: true }
    }

    pub fn at_least(&mut self, what: impl Into<String>, wanted: f64, measured: f64) {
        self.all_at_least(what, &[(wanted, measured)]);
    }

    pub fn at_most(&mut self, what: impl Into<String>, wanted: f64, measured: f64) {
        self.judge(what, "at most", &[(wanted, measured)], |wanted, measured| measured <= wanted);
    }

    /// Compares each pair of a goal and a result, in one line. A missing result is NaN, and misses
    /// the goal.
    pub fn all_at_least(&mut self, what: impl Into<String>, pairs: &[(f64, f64)]) {
        self.judge(what, "at least", pairs, |wanted, measured| measured >= wanted);
    }

    pub fn all_more_than(&mut self, what: impl Into<String>, pairs: &[(f64, f64)]) {
        self.judge(what, "more than", pairs, |wanted, measured| measured > wanted);
    }

    fn judge(
        &mut self,
        what: impl Into<String>,
        how: &str,
        pairs: &[(f64, f64)],
        good: fn(f64, f64) -> bool,
    ) {
        let met = pairs.iter().all(|&(wanted, measured)| good(wanted, measured));
        let mut wanted: Vec<String> =
            pairs.iter().map(|(wanted, _)| format_value(*wanted, 2)).collect();
        wanted.dedup();
        let measured: Vec<String> =
            pairs.iter().map(|(_, measured)| format_value(*measured, 3)).collect();
        let said = if met { "met" } else { "missed" };
        self.table.add([
            what.into(),
            format!("{how} {}", wanted.join(", ")),
            measured.join(", "),
            said.into(),
        ]);
        self.all_met &= met;
    }

    pub fn exit_code(&self) -> ExitCode {
        exit_code(self.all_met)
    }
}

/// Formats a number with this many decimals, or with none if it is large.
fn format_value(value: f64, digits: usize) -> String {
    let digits = if value < 10.0 { digits } else { 0 };
    format!("{value:.digits$}")
}

impl fmt::Display for Goals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}
