//! What was measured, as tables and plots: `report.md`, `report.html`, and `report.tsv` for comparisons.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Options;
use crate::common::Target;
use crate::contenders::{SCRIPTS, SET};
use crate::generator::Run;
use crate::support::Result;
use crate::svg::{Chart, Series};

/// Other benches, whose output `make bench` leaves beside the report.
const OTHERS: [(&str, &str); 6] = [
    ("handoff", "Hand-off"),
    ("scripts", "Server time and memory"),
    ("renewal", "Renewal"),
    ("backends", "Backends"),
    ("allocations", "Allocations"),
    ("local", "In-process parts"),
];

pub struct Report {
    head: Vec<(&'static str, String)>,
    pub scenarios: Vec<Scenario>,
    /// What `redis-benchmark` reaches, commands a second.
    pub limit: Option<f64>,
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
    /// Of each round.
    per_second: Vec<f64>,
    /// Of all rounds, ns.
    times: Histogram<u64>,
    /// The client's, of all rounds, and the pairs that it was for.
    cpu: Duration,
    pairs: usize,
}

impl Row {
    pub fn new(contender: &str, tasks: usize) -> Row {
        Row {
            contender: contender.into(),
            tasks,
            per_second: Vec::new(),
            // A nanosecond to a quarter of an hour, to three digits.
            times: Histogram::new_with_bounds(1, 1 << 40, 3).expect("these bounds are allowed"),
            cpu: Duration::ZERO,
            pairs: 0,
        }
    }

    /// In a closed loop a long pair keeps others from being begun: `corrected` counts them, as if one had been due every median.
    pub fn add(&mut self, run: &Run, corrected: bool) {
        self.per_second.push(run.per_second());
        if let Some(cpu) = run.cpu {
            (self.cpu, self.pairs) = (self.cpu + cpu, self.pairs + run.pairs.len());
        }
        let mut sorted: Vec<u64> = run.pairs.iter().map(|time| time.as_nanos() as u64).collect();
        sorted.sort_unstable();
        let interval = if corrected {
            sorted.get(sorted.len() / 2).copied().unwrap_or(0)
        } else {
            0
        };
        for time in sorted {
            let _ = self.times.record_correct(time, interval);
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
}

impl Scenario {
    pub fn new(name: &str, note: &str) -> Scenario {
        Scenario {
            name: name.into(),
            note: note.into(),
            rows: Vec::new(),
        }
    }

    pub fn per_second(&self, contender: &str, tasks: usize) -> f64 {
        self.row(contender, tasks).map_or(0.0, Row::rate)
    }

    fn row(&self, contender: &str, tasks: usize) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.contender == contender && row.tasks == tasks)
    }

    /// The floor of the same client crate, or of `redis` where the contender has none of its own.
    fn base(&self, row: &Row, floor: &str) -> Option<&Row> {
        let by = if row.contender.contains("fred") {
            "fred"
        } else {
            "redis"
        };
        self.row(&format!("{floor}, {by}"), row.tasks)
    }

    fn table(&self) -> Table {
        let based = self.rows.iter().any(|row| self.base(row, SET).is_some());
        let mut head = vec![
            "contender",
            "tasks",
            "pairs/s",
            "median, ms",
            "p99",
            "p99.9",
            "worst",
            "client's CPU, µs a pair",
        ];
        if based {
            head.extend(["of the same scripts", "of SET NX PX"]);
        }
        let line = |row: &Row| {
            let ms = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
            let mut line = vec![
                row.contender.clone(),
                row.tasks.to_string(),
                format!("{:.0}", row.rate()),
            ];
            line.extend([0.5, 0.99, 0.999, 1.0].map(|quantile| ms(row.at(quantile))));
            line.push(match row.pairs {
                0 => String::new(),
                pairs => format!("{:.1}", row.cpu.as_secs_f64() * 1e6 / pairs as f64),
            });
            if based {
                let ratio = |floor| {
                    self.base(row, floor)
                        .map_or(String::new(), |base| format!("{:.2}", row.ratio_to(base)))
                };
                line.extend([ratio(SCRIPTS), ratio(SET)]);
            }
            line
        };
        Table {
            head: head.into_iter().map(String::from).collect(),
            rows: self.rows.iter().map(line).collect(),
        }
    }

    fn charts(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        let mut tasks: Vec<usize> = self.rows.iter().map(|row| row.tasks).collect();
        tasks.dedup();
        if tasks.len() > 1 {
            let names = self
                .rows
                .iter()
                .filter(|row| row.tasks == tasks[0])
                .map(|row| &row.contender);
            let series = names.map(|name| Series {
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
        // The latencies where many are at work, but not so many that all wait for the processor.
        let shown = if tasks.contains(&64) { 64 } else { tasks[0] };
        let quantiles = [0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999];
        let rows = self.rows.iter().filter(|row| row.tasks == shown);
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
    pub fn begin(target: &Target, options: &Options) -> Report {
        let head = vec![
            ("cluster", format!("{}, {}", target.version(), target.kind())),
            ("machine", machine()),
            ("rwlease", env!("CARGO_PKG_VERSION").to_owned()),
            (
                "run",
                format!("{} rounds after a warm-up, turns of {:?}", options.rounds, options.turn),
            ),
        ];
        Report {
            head,
            scenarios: Vec::new(),
            limit: None,
        }
    }

    pub fn write(&self, folder: &Path) -> Result {
        std::fs::create_dir_all(folder)?;
        let _ = std::fs::rename(folder.join("report.tsv"), folder.join("previous.tsv")); // there may be none
        std::fs::write(folder.join("report.tsv"), self.tsv())?;
        std::fs::write(folder.join("report.md"), self.markdown(folder))?;
        std::fs::write(folder.join("report.html"), self.html(folder))?;
        Ok(())
    }

    pub fn markdown(&self, folder: &Path) -> String {
        let mut text = String::from("# Bench report\n\n");
        for (what, value) in &self.head {
            let _ = writeln!(text, "- {what}: {value}");
        }
        let _ = writeln!(
            text,
            "{}",
            self.limit().map_or(String::new(), |limit| format!("- {limit}\n"))
        );
        for scenario in &self.scenarios {
            let _ = writeln!(
                text,
                "## {}\n\n{}.\n\n{}",
                scenario.name,
                scenario.note,
                scenario.table().markdown()
            );
        }
        for (title, said) in others(folder) {
            let _ = writeln!(text, "## {title}\n\n```text\n{said}\n```\n");
        }
        text
    }

    fn html(&self, folder: &Path) -> String {
        let mut text = String::from(
            "<!doctype html><meta charset=utf-8><title>rwlease: bench report</title><style>body{font:15px sans-serif;max-width:75em;margin:2em auto;padding:0 \
             1em}table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}\
             pre{background:#f6f6f6;padding:1em;overflow-x:auto}svg{margin:1em 1em 0 0}</style><h1>Bench report</h1><ul>",
        );
        for (what, value) in &self.head {
            let _ = write!(text, "<li>{what}: {}", escaped(value));
        }
        let _ = write!(
            text,
            "{}</ul>",
            self.limit().map_or(String::new(), |limit| format!("<li>{limit}"))
        );
        for scenario in &self.scenarios {
            let _ = write!(
                text,
                "<h2>{}</h2><p>{}.</p>",
                escaped(&scenario.name),
                escaped(&scenario.note)
            );
            text.push_str(&scenario.table().html());
            text.extend(scenario.charts().iter().map(Chart::svg));
        }
        for (title, said) in others(folder) {
            let _ = write!(text, "<h2>{title}</h2><pre>{}</pre>", escaped(&said));
        }
        text
    }

    fn tsv(&self) -> String {
        let mut text = String::new();
        for scenario in &self.scenarios {
            for row in &scenario.rows {
                let (rate, median, p99) = (row.rate(), row.at(0.5).as_micros(), row.at(0.99).as_micros());
                let _ = writeln!(
                    text,
                    "{}\t{}\t{}\t{rate:.0}\t{median}\t{p99}",
                    scenario.name, row.contender, row.tasks
                );
            }
        }
        text
    }

    fn limit(&self) -> Option<String> {
        let limit = self.limit?;
        Some(format!(
            "the limit: `redis-benchmark` with 64 connections sets {limit:.0} keys a second; a pair is two commands"
        ))
    }
}

/// The output of the other benches, without what cargo says.
fn others(folder: &Path) -> Vec<(&'static str, String)> {
    let read = |(file, title): (&str, &'static str)| {
        let said = std::fs::read_to_string(folder.join(format!("{file}.txt"))).ok()?;
        Some((title, said.trim().to_owned()))
    };
    OTHERS.into_iter().filter_map(read).collect()
}

struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("| --- {}|\n", "| ---: ".repeat(self.head.len() - 1));
        line(&self.head) + &rule + &self.rows.iter().map(|row| line(row)).collect::<String>()
    }

    fn html(&self) -> String {
        let line = |cell: &str, cells: &[String]| {
            let cells = cells.iter().map(|text| format!("<{cell}>{}</{cell}>", escaped(text)));
            format!("<tr>{}</tr>", cells.collect::<String>())
        };
        let rows: String = self.rows.iter().map(|row| line("td", row)).collect();
        format!("<table>{}{rows}</table>", line("th", &self.head))
    }
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    format!(
        "{cpus} x {}, {}; load before the run {load}",
        model.map_or("unknown processor", |(_, model)| model),
        std::env::consts::OS
    )
}
