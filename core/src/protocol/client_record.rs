//! `client_record/write` and `client_record/read`: who a client is, in words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::call::Call;
use super::id::ClientId;
use super::reply::{Envelope, ReplyError, ReplyReader};
use super::script::ScriptName;
use crate::decimal::parse_u64;
use crate::resp::{Command, RespValue};
use crate::slot::Slot;

/// The version of the record's text, its first word.
const VERSION: &str = "1";

/// The longest name and version of a library, in bytes.
const MAX_VERSION_LEN: usize = 64;

/// The longest host name in a record, in bytes: the limit of DNS is 253.
pub const MAX_HOST_LEN: usize = 128;

/// The longest label, in bytes.
pub const MAX_LABEL_LEN: usize = 64;

/// Who a client is, as the client itself says.
///
/// A client writes it when it connects and then within each hour. The servers keep the first record
/// for two hours and later ones for a day. So a holder that died has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The label: `ClientBuilder::label` at the client.
    pub label: String,
    /// The name of its host, or `-` if the client does not know it.
    pub host: String,
    /// The id of its process on that host.
    pub pid: u32,
    /// The name and the version of its library, for example `rwlease/0.1.0`.
    pub version: String,
    /// When the client was made, by the clock of the server that has the record.
    pub started_at: SystemTime,
}

impl ClientInfo {
    /// A client of this process that has no record yet.
    pub fn new(label: String, host: String, pid: u32, version: String) -> ClientInfo {
        ClientInfo { label, host, pid, version, started_at: UNIX_EPOCH }
    }

    /// The words of the record, without the version of its text and the time of the start.
    pub fn description(&self) -> String {
        format!("{} {} {} {}", self.pid, self.version, self.host, self.label)
    }

    /// Parses a record. Later versions of the library may add words at its end. Anybody with the
    /// right to the key can write it, so its words are checked.
    fn parse(record: &str) -> Option<ClientInfo> {
        let mut words = record.split(' ');
        if words.next()? != VERSION {
            return None;
        }
        let started_ms = parse_u64(words.next()?.as_bytes())?;
        Some(ClientInfo {
            started_at: UNIX_EPOCH.checked_add(Duration::from_millis(started_ms))?,
            pid: parse_u64(words.next()?.as_bytes())?.try_into().ok()?,
            version: printable_word(words.next()?, MAX_VERSION_LEN)?,
            host: printable_word(words.next()?, MAX_HOST_LEN)?,
            label: printable_word(words.next()?, MAX_LABEL_LEN)?,
        })
    }
}

fn printable_word(word: &str, max_len: usize) -> Option<String> {
    let is_printable = word.bytes().all(|byte| byte.is_ascii_graphic());
    (is_printable && (1..=max_len).contains(&word.len())).then(|| word.to_owned())
}

/// Writes the record of a client.
#[derive(Clone, Debug)]
pub struct WriteRecordRequest<'a> {
    /// How long the client has run.
    pub age: Duration,
    pub ttl: Duration,
    pub description: &'a str,
}

impl WriteRecordRequest<'_> {
    pub fn call(&self, prefix: &str, client: &ClientId) -> Call {
        let args = Command::new()
            .arg_u64(self.age.as_millis() as u64)
            .arg_u64(self.ttl.as_millis() as u64)
            .arg(self.description);
        Call { args, script: ScriptName::ClientRecordWrite, ..read_record(prefix, client) }
    }

    /// Parses the reply: the time of the start, by the server's clock.
    pub fn read(&self, reply: RespValue) -> Result<SystemTime, ReplyError> {
        let (Envelope { server_now, .. }, status, _) = ReplyReader::parse_header(reply)?;
        match &*status {
            b"written" => {
                let started = Duration::from_millis(server_now).saturating_sub(self.age);
                let out_of_range = || ReplyError::Malformed("the time is out of range".into());
                UNIX_EPOCH.checked_add(started).ok_or_else(out_of_range)
            }
            _ => Err(ReplyError::unknown_status(&status)),
        }
    }
}

/// Reads the record of a client.
pub fn read_record(prefix: &str, client: &ClientId) -> Call {
    let key = Bytes::from(format!("{prefix}client:{client}"));
    Call {
        script: ScriptName::ClientRecordRead,
        slot: Slot::of(&key),
        key,
        second_key: None,
        args: Command::new(),
        not_after: None,
    }
}

/// Parses the reply of `client_record/read`. `None` if there is no record of a known version.
pub fn parse_record_reply(reply: RespValue) -> Result<Option<ClientInfo>, ReplyError> {
    let (_, status, mut rest) = ReplyReader::parse_header(reply)?;
    match &*status {
        b"found" => Ok(ClientInfo::parse(&rest.text()?)),
        b"not_found" => Ok(None),
        _ => Err(ReplyError::unknown_status(&status)),
    }
}

#[cfg(test)]
mod tests;
