//! The `tracing` events of a client: every name with its fields, and no name that
//! `docs/observing.md` does not list.

// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods)]

mod observing;

use std::collections::BTreeMap;
use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{Locks, Slot};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A name, and fields as text.
type Told = (String, BTreeMap<String, String>);

/// Records all events, and all spans when they close.
#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<Told>>>);

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Tape {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(span.extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push((event.metadata().name().into(), fields.0));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let fields = span.extensions_mut().remove::<Fields>().unwrap();
        self.0.lock().unwrap().push((span.name().into(), fields.0));
    }
}

impl Tape {
    /// The events with this name and this outcome.
    fn of(&self, name: &str, outcome: &str) -> Vec<BTreeMap<String, String>> {
        let told = self.0.lock().unwrap();
        let wanted = told
            .iter()
            .filter(|(n, fields)| n == name && fields.get("outcome").is_some_and(|o| o == outcome));
        wanted.map(|(_, fields)| fields.clone()).collect()
    }

    /// Waits for the first of those, which must have all of these fields.
    async fn has(&self, name: &str, outcome: &str, fields: &[&str]) -> BTreeMap<String, String> {
        let found = async {
            loop {
                if let Some(told) = self.of(name, outcome).into_iter().next() {
                    return told;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(20), found).await;
        let told = told
            .unwrap_or_else(|_| panic!("no {name} with {outcome}: {:#?}", self.0.lock().unwrap()));
        for field in fields {
            assert!(told.contains_key(*field), "{name} {outcome} has no {field}: {told:?}");
        }
        told
    }
}

#[tokio::test]
async fn each_step_of_a_lock_is_told() {
    let tape = Tape::default();
    let subscriber = tracing_subscriber::registry().with(tape.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let engine = EmbeddedCluster::builder().masters(2).build();
    let locks =
        Locks::builder().lease(Duration::from_millis(600)).connect_embedded(&engine).await.unwrap();
    tape.has("rwlease.refresh", "changed", &["node"]).await;
    let told = tape.has("rwlease.connect", "connected", &["node", "kind", "seconds"]).await;
    assert_eq!(told["kind"], "commands");

    let lock = locks.rwlock("a").unwrap();
    let first = lock.write().await.unwrap();
    let told =
        tape.has("rwlease.acquire", "granted", &["lock", "slot", "mode", "node", "seconds"]).await;
    assert_eq!((told["lock"].as_str(), told["mode"].as_str()), ("a", "write"));
    assert_eq!(told["slot"], Slot::of("rwlease:a").get().to_string());
    assert!((0.0..10.0).contains(&told["seconds"].parse::<f64>().unwrap()));
    let attempt = tape.has("rwlease.attempt", "answered", &["slot", "node"]).await;
    assert_eq!((&attempt["slot"], &attempt["node"]), (&told["slot"], &told["node"]));
    let told = tape
        .has("rwlease.grant", "answer", &["lock", "slot", "mode", "node", "token", "seconds"])
        .await;
    assert_eq!(told["token"], first.token().to_string());

    assert!(lock.try_read().await.unwrap().is_none());
    tape.has("rwlease.acquire", "busy", &["lock", "slot", "mode", "node", "seconds"]).await;
    assert!(lock.read().timeout(Duration::from_millis(30)).await.is_err());
    tape.has("rwlease.acquire", "timed_out", &["seconds"]).await;
    tape.has("rwlease.wait", "timed_out", &["lock", "slot", "mode", "seconds"]).await;
    drop(lock.read().into_future());
    tape.has("rwlease.renew", "held", &["lock", "slot", "mode", "node", "seconds"]).await;

    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.unwrap() }
    });
    let told = tape.has("rwlease.wait", "queued", &["lock", "slot", "mode", "node", "ahead"]).await;
    assert_eq!(told["mode"], "read");
    let joined = tape.has("rwlease.subscribe", "joined", &["slot", "node"]).await;
    assert_eq!((&joined["slot"], &joined["node"]), (&told["slot"], &told["node"]));
    observing::until_subscribed(&engine, &lock).await;
    let _ = first.release().await.unwrap();
    tape.has("rwlease.release", "released", &["lock", "slot", "node", "seconds"]).await;
    let second = waiting.await.unwrap();
    tape.has("rwlease.wait", "granted", &["lock", "slot", "mode", "seconds"]).await;
    let pushed = tape.has("rwlease.grant", "push", &["node", "token"]).await;
    assert_eq!(pushed["token"], second.token().to_string());
    assert!(
        tape.0
            .lock()
            .unwrap()
            .iter()
            .any(|(name, fields)| name == "rwlease.push" && fields["token"] == pushed["token"])
    );

    lock.force_release().await.unwrap();
    let told =
        tape.has("rwlease.lost", "taken", &["lock", "slot", "mode", "token", "seconds"]).await;
    assert_eq!(told["token"], second.token().to_string());
    drop(second);
    tape.has("rwlease.release", "absent", &["node", "seconds"]).await;

    let unheard = locks.rwlock("b").unwrap();
    let third = unheard.write().await.unwrap();
    unheard.force_release().await.unwrap();
    tape.has("rwlease.renew", "lost", &["node"]).await;
    drop(third);

    let expiring = lock.write().renewal(rwlease::RenewalPolicy::Manual).await.unwrap();
    expiring.lost().await;
    tape.has("rwlease.lost", "expired", &["seconds"]).await;
}

#[tokio::test]
async fn redirects_are_told() {
    let tape = Tape::default();
    let subscriber = tracing_subscriber::registry().with(tape.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let engine = EmbeddedCluster::builder().masters(2).build();
    let locks = Locks::builder().connect_embedded(&engine).await.unwrap();
    let lock = locks.rwlock("a").unwrap();
    let guard = lock.read().await.unwrap();
    observing::move_away(&engine, lock.slot());
    guard.renew().await.unwrap();
    let told = tape.has("rwlease.redirect", "moved", &["slot", "node", "to"]).await;
    assert_ne!(told["node"], told["to"]);
    let attempt = tape.has("rwlease.attempt", "moved", &["slot"]).await;
    assert_eq!(attempt["node"], told["node"]);
}

/// A quorum member with a wrong clock is named. (Time stands still: otherwise the members' clocks
/// would differ by the time that it takes to make them.)
#[tokio::test(start_paused = true)]
async fn a_wrong_clock_is_told() {
    let tape = Tape::default();
    let subscriber = tracing_subscriber::registry().with(tape.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    for (wrong_ms, outcome) in [(3_600_000, "ahead"), (-3_600_000, "behind")] {
        let mut members = Vec::new();
        for place in 0..3 {
            let engine = EmbeddedCluster::builder().standalone().build();
            engine.faults().set_clock(0, if place == 1 { wrong_ms } else { 0 });
            members.push(Locks::builder().connect_embedded(&engine).await.unwrap());
        }
        let quorum = rwlease::Quorum::new(members).unwrap();
        let held = quorum.write("a").member_timeout(Duration::from_secs(5)).await.unwrap();
        let _ = held.release().await.unwrap();
        let told = tape
            .has("rwlease.clock", outcome, &["lock", "slot", "member", "node", "seconds"])
            .await;
        assert_eq!((told["lock"].as_str(), told["member"].as_str()), ("a", "2"));
        let seconds = told["seconds"].parse::<f64>().unwrap();
        assert!((3_590.0..=3_600.0).contains(&seconds), "{seconds}");
    }
}

#[test]
fn client_event_and_span_names_equal_the_documented_ones() {
    let code = observing::names(&observing::source(), &["name:\"", "debug_span!(\""], "rwlease.");
    let words = observing::names(observing::DOCUMENTATION, &["`"], "rwlease.");
    assert!(code.len() > 8, "{code:?}");
    assert_eq!(code, words);
}
