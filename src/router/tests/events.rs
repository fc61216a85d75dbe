//! The events that a client emits, recorded.

use std::fmt;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::router::Router;

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

/// How long another thread may take to get locks that nobody holds.
const LONG: Duration = Duration::from_secs(5);

/// At each event of this thread, another thread takes the locks of a router.
#[derive(Clone)]
pub(super) struct LockProbe {
    router: Arc<Router>,
    /// The names of the events, and whether all locks were free.
    seen: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

impl LockProbe {
    /// Probes until the guard is dropped.
    pub(super) fn install(router: &Arc<Router>) -> (LockProbe, DefaultGuard) {
        let probe = LockProbe { router: router.clone(), seen: Arc::default() };
        let guard = set_default(tracing_subscriber::registry().with(probe.clone()));
        (probe, guard)
    }

    /// Fails unless these events came, and all locks were free at each event.
    pub(super) fn assert_free_at(&self, names: &[&str]) {
        let seen = self.seen.lock().unwrap();
        let held: Vec<_> = seen.iter().filter(|(_, free)| !free).map(|(name, _)| name).collect();
        assert!(held.is_empty(), "a lock was held at {held:?}");
        for name in names {
            assert!(seen.iter().any(|(came, _)| came == name), "no {name} in {seen:?}");
        }
    }
}

impl<S: Subscriber> Layer<S> for LockProbe {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (router, (tell, told)) = (self.router.clone(), mpsc::channel());
        std::thread::spawn(move || {
            router.connections.retain(|_| true);
            drop(router.topology.membership.known_mut());
            router.topology.sentinels().map(|sentinels| sentinels.nodes());
            let _ = tell.send(());
        });
        let free = told.recv_timeout(LONG).is_ok();
        self.seen.lock().unwrap().push((event.metadata().name(), free));
    }
}
