//! Reads figures out of what another bench has printed.

use std::fs;

const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/results/bench");

/// What a bench printed.
pub struct BenchOutput {
    name: &'static str,
    text: String,
}

impl BenchOutput {
    pub fn by(name: &'static str) -> BenchOutput {
        let file = format!("{RESULTS}/{name}.md");
        let text = fs::read_to_string(&file)
            .unwrap_or_else(|_| panic!("no {file}: `make bench BENCH={name}` makes it"));
        BenchOutput { name, text }
    }

    /// A cell of the table whose first heading begins with `corner`.
    pub fn cell(&self, corner: &str, row: &str, column: &str) -> f64 {
        let mut lines = self.text.lines().map(cells);
        let found = lines.find(|cells| cells[0].starts_with(corner)).and_then(|heads| {
            let at = heads.iter().position(|head| *head == column)?;
            let mut rows = lines.take_while(|cells| cells.len() > 1);
            rows.find(|cells| cells[0] == row)?.get(at)?.replace(',', "").parse().ok()
        });
        found.unwrap_or_else(|| panic!("{} printed no {corner}, {row}, {column}", self.name))
    }

    /// The number behind these words.
    pub fn number_after(&self, words: &str) -> f64 {
        let number = self.text.split_once(words).and_then(|(_, rest)| rest.split(' ').next());
        let number = number.and_then(|number| number.replace(',', "").parse().ok());
        number.unwrap_or_else(|| panic!("{} did not print {words:?}", self.name))
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}
