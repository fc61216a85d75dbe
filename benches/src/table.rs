//! A table in Markdown, aligned to be readable as plain text.

use std::fmt;

pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(|cell| cell.to_string()).collect(), rows: Vec::new() }
    }

    pub fn add(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.head).chain(&self.rows)
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.lines().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).fold(4, usize::max)
    }
}

/// Names are aligned to the left, numbers to the right.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.lines().enumerate() {
            for (column, cell) in line.iter().enumerate() {
                let width = self.width(column);
                match column {
                    0 => write!(f, "| {cell:<width$} |")?,
                    _ => write!(f, " {cell:>width$} |")?,
                }
            }
            writeln!(f)?;
            if number == 0 {
                write!(f, "| {} |", "-".repeat(self.width(0)))?;
                for column in 1..line.len() {
                    write!(f, " {}: |", "-".repeat(self.width(column) - 1))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
