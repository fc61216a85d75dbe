//! A lock of any library, to acquire and to release.

/// A clone is the same lock.
pub trait Lock: Clone + Send + Sync + 'static {
    type Held: Send + 'static;

    fn take(&self) -> impl Future<Output = Self::Held> + Send;

    fn release(held: Self::Held) -> impl Future<Output = ()> + Send;
}
