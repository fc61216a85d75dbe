//! A plot as inline SVG, with logarithmic axes.

use std::fmt::Write;

use crate::report::escaped;

pub struct Chart {
    pub title: String,
    pub x: String,
    pub series: Vec<Series>,
}

pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 260.0;
const MARGIN: f64 = 50.0;
const COLOURS: [&str; 10] = [
    "#1b6ca8", "#d1495b", "#66a182", "#edae49", "#6a4c93", "#00798c", "#8d6e63", "#b5179e",
    "#444444", "#7cb518",
];

impl Chart {
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let shown = |value: &f64| value.is_finite() && *value > 0.0;
        let across = Axis::over(points().map(|(x, _)| x).filter(shown));
        let up = Axis::over(points().map(|(_, y)| y).filter(shown));
        let place = |(x, y): (f64, f64)| {
            (MARGIN + across.at(x) * WIDTH, MARGIN + HEIGHT - up.at(y) * HEIGHT)
        };

        let (width, height) =
            (WIDTH + 3.2 * MARGIN, HEIGHT + 2.0 * MARGIN + 14.0 * self.series.len() as f64);
        let mut svg =
            format!("<svg width={width} height={height} font-size=11 font-family=sans-serif>");
        let _ = write!(svg, "<text x={MARGIN} y=20 font-size=13>{}</text>", escaped(&self.title));
        for value in across.marks() {
            let (x, y) = (place((value, up.from)).0, MARGIN + HEIGHT);
            let _ = write!(
                svg,
                "<line x1={x} x2={x} y1={MARGIN} y2={y} stroke=#eee /><text x={x} y={} text-anchor=middle>{value}</text>",
                y + 14.0
            );
        }
        for value in up.marks() {
            let (y, end) = (place((across.from, value)).1, MARGIN + WIDTH);
            let _ = write!(
                svg,
                "<line x1={MARGIN} x2={end} y1={y} y2={y} stroke=#eee /><text x={} y={y} text-anchor=end>{value}</text>",
                MARGIN - 4.0
            );
        }
        let _ = write!(
            svg,
            "<text x={} y={} text-anchor=end>{}</text>",
            MARGIN + WIDTH,
            MARGIN + HEIGHT + 28.0,
            escaped(&self.x)
        );
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let points = series
                .points
                .iter()
                .filter(|(x, y)| shown(x) && shown(y))
                .map(|point| place(*point));
            let line: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let y = MARGIN + HEIGHT + 42.0 + 14.0 * number as f64;
            let _ = write!(
                svg,
                "<polyline fill=none stroke={colour} stroke-width=2 points=\"{}\" /><rect x={MARGIN} y={} width=10 height=10 fill={colour} /><text x={} y={y}>{}</text>",
                line.join(" "),
                y - 9.0,
                MARGIN + 16.0,
                escaped(&series.name),
            );
        }
        svg + "</svg>"
    }
}

/// A logarithmic axis.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let from = values.clone().fold(f64::INFINITY, f64::min);
        let to = values.fold(0.0, f64::max);
        match from.is_finite() && to > from {
            true => Axis { from, to },
            false => Axis { from: 1.0, to: 10.0 },
        }
    }

    /// From 0 to 1.
    fn at(&self, value: f64) -> f64 {
        (value / self.from).ln() / (self.to / self.from).ln()
    }

    /// Powers of ten.
    fn marks(&self) -> Vec<f64> {
        let powers = self.from.log10().ceil() as i32..=self.to.log10().floor() as i32;
        powers.map(|power| 10f64.powi(power)).collect()
    }
}
