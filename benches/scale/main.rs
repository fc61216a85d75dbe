//! The cost of locks at scale: a load times the costs that benches measure, for `docs/scale.md`.
//!
//! `make bench BENCH=scale` measures the costs that no other bench prints, takes the others from
//! the results of `scripts` and `allocations`, and prints the tables.

mod inputs;
mod measure;
mod model;
mod tables;

use inputs::Inputs;

#[tokio::main]
async fn main() {
    let mut inputs = Inputs::from_other_benches();
    let version = measure::measure(&mut inputs).await;
    println!("## inputs\n\n{version}\n\n{}", inputs.table());
    for (name, table) in tables::all(&inputs) {
        println!("## {name}\n\n{table}");
    }
}

/// Formats a number with one decimal, or a large one with a comma before each three digits.
fn format_value(value: f64, one_decimal_below: f64) -> String {
    if value < one_decimal_below {
        return format!("{value:.1}");
    }
    let mut text = format!("{value:.0}");
    for place in (1..text.len())
        .rev()
        .filter(|place| (text.len() - place).is_multiple_of(3))
        .collect::<Vec<_>>()
    {
        text.insert(place, ',');
    }
    text
}
