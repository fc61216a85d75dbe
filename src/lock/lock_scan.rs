use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, Stream};
use rwlease_core::protocol::Confirmation;
use rwlease_core::resp::{Address, Command, ReplyShape, RespValue};

use crate::client::ClientHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::fenced;

/// How many keys a server examines in one step by default.
const STEP: u32 = 500;

/// The names of the read/write locks and semaphores on the servers.
///
/// A lock exists while a client
/// holds it or waits for it, and some seconds longer. Made by
/// [`Client::scan`](crate::Client::scan).
///
/// It queries one master after another by `SCAN`, a bounded step at a time, so that it does not
/// block the servers. A lock that exists from the beginning to the end is named at least once,
/// unless its slot moves meanwhile: then it can be missed. A name can come twice. The list includes
/// every hash whose key has the prefix of the locks, even a hash that is no lock, but no [fenced
/// value](crate::FencedValue).
/// [`status`](crate::RwLock::status) distinguishes them: it fails with
/// [`WrongType`](ErrorKind::WrongType) for a semaphore, and the status of a semaphore fails in the
/// same way for a lock.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().await?;
/// let held = client.rwlock("order:{42}")?.read().await?;
/// let mut orders = client.scan("order:");
/// while let Some(names) = orders.next_page().await? {
///     assert_eq!(names, ["order:{42}"]);
/// }
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
#[must_use = "a listing sends nothing until it is read"]
pub struct LockScan {
    client: Arc<ClientHandle>,
    pattern: Vec<u8>,
    step: u32,
    /// The masters still to be queried, or `None` before the first step.
    masters: Option<VecDeque<Address>>,
    cursor: Bytes,
}

impl LockScan {
    pub(crate) fn new(client: Arc<ClientHandle>, start: &str) -> Self {
        let pattern = starting_with(&[&client.settings.key_prefix, start].concat());
        LockScan { client, pattern, step: STEP, masters: None, cursor: Bytes::from_static(b"0") }
    }

    /// Sets about how many keys a server examines in one step, at least 1, and so the size of a
    /// page at most. Default: 500.
    pub fn scan_count(mut self, keys: u32) -> Self {
        self.step = keys.max(1);
        self
    }

    /// Returns the next names, at least one, or `None` at the end. It makes steps until there is a
    /// name, each one round trip.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if a master does not answer: the next call tries it
    /// again, unless [`skip_master`](Self::skip_master) gives up on it.
    /// [`Rejected`](ErrorKind::Rejected) if the user lacks the right to `SCAN`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call makes the same step again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<String>>> {
        let router = &self.client.transport;
        let masters = self.masters.get_or_insert_with(|| router.masters().into());
        while let Some(master) = masters.front() {
            let command = Command::new()
                .arg("SCAN")
                .arg(&self.cursor)
                .arg("MATCH")
                .arg(&self.pattern)
                .arg("COUNT")
                .arg_u64(self.step.into())
                .arg("TYPE")
                .arg("hash")
                .expecting(ReplyShape::List);
            let until = self.client.call_deadline(Confirmation::default());
            let (cursor, keys) = step(router.query(master, &command, until).await?)?;
            if cursor == "0" {
                masters.pop_front();
            }
            self.cursor = cursor;
            let prefix = self.client.settings.key_prefix.len();
            let name = |key: Bytes| {
                let name = std::str::from_utf8(key.get(prefix..)?).ok()?;
                (!name.starts_with(fenced::KEY_INFIX)).then(|| name.to_owned())
            };
            let names: Vec<String> = keys.into_iter().filter_map(name).collect();
            if !names.is_empty() {
                return Ok(Some(names));
            }
        }
        Ok(None)
    }

    /// Gives up on the master that [`next_page`](Self::next_page) failed at, and returns its
    /// address. The next page is of the next master, so the locks of this one are missing. `None`
    /// before the first page and at the end.
    pub fn skip_master(&mut self) -> Option<String> {
        let skipped = self.masters.as_mut()?.pop_front()?;
        self.cursor = Bytes::from_static(b"0");
        Some(skipped.to_string())
    }

    /// Returns the names as a stream. It ends after the first error, which is one of
    /// [`next_page`](Self::next_page).
    pub fn into_stream(self) -> impl Stream<Item = Result<String>> + Send {
        let begin = (Some(self), Vec::new().into_iter());
        stream::unfold(begin, async |(listing, mut page)| {
            if let Some(name) = page.next() {
                return Some((Ok(name), (listing, page)));
            }
            let mut listing: LockScan = listing?;
            match listing.next_page().await {
                Ok(Some(names)) => {
                    let mut page = names.into_iter();
                    page.next().map(|name| (Ok(name), (Some(listing), page)))
                }
                Ok(None) => None,
                Err(error) => Some((Err(error), (None, page))),
            }
        })
    }
}

debug_fields!(|scan| LockScan {
    pattern: String::from_utf8_lossy(&scan.pattern),
    masters: scan.masters,
    ..
});

/// The pattern of keys that begin with `start`.
fn starting_with(start: &str) -> Vec<u8> {
    let mut pattern = Vec::new();
    for byte in start.bytes() {
        if b"*?[]\\^-".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

/// The cursor and the keys in a reply to `SCAN`.
fn step(reply: RespValue) -> Result<(Bytes, Vec<Bytes>)> {
    let text = |reply| match reply {
        RespValue::String(text) => Some(text),
        _ => None,
    };
    let read = match reply {
        RespValue::Array(parts) => match <[RespValue; 2]>::try_from(parts) {
            Ok([cursor, RespValue::Array(keys)]) => {
                text(cursor).zip(keys.into_iter().map(text).collect::<Option<Vec<Bytes>>>())
            }
            _ => None,
        },
        _ => None,
    };
    read.ok_or_else(|| Error::new(ErrorKind::UnsupportedVersion, "malformed reply to SCAN"))
}

#[cfg(test)]
mod tests;
