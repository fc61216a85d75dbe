//! Generates completions and manual pages from the argument parser.

use std::io::{self, Write};

use clap_complete::Shell;

use crate::args;
use crate::exit::{Exit, Failure};

pub fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "rwlease", &mut script);
    print(&script)
}

/// The page of one command, or of `rwlease` itself.
pub fn man(command: Option<&str>) -> Result<Exit, Failure> {
    let mut all = args::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let named = all.find_subcommand(name);
            let named = named.ok_or_else(|| {
                Failure::usage(format!("no command `{name}`; see `rwlease --help`"))
            })?;
            named.clone().name(format!("rwlease-{name}"))
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    print(&text)
}

fn print(text: &[u8]) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()?;
    Ok(Exit::DONE)
}
