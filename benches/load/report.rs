//! The results, which `docs/performance.md` shows.

use std::fmt;
use std::time::Duration;

use common::{BenchCluster, Table, median};
use hdrhistogram::Histogram;
use load::LoadRun;

use crate::Options;
use crate::contenders::{PEER_TIME_FACTOR, RDS_LOCK, RSLOCK, SCRIPTS};

/// Enough tasks to keep the client busy, but not so many that all wait for the processor.
const BUSY_TASKS: usize = 64;

/// The base of the ratios at each number of tasks: the lowest cost of any lock.
const FLOOR: &str = "SET NX PX, redis";

/// The bases of the ratios at one number of tasks, if they took part. In an open loop all make the
/// same number of pairs, so it has no ratios.
const BASES: [(&str, &str); 2] = [("of rds_lock", RDS_LOCK), ("of rslock", RSLOCK)];

pub struct Report {
    pub head: Vec<String>,
    pub scenarios: Vec<Scenario>,
}

pub struct Scenario {
    pub name: String,
    note: String,
    pub rows: Vec<Row>,
}

/// One contender at one concurrency.
pub struct Row {
    pub contender: String,
    pub tasks: usize,
    /// One rate for each round.
    per_second: Vec<f64>,
    /// The times of all rounds, in ns.
    times: Histogram<u64>,
    /// How late the generator was in an open loop, in all rounds, in ns.
    late: Histogram<u64>,
    /// The client's processor time in all rounds, and the number of pairs in it.
    cpu: Duration,
    pairs: usize,
}

impl Row {
    pub fn new(contender: &str, tasks: usize) -> Row {
        Row {
            contender: contender.into(),
            tasks,
            per_second: Vec::new(),
            times: histogram(),
            late: histogram(),
            cpu: Duration::ZERO,
            pairs: 0,
        }
    }

    /// In a closed loop a long pair delays the start of others. With `corrected`, the times include
    /// those as if one had been due every median. Leave it off if tasks wait for one another: there
    /// the others would have waited in the same queue.
    pub fn add(&mut self, run: &LoadRun, corrected: bool) {
        self.per_second.push(run.per_second());
        if let Some(cpu) = run.cpu {
            (self.cpu, self.pairs) = (self.cpu + cpu, self.pairs + run.pairs.len());
        }
        let mut sorted: Vec<u64> = run.pairs.iter().map(|time| time.as_nanos() as u64).collect();
        sorted.sort_unstable();
        let interval =
            if corrected { sorted.get(sorted.len() / 2).copied().unwrap_or(0) } else { 0 };
        for time in sorted {
            let _ = self.times.record_correct(time, interval);
        }
        for time in &run.open {
            let _ = self.times.record(time.as_nanos() as u64);
        }
        for time in &run.start_delays {
            let _ = self.late.record(time.as_nanos() as u64);
        }
    }

    fn rate(&self) -> f64 {
        median(self.per_second.clone())
    }

    /// The median of the ratios within each round.
    fn ratio_to(&self, base: &Row) -> f64 {
        let pairs = self.per_second.iter().zip(&base.per_second);
        median(pairs.map(|(mine, base)| mine / base).collect())
    }

    fn at(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.times.value_at_quantile(quantile))
    }

    fn rate_text(&self) -> String {
        format!("{:.0}", self.rate())
    }

    fn ms_at(&self, quantile: f64) -> String {
        ms_at(&self.times, quantile)
    }

    /// The client's processor time of a pair in µs, if it was measured.
    fn cpu_text(&self) -> String {
        match self.pairs {
            0 => String::new(),
            pairs => format!("{:.0}", self.cpu.as_secs_f64() * 1e6 / pairs as f64),
        }
    }
}

impl Scenario {
    pub fn new(name: &str, note: &str) -> Scenario {
        Scenario { name: name.into(), note: note.into(), rows: Vec::new() }
    }

    /// Returns true if the pairs were due at fixed times.
    pub fn is_open(&self) -> bool {
        self.rows.iter().any(|row| !row.late.is_empty())
    }

    pub fn per_second(&self, contender: &str, tasks: usize) -> f64 {
        self.row(contender, tasks).map_or(0.0, Row::rate)
    }

    fn row(&self, contender: &str, tasks: usize) -> Option<&Row> {
        self.rows.iter().find(|row| row.contender == contender && row.tasks == tasks)
    }

    /// The ratio of the rates of a contender and its base.
    pub fn ratio(&self, contender: &str, base: &str, tasks: usize) -> Option<f64> {
        let row = self.row(contender, tasks)?;
        Some(row.ratio_to(self.base(row, base)?))
    }

    /// The ratio of the times at this quantile.
    pub fn ratio_of_times(
        &self,
        contender: &str,
        base: &str,
        tasks: usize,
        quantile: f64,
    ) -> Option<f64> {
        let (row, base) = (self.row(contender, tasks)?, self.row(base, tasks)?);
        Some(row.at(quantile).as_secs_f64() / base.at(quantile).as_secs_f64())
    }

    /// The base of a ratio: another contender, or the floor by the same backend. `SET NX PX` is by
    /// `redis` also for the library's own connections.
    fn base(&self, row: &Row, name: &str) -> Option<&Row> {
        let by = match &row.contender {
            fred if fred.contains("fred") => "fred",
            native if native.contains("native") && name == SCRIPTS => "native",
            _ => "redis",
        };
        let floor = self.row(&format!("{name}, {by}"), row.tasks);
        floor.or_else(|| self.row(name, row.tasks))
    }

    /// One line for each contender.
    fn summary(&self) -> Table {
        let tasks = self.tasks();
        if tasks.len() == 1 {
            return self.short_table();
        }
        let mut table = Table::new(&["pairs/s by tasks"]);
        table.head.extend(tasks.iter().map(usize::to_string));
        table.head.push(format!("median at {BUSY_TASKS}, ms"));
        table.head.push("p99".into());
        table.head.push(format!("client's CPU, µs, 1 and {BUSY_TASKS}"));
        for name in self.contenders() {
            let at = |tasks| self.row(name, tasks).expect("all have been at all");
            let many = at(BUSY_TASKS);
            let (few, crowd) = (at(tasks[0]).cpu_text(), many.cpu_text());
            let mut line = vec![name.clone()];
            line.extend(tasks.iter().map(|&tasks| at(tasks).rate_text()));
            line.extend([many.ms_at(0.5), many.ms_at(0.99)]);
            line.push(if few.is_empty() { few } else { format!("{few}, {crowd}") });
            table.add(line);
        }
        table
    }

    /// The ratios to the floor at each number of tasks. `scripts/pictures` draws it.
    fn ratios(&self) -> Option<Table> {
        let tasks = self.tasks();
        self.row(FLOOR, tasks[0]).filter(|_| tasks.len() > 1 && !self.is_open())?;
        let mut table = Table::new(&[&format!("pairs/s, of {FLOOR}, by tasks")]);
        table.head.extend(tasks.iter().map(usize::to_string));
        for name in self.contenders() {
            let ratio = |&tasks: &usize| {
                let (row, floor) = (self.row(name, tasks)?, self.row(FLOOR, tasks)?);
                Some(format!("{:.2}", row.ratio_to(floor)))
            };
            let ratios = tasks.iter().map(|tasks| ratio(tasks).unwrap_or_default());
            table.add(std::iter::once(name.clone()).chain(ratios));
        }
        Some(table)
    }

    fn contenders(&self) -> impl Iterator<Item = &String> {
        let first = self.rows.first().map(|row| row.tasks);
        self.rows.iter().filter(move |row| Some(row.tasks) == first).map(|row| &row.contender)
    }

    /// The summary for one number of tasks.
    fn short_table(&self) -> Table {
        let mut table = Table::new(&[&self.name, "pairs/s", "median, ms", "p99, ms"]);
        let bases: Vec<(&str, &str)> =
            BASES.into_iter().filter(|(_, base)| !self.is_open() && self.has(base)).collect();
        table.head.extend(bases.iter().map(|(what, _)| what.to_string()));
        if self.is_open() {
            table.head.extend(["begun late, median, ms", "p99, ms"].map(String::from));
        }
        for row in &self.rows {
            let mut line =
                vec![row.contender.clone(), row.rate_text(), row.ms_at(0.5), row.ms_at(0.99)];
            let ratio = |base| self.row(base, row.tasks).map(|base| row.ratio_to(base));
            line.extend(bases.iter().map(|(_, base)| format!("{:.2}", ratio(base).unwrap_or(0.0))));
            if self.is_open() {
                line.extend([0.5, 0.99].map(|quantile| ms_at(&row.late, quantile)));
            }
            table.add(line);
        }
        table
    }

    fn has(&self, contender: &str) -> bool {
        self.rows.iter().any(|row| row.contender == contender)
    }

    pub fn tasks(&self) -> Vec<usize> {
        let mut tasks: Vec<usize> = self.rows.iter().map(|row| row.tasks).collect();
        tasks.dedup();
        tasks
    }
}

impl Report {
    pub fn begin(target: &BenchCluster, options: &Options) -> Report {
        let Options { rounds, turn, alone } = options;
        let others = match alone {
            true => "left out".into(),
            false => format!("turns {PEER_TIME_FACTOR} times as long where tasks share locks"),
        };
        let head = vec![
            format!("cluster: {}, {}", target.version(), target.kind()),
            format!("run: {rounds} rounds after a warm-up, turns of {turn:?}"),
            format!("the locks of others: {others}"),
        ];
        Report { head, scenarios: Vec::new() }
    }
}

/// Sections, for `scripts/publish`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.head {
            writeln!(f, "- {line}")?;
        }
        writeln!(f)?;
        for scenario in &self.scenarios {
            let (name, note) = (&scenario.name, &scenario.note);
            writeln!(f, "## {name}\n\n{note}.\n\n{}", scenario.summary())?;
            if let Some(ratios) = scenario.ratios() {
                writeln!(f, "{ratios}")?;
            }
        }
        Ok(())
    }
}

fn histogram() -> Histogram<u64> {
    // From a nanosecond to a quarter of an hour, with three digits.
    Histogram::new_with_bounds(1, 1 << 40, 3).expect("these bounds are allowed")
}

/// Empty if there are no times.
fn ms_at(times: &Histogram<u64>, quantile: f64) -> String {
    match times.is_empty() {
        true => String::new(),
        false => format!("{:.3}", times.value_at_quantile(quantile) as f64 / 1e6),
    }
}
