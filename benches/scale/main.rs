//! The cost of locks at scale: a model, compared with a simulation.
//!
//! `make bench BENCH=scale` measures the inputs that no other bench prints, prints the tables of
//! `docs/scale.md`, and runs the simulation. `cargo bench -p rwlease-bench --bench scale --
//! --simulate MASTERS CLIENTS` only runs a simulation of another size. The bench fails if a lease
//! was lost, or if two clients held one lock.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub
)]

mod bench_output;
mod compare;
mod costs;
mod inputs;
mod measure;
mod model;
mod simulation;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../common/table.rs"]
mod table;

use std::process::ExitCode;

use compare::Comparison;
use inputs::Inputs;

const MASTERS: u16 = 100;
const CLIENTS: usize = 1_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut sections = Vec::new();
    if !arguments.iter().any(|argument| argument == "--simulate") {
        sections.extend(model_sections());
    }
    let mut sizes = arguments.iter().filter_map(|argument| argument.parse::<usize>().ok());
    let masters = sizes.next().map_or(MASTERS, |masters| masters as u16);
    let Comparison { tables, outcome, facts, is_safe } =
        compare::compare(masters, sizes.next().unwrap_or(CLIENTS));
    sections.push(("the simulation".into(), format!("{facts}\n\n{outcome}")));
    for (name, table) in tables {
        sections.push((format!("simulated {name}"), table.to_string()));
    }
    for (name, text) in &sections {
        println!("## {name}\n\n{text}");
    }
    if is_safe { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sections with their names.
type Sections = Vec<(String, String)>;

fn model_sections() -> Sections {
    let mut inputs = Inputs::from_other_benches();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let version = runtime.block_on(measure::measure(&mut inputs));
    let section = |name: &str, table: table::Table| (name.to_string(), table.to_string());
    vec![
        ("inputs".into(), format!("{version}\n\n{}", inputs.table())),
        section("capacity", costs::capacity(&inputs)),
        section("steady", costs::steady(&inputs)),
        section("a client", costs::client_table(&inputs)),
        section("the most clients", costs::client_limit_table(&inputs)),
        section("failover", costs::storms(&inputs)),
        section("resharding", costs::resharding(&inputs)),
    ]
}

/// Formats a whole number with a comma before each three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("-{text}") } else { text }
}
