//! What the system reports about a process.

/// Its state: `R`, `S`, ..., `T` for a stopped process; nothing if it is gone.
pub fn state(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}
