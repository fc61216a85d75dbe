use std::time::Duration;

/// How a client caches locks, set by [`ClientBuilder::cache`](crate::ClientBuilder::cache).
///
/// ```
/// use std::time::Duration;
///
/// let cache = rwlease::CacheConfig::default()
///     .min_hold(Duration::from_millis(2))
///     .max_cached(100);
/// let builder = rwlease::Client::builder().cache(cache);
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until `ClientBuilder::cache` has them"]
pub struct CacheConfig {
    pub(crate) min_hold: Duration,
    pub(crate) try_wait: Duration,
    pub(crate) max_cached: usize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig {
            min_hold: Duration::from_millis(5),
            try_wait: Duration::from_millis(50),
            max_cached: 1_024,
        }
    }
}

impl CacheConfig {
    /// Sets the minimum hold: how long after its grant a recalled lease may serve local requests, 0
    /// to 100 ms. Default: 5 ms.
    ///
    /// The default is about ten times as long as a handover between two clients takes. The minimum
    /// hold matters for contended locks only: a lease without guards is released at once.
    pub fn min_hold(mut self, time: Duration) -> Self {
        self.min_hold = time;
        self
    }

    /// Sets how long a try waits for a lock that other clients only have cached, up to 10 s.
    /// Default: 50 ms.
    ///
    /// It applies to `try_read` and `try_write` of the client, also to those of uncached locks.
    /// `try_upgrade`, tries of a [`RetryPolicy`](crate::RetryPolicy) and those of a
    /// [`Redlock`](crate::Redlock) do not wait. With 0, none waits.
    pub fn try_wait(mut self, time: Duration) -> Self {
        self.try_wait = time;
        self
    }

    /// Sets the maximum number of leases that are cached at the same time. Default: 1,024. Further
    /// locks are not cached.
    pub fn max_cached(mut self, most: usize) -> Self {
        self.max_cached = most;
        self
    }
}
