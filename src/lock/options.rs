//! The options that requests for several locks share.

/// The setters of a request with `terms`, `wait` and `cancel`.
macro_rules! options {
    () => {
        /// The longest time to wait, for all of it together. Default: no limit.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.wait.timeout = Some(timeout);
            self
        }

        /// How it is tried again when others hold.
        pub fn retry(mut self, retry: $crate::Retry) -> Self {
            self.wait.retry = Some(retry);
            self
        }

        /// Gives up, with [`Cancelled`](crate::ErrorKind::Cancelled), as soon as this future ends: that of a cancellation token, a channel, a
        /// signal. What has come of the request by then is given back. Default: never.
        pub fn cancel_on(mut self, cancelled: impl Future<Output = ()> + Send + 'static) -> Self {
            self.cancel = $crate::lock::retry::Cancel::on(cancelled);
            self
        }

        /// As [`Acquire::lease`](crate::Acquire::lease).
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.terms.lease = lease;
            self
        }

        /// As [`Acquire::renewal`](crate::Acquire::renewal).
        pub fn renewal(mut self, renewal: $crate::Renewal) -> Self {
            self.terms.renewal = renewal;
            self
        }

        /// As [`Acquire::max_hold`](crate::Acquire::max_hold).
        pub fn max_hold(mut self, hold: std::time::Duration) -> Self {
            self.terms.hold = Some(hold);
            self
        }
    };
}

pub(crate) use options;
