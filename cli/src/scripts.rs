//! `rwlease scripts`: writes the Lua scripts, as servers get them.

use std::fs;
use std::io::{Error, Write};
use std::path::Path;

use crate::exit::{CliError, ExitStatus};

pub fn write(folder: &Path) -> Result<ExitStatus, CliError> {
    let mut out = anstream::stdout().lock();
    for script in rwlease::scripts() {
        let file = folder.join(format!("{}.lua", script.name()));
        write_file(&file, script.text()).map_err(|error| {
            Error::new(error.kind(), format!("cannot write {}: {error}", file.display()))
        })?;
        writeln!(out, "{}  {}", script.digest(), file.display())?;
    }
    out.flush()?;
    Ok(ExitStatus::DONE)
}

fn write_file(file: &Path, text: &str) -> Result<(), Error> {
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(file, text)
}
