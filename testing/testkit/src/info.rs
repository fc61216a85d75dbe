//! The server's counters of commands and memory.

use std::collections::BTreeMap;

use super::{Error, PollLimit, Result, Server};

/// The count of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandStat {
    pub calls: u64,
    /// Microseconds spent in it, all calls together.
    pub usec: u64,
    /// How many of the calls were answered by an error.
    pub failed: u64,
}

/// How many scripts ran to their ends.
pub fn scripts_run(stats: &BTreeMap<String, CommandStat>) -> u64 {
    let of = |name| stats.get(name).map_or(0, |stat: &CommandStat| stat.calls - stat.failed);
    of("eval") + of("evalsha")
}

impl Server {
    /// The number of replicas to which this master sends what it writes.
    pub async fn replicas_in_step(&self) -> Result<usize> {
        let info = self.info("replication").await?;
        Ok(info.values().filter(|value| value.contains("state=online")).count())
    }

    /// The fields of a section of `INFO`.
    pub async fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        let text: String = self.run_words(&format!("INFO {section}")).await?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_string(), value.trim().to_string())).collect())
    }

    /// The commands run since the last reset, by their names in lower case. Commands inside scripts
    /// count too, and so do those of the connection that queries (`hello`, `client|setinfo`,
    /// `info`).
    pub async fn command_stats(&self) -> Result<BTreeMap<String, CommandStat>> {
        let fields = self.info("commandstats").await?;
        let stat = |(name, value): (String, String)| {
            let stat = CommandStat {
                calls: number(&value, "calls=")?,
                usec: number(&value, "usec=")?,
                failed: number(&value, "failed_calls=").unwrap_or(0),
            };
            Some((name.strip_prefix("cmdstat_")?.to_string(), stat))
        };
        Ok(fields.into_iter().filter_map(stat).collect())
    }

    /// How often one command was run since the last reset.
    pub async fn calls(&self, command: &str) -> Result<u64> {
        Ok(self.command_stats().await?.get(command).map_or(0, |stat| stat.calls))
    }

    /// Waits until the command ran `times` more times.
    pub async fn wait_until_called(&self, command: &str, times: u64) -> Result {
        let wait_limit = PollLimit::new(format!("{times} calls of {command}"));
        let before = self.calls(command).await?;
        let is_over = || async { Ok(self.calls(command).await?.saturating_sub(before) >= times) };
        wait_limit.until(is_over).await
    }

    pub async fn reset_stats(&self) -> Result {
        self.run_words("CONFIG RESETSTAT").await
    }

    /// Bytes that the server has allocated.
    pub async fn used_memory(&self) -> Result<u64> {
        let memory = self.info("memory").await?;
        let used = memory.get("used_memory").and_then(|bytes| bytes.parse().ok());
        used.ok_or_else(|| Error::new("INFO memory says no used_memory"))
    }
}

/// The number after `name` in `calls=2,usec=10,...`.
fn number(value: &str, name: &str) -> Option<u64> {
    value.split(',').find_map(|part| part.strip_prefix(name))?.parse().ok()
}
