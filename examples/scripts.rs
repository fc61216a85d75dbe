//! Writes the scripts, as servers get them, into a folder:
//! `cargo run -p rwlease --example scripts -- FOLDER`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "target/lua".into()));
    for script in rwlease::scripts() {
        let file = folder.join(format!("{}.lua", script.name()));
        if let Some(part) = file.parent() {
            std::fs::create_dir_all(part)?;
        }
        std::fs::write(&file, script.text())?;
        println!("{}  {}", script.digest(), file.display());
    }
    Ok(())
}
