//! Runs a test's own code within the events of its thread, as a subscriber of the application.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

type Hook = Rc<dyn Fn(&Event<'_>)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

struct Hooks;

/// Calls this within each event of this thread from now on. The subscriber is that of the whole
/// process: one of a single thread misses events that another thread has met first.
pub fn on_event(hook: impl Fn(&Event<'_>) + 'static) {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(Hooks);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    HOOK.set(Some(Rc::new(hook)));
}

/// The text of a field of the event.
pub fn field(event: &Event<'_>, name: &'static str) -> Option<String> {
    struct Wanted(&'static str, Option<String>);

    impl Visit for Wanted {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == self.0 {
                self.1 = Some(format!("{value:?}"));
            }
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.record_debug(field, &format_args!("{value}"));
        }
    }

    let mut wanted = Wanted(name, None);
    event.record(&mut wanted);
    wanted.1
}

impl<S: Subscriber> Layer<S> for Hooks {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Not borrowed while it runs, since it may panic, or cause another event.
        let hook = HOOK.with_borrow(Clone::clone);
        if let Some(hook) = hook {
            hook(event);
        }
    }
}
