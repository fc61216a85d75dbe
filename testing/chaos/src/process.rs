//! What the system reports about a process.

/// Its state: `R`, `S`, ..., `T` for a stopped process; nothing if it is gone.
pub fn state(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// The memory of a process that is not swapped out.
pub fn memory_kib(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// How many sockets a process has open.
pub fn socket_count(id: u32) -> u64 {
    let Ok(files) = std::fs::read_dir(format!("/proc/{id}/fd")) else { return 0 };
    let targets = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count() as u64
}
