//! Listing of the locks on the servers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, Stream};

use crate::backend::{Address, Command, ReplyShape, RespValue};
use crate::client::ClientHandle;
use crate::error::{Error, ErrorKind, Result};

/// How many keys a server examines in one step by default.
const STEP: u32 = 500;

/// The names of the read/write locks and semaphores on the servers: those that are held or waited
/// for, and those that were until some seconds ago. Made by [`Locks::list`](crate::Locks::list).
///
/// It queries one master after another by `SCAN`, a bounded step at a time, so that it does not
/// block the servers. A lock that exists from the beginning to the end is named at least once,
/// unless its slot moves meanwhile: then it can be missed. A name can come twice. A hash whose key
/// has the prefix of the locks is named even if it is no lock. [`status`](crate::RwLock::status)
/// tells them apart: the status of a semaphore as a lock is [`Foreign`](ErrorKind::Foreign), and
/// that of a lock as a semaphore as well.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let locks = rwlease::Locks::embedded().await?;
/// let held = locks.rwlock("order:{42}")?.read().await?;
/// let mut orders = locks.list("order:");
/// while let Some(names) = orders.next_page().await? {
///     assert_eq!(names, ["order:{42}"]);
/// }
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
#[must_use = "a listing sends nothing until it is read"]
pub struct Listing {
    client: Arc<ClientHandle>,
    pattern: Vec<u8>,
    step: u32,
    /// The masters still to be queried, or `None` before the first step.
    masters: Option<VecDeque<Address>>,
    cursor: Bytes,
}

impl Listing {
    pub(crate) fn new(client: Arc<ClientHandle>, start: &str) -> Self {
        let pattern = starting_with(&[&client.settings.key_prefix, start].concat());
        Listing { client, pattern, step: STEP, masters: None, cursor: Bytes::from_static(b"0") }
    }

    /// About how many keys a server examines in one step, and so the size of a page at most.
    /// Default: 500.
    pub fn step(mut self, keys: u32) -> Self {
        self.step = keys.max(1);
        self
    }

    /// The next names, at least one, or `None` at the end. It makes steps until there is a name,
    /// each one round trip.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if a master does not answer: the next call tries it
    /// again. [`Refused`](ErrorKind::Refused) if the user lacks the right to `SCAN`.
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
            let until = self.client.clock.now().saturating_add(self.client.settings.call_timeout);
            let (cursor, keys) = step(router.query(master, &command, until).await?)?;
            if cursor == "0" {
                masters.pop_front();
            }
            self.cursor = cursor;
            let prefix = self.client.settings.key_prefix.len();
            let name = |key: Bytes| std::str::from_utf8(key.get(prefix..)?).ok().map(str::to_owned);
            let names: Vec<String> = keys.into_iter().filter_map(name).collect();
            if !names.is_empty() {
                return Ok(Some(names));
            }
        }
        Ok(None)
    }

    /// The names as a stream. It ends after the first error, which is one of
    /// [`next_page`](Self::next_page).
    pub fn into_stream(self) -> impl Stream<Item = Result<String>> + Send {
        let begin = (Some(self), Vec::new().into_iter());
        stream::unfold(begin, async |(listing, mut page)| {
            if let Some(name) = page.next() {
                return Some((Ok(name), (listing, page)));
            }
            let mut listing: Listing = listing?;
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

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing")
            .field("pattern", &String::from_utf8_lossy(&self.pattern))
            .field("masters", &self.masters)
            .finish_non_exhaustive()
    }
}

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
    read.ok_or_else(|| Error::new(ErrorKind::Incompatible, "an answer that SCAN does not give"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_the_prefix_literally() {
        assert_eq!(starting_with("a*[b]?\\"), b"a\\*\\[b\\]\\?\\\\*");
        assert_eq!(starting_with(""), b"*");
    }

    #[test]
    fn a_step_is_read() {
        let text = |text: &'static str| RespValue::String(text.into());
        let reply =
            RespValue::Array(vec![text("17"), RespValue::Array(vec![text("a"), text("b")])]);
        assert_eq!(step(reply).unwrap(), ("17".into(), vec!["a".into(), "b".into()]));
        for reply in [
            RespValue::Nil,
            RespValue::Array(vec![text("0")]),
            RespValue::Array(vec![RespValue::Int(0), RespValue::Array(vec![])]),
        ] {
            assert_eq!(step(reply).unwrap_err().kind(), ErrorKind::Incompatible);
        }
    }
}
