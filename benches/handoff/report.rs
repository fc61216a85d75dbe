//! The times of all rounds, in tables.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use common::{Goals, Table};
use load::Crowd;

/// The highest ratio of the median to that of the bare push.
const MAX_RATIO_TO_PUSH: f64 = 1.5;
/// The lowest ratio of another lock's median to ours.
const MIN_RATIO_TO_OTHERS: f64 = 50.0;
const MIN_RATIO_TO_LIMIT: f64 = 0.85;
/// The highest ratio of the p99.9 of the waits in a crowd to their mean.
const MAX_TAIL_TO_MEAN: f64 = 2.0;

#[derive(Default)]
pub struct Report {
    pub round_trips: Vec<Duration>,
    pub floor: Vec<Duration>,
    pub rows: Vec<Row>,
}

/// One contender.
pub struct Row {
    pub name: String,
    pub hand_offs: Vec<Duration>,
    pub crowd: Crowd,
}

impl Row {
    pub fn new(name: &str) -> Row {
        Row { name: name.into(), hand_offs: Vec::new(), crowd: Crowd::default() }
    }

    fn per_second(&self) -> f64 {
        self.crowd.holds.len() as f64 / self.crowd.elapsed.as_secs_f64()
    }

    /// The ratio of the throughput to the limit, at which each hold follows the last after one
    /// round trip.
    fn of_limit(&self, round_trip: Duration) -> f64 {
        self.per_second() * (mean(&self.crowd.holds) + round_trip).as_secs_f64()
    }

    fn median(&self) -> f64 {
        Times::of(&self.hand_offs).median.as_secs_f64()
    }

    /// The ratio of the p99.9 of the waits to their mean.
    fn spread(&self) -> f64 {
        Times::of(&self.crowd.waits).p999.as_secs_f64() / mean(&self.crowd.waits).as_secs_f64()
    }
}

impl Report {
    pub fn add(&mut self, round: Report) {
        self.round_trips.extend(round.round_trips);
        self.floor.extend(round.floor);
        for row in round.rows {
            match self.rows.iter_mut().find(|known| known.name == row.name) {
                Some(known) => {
                    known.hand_offs.extend(row.hand_offs);
                    known.crowd.add(row.crowd);
                }
                None => self.rows.push(row),
            }
        }
    }

    /// One line that shows the progress.
    pub fn summary(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            let (times, rate) = (Times::of(&row.hand_offs), row.per_second());
            format!("{} {:.2} ms, {rate:.0}/s", row.name, ms(times.median))
        });
        let floor = format!("push {:.3} ms", ms(Times::of(&self.floor).median));
        std::iter::once(floor).chain(rows).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}", self.times(), self.crowds(), self.goals())
    }
}

impl Report {
    /// The goals of the first row, which is ours.
    pub fn goals(&self) -> Goals {
        let mut goals = Goals::new("hand-off");
        let [ours, others @ ..] = self.rows.as_slice() else {
            return goals;
        };
        let push = Times::of(&self.floor).median.as_secs_f64();
        goals.at_most("of the push", MAX_RATIO_TO_PUSH, ours.median() / push);
        for other in others {
            let what = format!("times as fast as {}", other.name);
            goals.at_least(what, MIN_RATIO_TO_OTHERS, other.median() / ours.median());
        }
        goals.at_least("of the serial limit", MIN_RATIO_TO_LIMIT, ours.of_limit(self.round_trip()));
        goals.at_most("p99.9 of the mean wait", MAX_TAIL_TO_MEAN, ours.spread());
        goals
    }

    fn round_trip(&self) -> Duration {
        Times::of(&self.round_trips).median
    }

    fn times(&self) -> Table {
        let mut table = Table::new(&[
            "from release to the next one's turn, ms",
            "median",
            "p99",
            "worst",
            "of the push",
        ]);
        let floor = Times::of(&self.floor);
        let bare =
            [("round trip", Times::of(&self.round_trips)), ("bare `SPUBLISH` to push", floor)];
        let all = self.rows.iter().map(|row| (row.name.as_str(), Times::of(&row.hand_offs)));
        for (name, times) in bare.into_iter().chain(all) {
            let ratio = times.median.as_secs_f64() / floor.median.as_secs_f64();
            let times =
                [times.median, times.p99, times.worst].map(|time| format!("{:.3}", ms(time)));
            table.add([name.into()].into_iter().chain(times).chain([format!("{ratio:.2}")]));
        }
        table
    }

    /// Tasks that contend for the same lock and hold it for a millisecond.
    fn crowds(&self) -> Table {
        let mut table = Table::new(&[
            "8 tasks, each holds for 1 ms",
            "per s",
            "hold, ms",
            "of the serial limit",
            "wait, ms",
            "p99.9",
            "worst",
            "p99.9 of mean",
        ]);
        for row in &self.rows {
            let waits = Times::of(&row.crowd.waits);
            let numbers = [
                ms(mean(&row.crowd.holds)),
                row.of_limit(self.round_trip()),
                ms(mean(&row.crowd.waits)),
                ms(waits.p999),
                ms(waits.worst),
                row.spread(),
            ];
            let head = [row.name.clone(), format!("{:.0}", row.per_second())];
            table.add(head.into_iter().chain(numbers.map(|number| format!("{number:.2}"))));
        }
        table
    }
}

#[derive(Clone, Copy)]
struct Times {
    median: Duration,
    p99: Duration,
    p999: Duration,
    worst: Duration,
}

impl Times {
    fn of(times: &[Duration]) -> Times {
        // From a nanosecond to a quarter of an hour, with three digits.
        let mut histogram =
            Histogram::<u64>::new_with_bounds(1, 1 << 40, 3).expect("these bounds are allowed");
        for time in times {
            histogram.saturating_record(time.as_nanos() as u64);
        }
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        Times {
            median: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            worst: Duration::from_nanos(histogram.max()),
        }
    }
}

fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / (times.len().max(1) as u32)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
