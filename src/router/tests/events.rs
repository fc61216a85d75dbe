//! The events that a client emits, recorded.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Events of this thread, each as its name and its fields in one line.
#[derive(Clone, Default)]
pub(super) struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    /// Records until the guard is dropped.
    pub(super) fn record() -> (Events, DefaultGuard) {
        let events = Events::default();
        let guard = set_default(tracing_subscriber::registry().with(events.clone()));
        (events, guard)
    }

    /// The events with that name.
    pub(super) fn of(&self, name: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.split(' ').next() == Some(name)).cloned().collect()
    }
}

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(event.metadata().name().to_owned());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}
