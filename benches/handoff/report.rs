//! The times of all rounds, in tables.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::scenario::Crowd;

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
        Row {
            name: name.into(),
            hand_offs: Vec::new(),
            crowd: Crowd::default(),
        }
    }

    fn per_second(&self) -> f64 {
        self.crowd.holds.len() as f64 / self.crowd.elapsed.as_secs_f64()
    }

    /// What could be if each hold were followed by the next after one round trip.
    fn limit(&self, round_trip: Duration) -> f64 {
        1.0 / (mean(&self.crowd.holds) + round_trip).as_secs_f64()
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

    /// One line, to see that it goes on.
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
        let (floor, round_trip) = (Times::of(&self.floor), Times::of(&self.round_trips));
        writeln!(f, "from release to the next one's turn, ms")?;
        writeln!(
            f,
            "{:<12} {:>9} {:>9} {:>9} {:>11}",
            "", "median", "p99", "worst", "of the push"
        )?;
        let bare = [("round trip", round_trip), ("bare push", floor)];
        let all = self
            .rows
            .iter()
            .map(|row| (row.name.as_str(), Times::of(&row.hand_offs)));
        for (name, times) in bare.into_iter().chain(all) {
            let ratio = times.median.as_secs_f64() / floor.median.as_secs_f64();
            let (median, p99, worst) = (ms(times.median), ms(times.p99), ms(times.worst));
            writeln!(f, "{name:<12} {median:>9.3} {p99:>9.3} {worst:>9.3} {ratio:>11.2}")?;
        }
        writeln!(f, "\nmany who want the same lock and hold it for a millisecond")?;
        writeln!(
            f,
            "{:<12} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>13}",
            "", "per s", "hold, ms", "of limit", "wait, ms", "p99.9", "worst", "p99.9 of mean"
        )?;
        for row in &self.rows {
            let (waits, average) = (Times::of(&row.crowd.waits), mean(&row.crowd.waits));
            writeln!(
                f,
                "{:<12} {:>9.0} {:>9.2} {:>9.2} {:>11.2} {:>9.2} {:>9.2} {:>13.2}",
                row.name,
                row.per_second(),
                ms(mean(&row.crowd.holds)),
                row.per_second() / row.limit(round_trip.median),
                ms(average),
                ms(waits.p999),
                ms(waits.worst),
                waits.p999.as_secs_f64() / average.as_secs_f64(),
            )?;
        }
        Ok(())
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
        // A nanosecond to a quarter of an hour, to three digits.
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 1 << 40, 3).expect("these bounds are allowed");
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
