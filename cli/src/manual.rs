//! Generates completions and manual pages from the argument parser.

use std::io::{self, Write};

use clap_complete::Shell;

use crate::args;
use crate::exit::{CliError, ExitStatus};

pub fn completions(shell: Shell) -> Result<ExitStatus, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "rwlease", &mut script);
    print(&script)
}

/// Prints the page of one command, or of `rwlease` itself.
pub fn man(command: Option<&str>) -> Result<ExitStatus, CliError> {
    let mut all = args::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let named = all.find_subcommand(name);
            let named = named.ok_or_else(|| {
                CliError::usage(format!("no command `{name}`; see `rwlease --help`"))
            })?;
            named.clone().name(format!("rwlease-{name}"))
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page.clone()).render(&mut text)?;
    let text = with_usage(&String::from_utf8_lossy(&text), page);
    print(with_sections(&text).as_bytes())
}

/// Replaces the synopsis by the usage of `--help`, because the synopsis lacks the `--` before a
/// command.
fn with_usage(page: &str, mut command: clap::Command) -> String {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    let mut in_synopsis = false;
    let lines = page.lines().map(|line| {
        let is_body = std::mem::replace(&mut in_synopsis, line == ".SH SYNOPSIS");
        if is_body { &*usage } else { line }
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Splits the section `EXTRA` of the generator into examples and exit statuses. The lines of both
/// stay as they are and are not filled.
fn with_sections(page: &str) -> String {
    let mut lines = Vec::new();
    let mut is_extra = false;
    for line in page.lines() {
        match line {
            ".SH EXTRA" => is_extra = true,
            "Example:" | "Examples:" if is_extra => lines.extend([".SH EXAMPLES", ".nf"]),
            "Exit status:" if is_extra => lines.extend([".fi", ".SH EXIT STATUS", ".nf"]),
            "" if is_extra => {}
            _ => {
                if is_extra && line.starts_with(".SH") {
                    lines.push(".fi");
                    is_extra = false;
                }
                lines.push(line);
            }
        }
    }
    if is_extra {
        lines.push(".fi");
    }
    lines.into_iter().flat_map(|line| [line, "\n"]).collect()
}

fn print(text: &[u8]) -> Result<ExitStatus, CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()?;
    Ok(ExitStatus::DONE)
}
