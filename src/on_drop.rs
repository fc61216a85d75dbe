//! What is done at the end of a scope, however it ends.

/// Calls the function when it is dropped, unless it was disarmed before.
#[must_use]
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) fn new(action: F) -> OnDrop<F> {
        OnDrop(Some(action))
    }

    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(action) = self.0.take() {
            action();
        }
    }
}
