//! The cache settings of a client.

use std::time::Duration;

use crate::client::config::CacheConfig;

/// How a client caches locks, set by [`Builder::cache`](crate::Builder::cache).
///
/// ```
/// use std::time::Duration;
///
/// let cache = rwlease::Cache::default().min_hold(Duration::from_millis(2)).max_cached(100);
/// let builder = rwlease::Locks::builder().cache(cache);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cache(pub(crate) CacheConfig);

impl Cache {
    /// How long after its grant a lease that others want may still serve local requests, 0 to
    /// 100 ms. It matters for contended locks only: a lease without guards is released at once.
    /// Default: 5 ms, about ten times as long as a handover between two clients takes.
    pub fn min_hold(mut self, time: Duration) -> Self {
        self.0.min_hold = time;
        self
    }

    /// How long a try waits for a lock that other clients only have cached, up to 10 s. It applies
    /// to all tries of the client, also those of plain locks. With 0, tries do not wait for such
    /// locks. Default: 50 ms.
    pub fn try_wait(mut self, time: Duration) -> Self {
        self.0.try_wait = time;
        self
    }

    /// The maximum number of leases that are cached at the same time. Further locks are not cached.
    /// Default: 1,024.
    pub fn max_cached(mut self, most: usize) -> Self {
        self.0.max_leases = most;
        self
    }

    /// As [`Acquire::replicas`](crate::Acquire::replicas), for all cached locks. Default: none.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.0.replicas = replicas;
        self
    }
}
