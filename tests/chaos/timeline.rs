//! A picture of a run: one line for each lock, with its holders, waiters and losses, and the faults
//! behind them.

use std::fmt::Write;

use rwlease::LockMode;

use crate::chaos::history::{Hold, Nanos};
use crate::chaos::run::Run;

const WIDTH: f64 = 1_600.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 50.0;
const LINE: f64 = 18.0;

/// The longest part of a run that is drawn. It begins shortly before the first fault.
const LONGEST: Nanos = 40_000_000_000;
const BEFORE: Nanos = 2_000_000_000;

/// The locks with the long holds, and some of the others.
const LOCKS: usize = 24;

pub fn draw(run: &Run) -> String {
    let scene = &run.scene;
    let starts = || scene.history.holds().map(|hold| hold.requested);
    let (first, last) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
    let fault = scene.faults.first().map_or(first, |fault| fault.at.saturating_sub(BEFORE));
    let from = fault.max(first);
    let to = last.min(from + LONGEST).max(from + 1);
    let place = |at: Nanos| LEFT + (at.clamp(from, to) - from) as f64 / (to - from) as f64 * WIDTH;
    let locks: Vec<usize> = (0..scene.names.len()).rev().take(LOCKS).collect();
    let height = TOP + locks.len() as f64 * LINE + 30.0;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{}' height='{height}' font-family='sans-serif' font-size='11'><rect width='100%' height='100%' fill='white'/>\
         <text x='{LEFT}' y='16' font-size='13'>{} {} on {}, seed {}: holds for writing dark, for reading light, waits thin, losses red, faults grey</text>",
        WIDTH + LEFT + 20.0,
        run.row.name,
        run.variant.name,
        run.version,
        run.seed
    );
    for fault in scene.faults.iter().filter(|fault| fault.at < to && fault.until > from) {
        let (x, end) = (place(fault.at), place(fault.until));
        let _ = write!(
            svg,
            "<rect x='{x:.1}' y='{TOP}' width='{:.1}' height='{:.1}' fill='#ddd'><title>{}: {}</title></rect><text x='{x:.1}' y='{}' fill='#777'>{}</text>",
            (end - x).max(1.0),
            height - TOP - 30.0,
            fault.what,
            fault.proof,
            TOP - 6.0,
            fault.what
        );
    }
    for second in 0..=(to - from) / 1_000_000_000 {
        let x = place(from + second * 1_000_000_000);
        let _ = write!(svg, "<text x='{x:.1}' y='{}' fill='#999'>{second} s</text>", height - 10.0);
    }
    for (line, &lock) in locks.iter().enumerate() {
        let y = TOP + line as f64 * LINE;
        let _ = write!(svg, "<text x='6' y='{}'>{}</text>", y + 12.0, scene.names[lock]);
        for hold in scene.history.holds().filter(|hold| hold.name == lock) {
            draw_hold(&mut svg, hold, y, (from, to), &place);
        }
    }
    svg + "</svg>"
}

fn draw_hold(
    svg: &mut String,
    hold: &Hold,
    y: f64,
    (from, to): (Nanos, Nanos),
    place: &impl Fn(Nanos) -> f64,
) {
    let granted = hold.granted.map(|grant| grant.at);
    let over =
        hold.lost.or(hold.ended.map(|(at, _)| at)).or(hold.granted.map(|grant| grant.deadline));
    let end = over.or(hold.failed.as_ref().map(|(at, _)| *at)).unwrap_or(to);
    if end < from || hold.requested > to {
        return;
    }
    let (requested, got) = (place(hold.requested), place(granted.unwrap_or(end)));
    if got - requested > 1.0 {
        let middle = y + LINE / 2.0;
        let _ = write!(
            svg,
            "<path d='M{requested:.1} {middle}H{got:.1}' stroke='#c9a227' stroke-width='.7'/>"
        );
    }
    if granted.is_some() {
        let colour = if hold.mode == LockMode::Write { "#1b6ca8" } else { "#9ecae1" };
        let _ = write!(
            svg,
            "<rect x='{got:.1}' y='{}' width='{:.1}' height='{}' fill='{colour}'/>",
            y + 3.0,
            (place(end) - got).max(0.5),
            LINE - 6.0
        );
    }
    if let Some(lost) = hold.lost {
        let _ = write!(
            svg,
            "<rect x='{:.1}' y='{}' width='2' height='{}' fill='#d1495b'/>",
            place(lost),
            y + 1.0,
            LINE - 2.0
        );
    }
}
