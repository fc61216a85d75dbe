//! The results: the bench prints what `docs/performance.md` shows, `report.html` has everything
//! with plots, and `report.tsv` is for comparisons.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Options;
use crate::common::{BenchCluster, Goals, Table};
use crate::contenders::{PEER_TIME_FACTOR, RDS_LOCK, RSLOCK, SCRIPTS, SET};
use crate::generator::LoadRun;
use crate::goals;
use crate::limit::LIMIT;
use crate::support::Result;
use crate::svg::{Chart, Series};

/// Enough tasks to keep the client busy, but not so many that all wait for the processor.
const BUSY_TASKS: usize = 64;

const GOALS: &str = "goals";

/// The base of the ratios at each number of tasks: the lowest cost of any lock.
const FLOOR: &str = "SET NX PX, redis";

/// The bases of the ratios in `report.html`, if they took part.
const BASES: [(&str, &str); 5] = [
    ("of the same scripts", SCRIPTS),
    ("of SET NX PX", SET),
    ("of rds_lock", RDS_LOCK),
    ("of rslock", RSLOCK),
    ("of the limit", LIMIT),
];

pub struct Report {
    head: Vec<(&'static str, String)>,
    pub scenarios: Vec<Scenario>,
    /// What the limit of the servers is, in a sentence.
    pub limit: String,
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

    /// The floor over the same connections. `SET NX PX` is that by `redis` also for the library's
    /// own connections, and both floors are those by `redis` for contenders without a backend. If
    /// no floor has the name, another contender.
    fn base(&self, row: &Row, name: &str) -> Option<&Row> {
        let by = match &row.contender {
            fred if fred.contains("fred") => "fred",
            native if native.contains("native") && name == SCRIPTS => "native",
            _ => "redis",
        };
        let floor = self.row(&format!("{name}, {by}"), row.tasks);
        floor.or_else(|| self.row(name, row.tasks))
    }

    /// All results.
    fn table(&self) -> Table {
        let mut table = Table::new(&[
            "contender",
            "tasks",
            "pairs/s",
            "median, ms",
            "p99",
            "p99.9",
            "worst",
            "client's CPU, µs a pair",
        ]);
        let bases = self.bases();
        table.head.extend(bases.iter().map(|(what, _)| what.to_string()));
        for row in &self.rows {
            let mut line = vec![row.contender.clone(), row.tasks.to_string(), row.rate_text()];
            line.extend([0.5, 0.99, 0.999, 1.0].map(|quantile| row.ms_at(quantile)));
            line.push(row.cpu_text());
            line.extend(bases.iter().map(|(_, base)| self.ratio_text(row, base)));
            table.add(line);
        }
        table
    }

    /// The main results, with one line for each contender.
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
        let bases = self.bases();
        table.head.extend(bases.iter().map(|(what, _)| what.to_string()));
        if self.is_open() {
            table.head.extend(["begun late, median, ms", "p99, ms"].map(String::from));
        }
        for row in &self.rows {
            let mut line =
                vec![row.contender.clone(), row.rate_text(), row.ms_at(0.5), row.ms_at(0.99)];
            line.extend(bases.iter().map(|(_, base)| self.ratio_text(row, base)));
            if self.is_open() {
                line.extend([0.5, 0.99].map(|quantile| ms_at(&row.late, quantile)));
            }
            table.add(line);
        }
        table
    }

    /// Empty in an open loop, where all do the same number of pairs.
    fn bases(&self) -> Vec<(&'static str, &'static str)> {
        let took_part =
            |(_, name): &(&str, &str)| self.rows.iter().any(|row| self.base(row, name).is_some());
        let all = BASES.into_iter().filter(took_part);
        if self.is_open() { Vec::new() } else { all.collect() }
    }

    pub fn tasks(&self) -> Vec<usize> {
        let mut tasks: Vec<usize> = self.rows.iter().map(|row| row.tasks).collect();
        tasks.dedup();
        tasks
    }

    fn ratio_text(&self, row: &Row, base: &str) -> String {
        self.base(row, base).map_or(String::new(), |base| format!("{:.2}", row.ratio_to(base)))
    }

    fn charts(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        let tasks = self.tasks();
        if tasks.len() > 1 {
            let series = self.contenders().map(|name| Series {
                name: name.clone(),
                points: tasks
                    .iter()
                    .map(|&tasks| (tasks as f64, self.per_second(name, tasks)))
                    .collect(),
            });
            charts.push(Chart {
                title: format!("{}: pairs a second", self.name),
                x: "tasks".into(),
                series: series.collect(),
            });
        }
        let shown = if tasks.contains(&BUSY_TASKS) { BUSY_TASKS } else { tasks[0] };
        let quantiles = [0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999];
        let rows = self.rows.iter().filter(|row| row.tasks == shown && !row.times.is_empty());
        charts.push(Chart {
            title: format!("{}: time of a pair at {shown} tasks, ms", self.name),
            x: "1 of so many takes longer".into(),
            series: rows
                .map(|row| Series {
                    name: row.contender.clone(),
                    points: quantiles
                        .map(|q| (1.0 / (1.0 - q), row.at(q).as_secs_f64() * 1e3))
                        .into(),
                })
                .collect(),
        });
        charts
    }
}

impl Report {
    pub fn begin(target: &BenchCluster, options: &Options) -> Report {
        let head = vec![
            ("cluster", format!("{}, {}", target.version(), target.kind())),
            (
                "run",
                format!("{} rounds after a warm-up, turns of {:?}", options.rounds, options.turn),
            ),
            (
                "the locks of others",
                match options.alone {
                    true => "left out".into(),
                    false => {
                        format!("turns {PEER_TIME_FACTOR} times as long where tasks share locks")
                    }
                },
            ),
        ];
        Report { head, scenarios: Vec::new(), limit: String::new() }
    }

    pub fn goals(&self) -> Goals {
        goals::judge(&self.scenarios)
    }

    pub fn write(&self, folder: &Path) -> Result {
        std::fs::create_dir_all(folder)?;
        let _ = std::fs::rename(folder.join("report.tsv"), folder.join("previous.tsv")); // may not exist
        std::fs::write(folder.join("report.tsv"), self.tsv())?;
        std::fs::write(folder.join("report.html"), self.html()?)?;
        Ok(())
    }

    /// The results in sections, for `scripts/publish`.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (what, value) in &self.head {
            let _ = writeln!(text, "- {what}: {value}");
        }
        let _ = writeln!(text, "- the limit: {}\n", self.limit);
        for scenario in &self.scenarios {
            let (name, note) = (&scenario.name, &scenario.note);
            let _ = writeln!(text, "## {name}\n\n{note}.\n\n{}", scenario.summary());
            if let Some(ratios) = scenario.ratios() {
                let _ = writeln!(text, "{ratios}");
            }
        }
        let _ = write!(text, "## {GOALS}\n\n{}", self.goals());
        text
    }

    fn html(&self) -> Result<String> {
        let mut text = String::from(
            "<!doctype html><meta charset=utf-8><title>rwlease: bench report</title><style>body{font:15px sans-serif;max-width:75em;margin:2em auto;padding:0 \
             1em}table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}\
             pre{background:#f6f6f6;padding:1em;overflow-x:auto}svg{margin:1em 1em 0 0}</style><h1>Bench report</h1><ul>",
        );
        let built = ("rwlease", built());
        for (what, value) in self.head.iter().chain([&built]) {
            let _ = write!(text, "<li>{what}: {}", escaped(value));
        }
        let _ = write!(text, "<li>the limit: {}</ul>", escaped(&self.limit));
        for scenario in &self.scenarios {
            let _ = write!(
                text,
                "<h2>{}</h2><p>{}.</p>",
                escaped(&scenario.name),
                escaped(&scenario.note)
            );
            text.push_str(&html(&scenario.table()));
            for chart in scenario.charts() {
                text.push_str(&chart.svg()?);
            }
        }
        let _ = write!(text, "<h2>{GOALS}</h2><pre>{}</pre>", escaped(&self.goals().to_string()));
        Ok(text)
    }

    fn tsv(&self) -> String {
        let mut text = String::new();
        for scenario in &self.scenarios {
            for row in scenario.rows.iter().filter(|row| !row.times.is_empty()) {
                let (rate, median, p99) =
                    (row.rate(), row.at(0.5).as_micros(), row.at(0.99).as_micros());
                let _ = writeln!(
                    text,
                    "{}\t{}\t{}\t{rate:.0}\t{median}\t{p99}",
                    scenario.name, row.contender, row.tasks
                );
            }
        }
        text
    }
}

fn html(table: &Table) -> String {
    let line = |cell: &str, cells: &[String]| {
        let cells = cells.iter().map(|text| format!("<{cell}>{}</{cell}>", escaped(text)));
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let rows: String = table.rows.iter().map(|row| line("td", row)).collect();
    format!("<table>{}{rows}</table>", line("th", &table.head))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Identifies the build by the contents of its folders.
fn built() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/version");
    match Command::new(script).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().into()
        }
        _ => "of no known sources".into(),
    }
}
