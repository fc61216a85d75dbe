//! What the doctor prints.

use std::fmt;

use anstyle::{AnsiColor, Style};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    /// The nodes that the finding is about; none if it is about all.
    pub nodes: Vec<String>,
    pub says: String,
}

/// In the order in which they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Fine,
    /// No fault, but good to know.
    Note,
    /// Can break a lock when something else goes wrong.
    Warning,
    /// Breaks locks.
    Wrong,
}

impl Finding {
    pub fn new(level: Level, says: impl Into<String>) -> Self {
        let says = says.into();
        Finding { level, nodes: Vec::new(), says }
    }

    pub fn at(mut self, node: impl Into<String>) -> Self {
        self.nodes.push(node.into());
        self
    }
}

/// Merges equal findings of several nodes.
pub fn together(findings: Vec<Finding>) -> Vec<Finding> {
    let mut together: Vec<Finding> = Vec::new();
    for finding in findings {
        let same = together
            .iter_mut()
            .find(|other| (other.level, &other.says) == (finding.level, &finding.says));
        match same {
            Some(same) => same.nodes.extend(finding.nodes),
            None => together.push(finding),
        }
    }
    together
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, color) = match self.level {
            Level::Fine => ("ok", AnsiColor::Green),
            Level::Note => ("note", AnsiColor::Cyan),
            Level::Warning => ("warning", AnsiColor::Yellow),
            Level::Wrong => ("wrong", AnsiColor::Red),
        };
        let style = Style::new().fg_color(Some(color.into())).bold();
        write!(f, "{style}{word:<8}{style:#} ")?;
        if !self.nodes.is_empty() {
            write!(f, "{}: ", self.nodes.join(", "))?;
        }
        f.write_str(&self.says)
    }
}
