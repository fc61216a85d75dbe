//! A lock to take and to give back, of any library. (A file of its own, for the package of the
//! other locks has it too.)

/// Clones are the same lock.
pub trait Lock: Clone + Send + Sync + 'static {
    type Held: Send + 'static;

    fn take(&self) -> impl Future<Output = Self::Held> + Send;

    fn release(held: Self::Held) -> impl Future<Output = ()> + Send;
}
