//! The costs that the model uses: times in microseconds, sizes in bytes.

use std::fs;

use common::Table;

use crate::format_value;

pub const TAKE: &str = "take a free lock to write, script, µs";
pub const RELEASE: &str = "give it back, script, µs";
pub const RENEW: &str = "renew a lease, script, µs";
pub const JOIN: &str = "join the queue, script, µs";
pub const POLL: &str = "poll, script, µs";
pub const HAND_OVER: &str = "release and hand over, script, µs";
pub const IDLE_LOCK: &str = "idle lock at the server, bytes";
pub const HELD_LOCK: &str = "lock with one writer, bytes";
pub const WAITER: &str = "waiter of a lock, bytes";
pub const GUARD: &str = "guard at the client, bytes";
pub const COMMAND: &str = "a command beside its script, µs";
pub const DIAL: &str = "a dial, µs";
pub const SUBSCRIBE: &str = "SSUBSCRIBE, µs";
/// The slot maps of as many masters as in [`SIZES`].
pub const MAPS: [&str; 3] =
    ["the slot map of 10 masters, µs", "of 100 masters, µs", "of 1,000 masters, µs"];
pub const MAP_BYTES: [&str; 3] = [
    "the slot map of 10 masters, bytes on the wire",
    "of 100 masters, bytes on the wire",
    "of 1,000 masters, bytes on the wire",
];
pub const CONNECTION: &str = "connection at the server, bytes";
pub const CHANNEL: &str = "subscribed channel at the server, bytes";
pub const CLIENT: &str = "client without connections, bytes";
pub const CLIENT_CONNECTION: &str = "connection at the client, bytes";

/// The numbers of masters for which maps are measured and tables are printed.
pub const SIZES: [u16; 3] = [10, 100, 1_000];

/// Cells of the tables of the bench `scripts`: the corner, the row, the column. Queues of a fleet
/// are short, and do not change the times.
const OF_SCRIPTS: [(&str, &str, &str, &str); 9] = [
    (TAKE, "uncontended", "write, one try", "acquire"),
    (RELEASE, "uncontended", "write, one try", "release"),
    (RENEW, "µs by readers", "renew", "1"),
    (JOIN, "µs by waiting writers", "join the queue", "100"),
    (POLL, "µs by waiting writers", "poll", "100"),
    (HAND_OVER, "µs by waiting writers", "release, hand over", "100"),
    (IDLE_LOCK, "memory of 10,000", "lock that was written, idle", "bytes of each"),
    (HELD_LOCK, "memory of 10,000", "lock with one writer", "bytes of each"),
    (WAITER, "memory of 10,000", "waiter of one lock", "bytes of each"),
];

/// The name, the value and the bench of each.
pub struct Inputs(Vec<(&'static str, f64, &'static str)>);

impl Inputs {
    /// Reads the results that `make bench` has left.
    pub fn from_other_benches() -> Inputs {
        let scripts = result("scripts");
        let mut inputs = Inputs(Vec::new());
        for (name, corner, row, column) in OF_SCRIPTS {
            let value = cell(&scripts, corner, row, column);
            let value = value.unwrap_or_else(|| panic!("no {corner}, {row}, {column}"));
            inputs.0.push((name, value, "scripts"));
        }
        let allocations = result("allocations");
        let guard = allocations.split_once("Each guard takes ").and_then(|(_, rest)| number(rest));
        inputs.0.push((GUARD, guard.expect("the bytes of a guard"), "allocations"));
        inputs
    }

    pub fn measured(&mut self, name: &'static str, value: f64) {
        self.0.push((name, value, "scale"));
    }

    pub fn of(&self, name: &str) -> f64 {
        let input = self.0.iter().find(|input| input.0 == name);
        input.unwrap_or_else(|| panic!("no input {name}")).1
    }

    pub fn table(&self) -> Table {
        let mut table = Table::new(&["input", "value", "bench"]);
        for &(name, value, source) in &self.0 {
            table.add([name.into(), format_value(value, 100.0), source.into()]);
        }
        table
    }
}

fn result(bench: &str) -> String {
    let file = format!("{}/../docs/results/bench/{bench}.md", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&file).unwrap_or_else(|_| panic!("no {file}: make bench BENCH={bench}"))
}

/// A cell of the table whose first heading begins with `corner`.
fn cell(text: &str, corner: &str, row: &str, column: &str) -> Option<f64> {
    let mut lines =
        text.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect());
    let heads: Vec<&str> = lines.find(|cells: &Vec<&str>| cells[0].starts_with(corner))?;
    let at = heads.iter().position(|head| *head == column)?;
    let cells = lines.take_while(|cells| cells.len() > 1).find(|cells| cells[0] == row)?;
    number(cells.get(at)?)
}

/// The number at the start of the text.
fn number(text: &str) -> Option<f64> {
    text.split(' ').next()?.replace(',', "").parse().ok()
}
