use rwlease_core::protocol::{MAX_HOST_LEN, MAX_LABEL_LEN};

use crate::error::{Error, Result};

/// Stands for a host without a known name.
const UNKNOWN_HOST: &str = "-";

/// Who a client is, in one word: in its record and in the servers' `CLIENT LIST`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientLabel {
    /// The host name up to its first dot, and the process id.
    #[default]
    HostAndPid,
    /// The label, or empty for none.
    Text(String),
}

impl ClientLabel {
    /// Fails for a label that `CLIENT SETNAME` refuses, or that is too long.
    pub(crate) fn check(&self) -> Result<()> {
        let ClientLabel::Text(label) = self else { return Ok(()) };
        let is_printable = label.bytes().all(|byte| byte.is_ascii_graphic());
        Error::ensure(is_printable && label.len() <= MAX_LABEL_LEN, || {
            format!(
                "`label` must have at most {MAX_LABEL_LEN} characters, all printable ASCII and no \
                 spaces, not {label:?}"
            )
        })
    }

    /// The label, or `None` if it is empty.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            ClientLabel::HostAndPid => Some(host_and_pid(&host_name(), std::process::id())),
            ClientLabel::Text(label) => Some(label.clone()).filter(|label| !label.is_empty()),
        }
    }
}

fn host_and_pid(host: &str, pid: u32) -> String {
    let pid = format!(":{pid}");
    let short = host.split('.').next().unwrap_or_default();
    format!("{}{pid}", &short[..short.len().min(MAX_LABEL_LEN - pid.len())])
}

/// The name of this host in printable ASCII, without spaces.
pub(crate) fn host_name() -> String {
    as_word(&system_host_name())
}

fn as_word(host: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() { c } else { '-' };
    let word: String = host.chars().map(printable).take(MAX_HOST_LEN).collect();
    if word.is_empty() { UNKNOWN_HOST.to_owned() } else { word }
}

#[cfg(unix)]
fn system_host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn system_host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests;
