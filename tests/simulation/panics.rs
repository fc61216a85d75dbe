//! Collects panics of tasks, which the runtime catches.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// The first panic on this thread since the last `take`. Each run has its own thread.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records panics of this thread for `take` from now on.
pub fn watch() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let told = info.to_string();
            FIRST.with_borrow_mut(|first| {
                first.get_or_insert(told);
            });
            hook(info);
        }));
    });
    take();
}

/// Returns the first panic since the last call.
pub fn take() -> Option<String> {
    FIRST.with_borrow_mut(Option::take)
}
