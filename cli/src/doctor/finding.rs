//! What the doctor prints.

use std::fmt;

use anstyle::{AnsiColor, Style};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// The nodes of the finding. Empty if the finding is about the whole deployment.
    pub nodes: Vec<String>,
    pub message: String,
}

/// In the order in which they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Ok,
    /// No fault, but good to know.
    Info,
    /// Can break a lock when something else goes wrong.
    Warning,
    /// Breaks locks.
    Error,
}

impl Finding {
    pub fn new(level: Severity, says: impl Into<String>) -> Self {
        let says = says.into();
        Finding { severity: level, nodes: Vec::new(), message: says }
    }

    pub fn ok(says: impl Into<String>) -> Self {
        Finding::new(Severity::Ok, says)
    }

    pub fn info(says: impl Into<String>) -> Self {
        Finding::new(Severity::Info, says)
    }

    pub fn warning(says: impl Into<String>) -> Self {
        Finding::new(Severity::Warning, says)
    }

    pub fn error(says: impl Into<String>) -> Self {
        Finding::new(Severity::Error, says)
    }

    pub fn at(mut self, node: impl Into<String>) -> Self {
        self.nodes.push(node.into());
        self
    }
}

/// Merges equal findings of several nodes.
pub fn merge_equal(findings: Vec<Finding>) -> Vec<Finding> {
    let mut together: Vec<Finding> = Vec::new();
    for finding in findings {
        let same = together
            .iter_mut()
            .find(|other| (other.severity, &other.message) == (finding.severity, &finding.message));
        match same {
            Some(same) => same.nodes.extend(finding.nodes),
            None => together.push(finding),
        }
    }
    together
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, color) = match self.severity {
            Severity::Ok => ("ok", AnsiColor::Green),
            Severity::Info => ("note", AnsiColor::Cyan),
            Severity::Warning => ("warning", AnsiColor::Yellow),
            Severity::Error => ("wrong", AnsiColor::Red),
        };
        let style = Style::new().fg_color(Some(color.into())).bold();
        write!(f, "{style}{word:<8}{style:#} ")?;
        if !self.nodes.is_empty() {
            write!(f, "{}: ", self.nodes.join(", "))?;
        }
        f.write_str(&self.message)
    }
}
