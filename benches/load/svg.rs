//! A plot as inline SVG, with logarithmic axes.

use std::ops::Range;

use plotters::prelude::*;

use crate::support::Result;

pub struct Chart {
    pub title: String,
    pub x: String,
    pub series: Vec<Series>,
}

pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: u32 = 640;
const HEIGHT: u32 = 360;
/// The height of one name below the plot.
const LINE: u32 = 16;

impl Chart {
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, self.size()).into_drawing_area())?;
        Ok(svg)
    }

    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT + LINE * self.series.len() as u32)
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result {
        let (plot, names) = area.split_vertically(HEIGHT);
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let (across, up) = (span(points().map(|(x, _)| x)), span(points().map(|(_, y)| y)));
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(across.log_scale(), up.log_scale())?;
        let label = |value: &f64| value.to_string();
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).x_label_formatter(&label).y_label_formatter(&label);
        mesh.max_light_lines(1).draw()?;
        for (number, series) in self.series.iter().enumerate() {
            let (colour, y) = (Palette99::pick(number), LINE as i32 * number as i32);
            let shown = series.points.iter().copied().filter(|(x, y)| is_shown(x) && is_shown(y));
            chart.draw_series(LineSeries::new(shown, colour.stroke_width(2)))?;
            names.draw(&Rectangle::new([(60, y), (70, y + 10)], colour.filled()))?;
            names.draw(&Text::new(series.name.as_str(), (76, y), ("sans-serif", 14)))?;
        }
        Ok(area.present()?)
    }
}

fn span(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (from, to) = values
        .filter(is_shown)
        .fold((f64::INFINITY, 0.0), |(from, to), value| (value.min(from), value.max(to)));
    if from < to { from..to } else { 1.0..10.0 }
}

/// Returns true if the value has a place on a logarithmic axis.
fn is_shown(value: &f64) -> bool {
    value.is_finite() && *value > 0.0
}
