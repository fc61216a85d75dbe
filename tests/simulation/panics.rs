//! Collects panics of tasks, which the runtime catches.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// The first one on this thread that nobody has taken yet. A run has its thread to itself.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on, panics of this thread are kept for `take`.
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

/// The first panic since the last call.
pub fn take() -> Option<String> {
    FIRST.with_borrow_mut(Option::take)
}
