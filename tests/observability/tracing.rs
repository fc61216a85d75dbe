//! The `tracing` events of a client: every name with its fields, and no name that
//! `docs/observing.md` does not list.

use std::collections::BTreeMap;
use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{CacheConfig, Client, Slot};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
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
    /// Records what this thread emits, until the guard is dropped.
    fn start() -> (Tape, DefaultGuard) {
        // While there is one subscriber alone, `tracing` asks the thread that reaches a callsite
        // first whether it has one, and keeps a no: other tests' threads need one too.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let tape = Tape::default();
        let subscriber = tracing_subscriber::registry().with(tape.clone());
        (tape, tracing::subscriber::set_default(subscriber))
    }

    /// The events with this name and this outcome, source or reason.
    fn of(&self, name: &str, outcome: &str) -> Vec<BTreeMap<String, String>> {
        let told = self.0.lock().unwrap();
        let is_wanted = |fields: &BTreeMap<String, String>| {
            ["outcome", "source", "reason"]
                .iter()
                .any(|it| fields.get(*it).is_some_and(|it| it == outcome))
        };
        let wanted = told.iter().filter(|(other, fields)| other == name && is_wanted(fields));
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
        if name != "rwlease.acquire" {
            let message = &told["message"];
            assert!(crate::documented_messages().contains(message), "{name}: {message}");
        }
        told
    }
}

#[tokio::test]
async fn cancelled_request_at_the_server_of_a_cached_lock_is_told_as_cancelled() {
    let (tape, _guard) = Tape::start();
    let engine = EmbeddedCluster::builder().masters(1).build();
    let uncached = Client::builder().cache(CacheConfig::default().max_cached(0));
    let locks = uncached.connect_embedded(&engine).await.unwrap();
    let lock = locks.rwlock("cancelled").unwrap();
    let held = lock.write().await.unwrap();
    let cached = lock.cached().unwrap();
    let cancelled = cached.read().cancel_when(tokio::time::sleep(Duration::from_millis(30)));
    assert!(cancelled.await.is_err());
    tape.has("rwlease.acquire", "cancelled", &["seconds"]).await;
    drop(held);
}

#[tokio::test]
async fn each_step_of_a_lock_is_told() {
    let (tape, _guard) = Tape::start();
    let engine = EmbeddedCluster::builder().masters(2).build();
    let locks = Client::builder()
        .lease(Duration::from_millis(600))
        .connect_embedded(&engine)
        .await
        .unwrap();
    tape.has("rwlease.refresh", "changed", &["server"]).await;
    let told = tape.has("rwlease.connect", "connected", &["server", "kind", "seconds"]).await;
    assert_eq!(told["kind"], "commands");

    let lock = locks.rwlock("a").unwrap();
    let first = lock.write().await.unwrap();
    let told = tape
        .has("rwlease.acquire", "granted", &["lock", "slot", "mode", "server", "seconds"])
        .await;
    assert_eq!((told["lock"].as_str(), told["mode"].as_str()), ("a", "write"));
    assert_eq!(told["slot"], Slot::of("rwlease:a").get().to_string());
    assert!((0.0..10.0).contains(&told["seconds"].parse::<f64>().unwrap()));
    let attempt = tape.has("rwlease.attempt", "replied", &["slot", "server"]).await;
    assert_eq!((&attempt["slot"], &attempt["server"]), (&told["slot"], &told["server"]));
    let told = tape
        .has("rwlease.grant", "reply", &["lock", "slot", "mode", "server", "token", "seconds"])
        .await;
    assert_eq!(told["token"], first.fencing_token().to_string());

    assert!(lock.try_read().await.unwrap().is_none());
    tape.has("rwlease.acquire", "busy", &["lock", "slot", "mode", "server", "seconds"]).await;
    assert!(lock.read().timeout(Duration::from_millis(30)).await.is_err());
    tape.has("rwlease.acquire", "timed_out", &["seconds"]).await;
    tape.has("rwlease.wait", "timed_out", &["lock", "slot", "mode", "seconds"]).await;
    let cancelled = lock.read().cancel_when(tokio::time::sleep(Duration::from_millis(30)));
    assert!(cancelled.await.is_err());
    tape.has("rwlease.acquire", "cancelled", &["seconds"]).await;
    tape.has("rwlease.wait", "cancelled", &["lock", "slot", "mode", "seconds"]).await;
    drop(lock.read().into_future());
    tape.has("rwlease.renew", "renewed", &["lock", "slot", "mode", "server", "seconds"]).await;

    let waiting = testkit::spawn_read(&lock);
    let told =
        tape.has("rwlease.wait", "queued", &["lock", "slot", "mode", "server", "ahead"]).await;
    assert_eq!(told["mode"], "read");
    let joined = tape.has("rwlease.subscribe", "subscribed", &["slot", "server"]).await;
    assert_eq!((&joined["slot"], &joined["server"]), (&told["slot"], &told["server"]));
    crate::until_subscribed(&engine, &lock).await;
    let _ = first.release().await.unwrap();
    tape.has("rwlease.release", "released", &["lock", "slot", "server", "seconds"]).await;
    let second = waiting.await.unwrap().unwrap();
    tape.has("rwlease.wait", "granted", &["lock", "slot", "mode", "seconds"]).await;
    let pushed = tape.has("rwlease.grant", "push", &["server", "token"]).await;
    assert_eq!(pushed["token"], second.fencing_token().get().to_string());
    assert!(
        tape.0
            .lock()
            .unwrap()
            .iter()
            .any(|(name, fields)| name == "rwlease.push" && fields["token"] == pushed["token"])
    );

    lock.force_release().await.unwrap();
    let told =
        tape.has("rwlease.lost", "not_held", &["lock", "slot", "mode", "token", "seconds"]).await;
    assert_eq!(told["token"], second.fencing_token().get().to_string());
    drop(second);
    tape.has("rwlease.release", "not_found", &["server", "seconds"]).await;

    let unheard = locks.rwlock("b").unwrap();
    let third = unheard.write().await.unwrap();
    unheard.force_release().await.unwrap();
    tape.has("rwlease.renew", "not_held", &["server"]).await;
    drop(third);

    let expiring = lock.write().renewal(rwlease::RenewalPolicy::Manual).await.unwrap();
    expiring.ended().await;
    tape.has("rwlease.lost", "expired", &["seconds"]).await;
}

/// Once for a request, and not for all requests at once.
#[tokio::test(start_paused = true)]
async fn requests_without_a_reply_are_told_once() {
    let (tape, _guard) = Tape::start();
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let locks = Client::builder().connect_embedded(&engine).await.unwrap();
    engine.faults().stop(0);
    let waiting = ["a", "b"].map(|name| {
        let lock = locks.rwlock(name).unwrap();
        tokio::spawn(async move { lock.write().await.map(drop) })
    });
    let told = || {
        let told = tape.0.lock().unwrap();
        let told = told.iter().filter(|(name, _)| name == "rwlease.unanswered");
        told.map(|(_, fields)| fields.clone()).collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    assert!(told().is_empty(), "a short outage is not told");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(told().len(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let told = told();
    assert_eq!(told.len(), 2, "{told:?}");
    for fields in &told {
        assert_eq!(fields["mode"], "write");
        assert!(fields["seconds"].parse::<f64>().unwrap() >= 5.0, "{fields:?}");
        assert!(fields["error"].contains("cannot connect"), "{fields:?}");
        assert!(crate::documented_messages().contains(&fields["message"]), "{fields:?}");
    }
    assert_ne!(told[0]["lock"], told[1]["lock"]);
    engine.faults().start(0);
    for request in waiting {
        request.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn redirects_are_told() {
    let (tape, _guard) = Tape::start();
    let engine = EmbeddedCluster::builder().masters(2).build();
    let locks = Client::builder().connect_embedded(&engine).await.unwrap();
    let lock = locks.rwlock("a").unwrap();
    let guard = lock.read().await.unwrap();
    crate::move_away(&engine, lock.slot());
    guard.renew().await.unwrap();
    let told = tape.has("rwlease.redirect", "moved", &["slot", "server", "to"]).await;
    assert_ne!(told["server"], told["to"]);
    let attempt = tape.has("rwlease.attempt", "moved", &["slot"]).await;
    assert_eq!(attempt["server"], told["server"]);
}

/// A quorum member with a wrong clock is named. (Time stands still: otherwise the members' clocks
/// would differ by the time that it takes to make them.)
#[tokio::test(start_paused = true)]
async fn a_wrong_clock_is_told() {
    let (tape, _guard) = Tape::start();
    for (wrong_ms, outcome) in [(3_600_000, "ahead"), (-3_600_000, "behind")] {
        let mut members = Vec::new();
        for place in 0..3 {
            let engine = EmbeddedCluster::builder().standalone().build();
            engine.faults().set_clock(0, if place == 1 { wrong_ms } else { 0 });
            members.push(Client::builder().connect_embedded(&engine).await.unwrap());
        }
        let quorum = rwlease::Redlock::new(members).unwrap();
        let held = quorum.write("a").member_timeout(Duration::from_secs(5)).await.unwrap();
        let _ = held.release().await.unwrap();
        let told = tape
            .has("rwlease.clock", outcome, &["lock", "slot", "member", "server", "seconds"])
            .await;
        assert_eq!((told["lock"].as_str(), told["member"].as_str()), ("a", "2"));
        let seconds = told["seconds"].parse::<f64>().unwrap();
        assert!((3_590.0..=3_600.0).contains(&seconds), "{seconds}");
    }
}

/// A member that restarts without its data, or that is silent, neither loses the lock of a quorum
/// nor puts it at risk.
#[tokio::test(start_paused = true)]
async fn a_quorum_tells_of_its_own_risk_and_loss_once() {
    let (tape, _guard) = Tape::start();
    let (mut engines, mut members) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let engine = EmbeddedCluster::builder().standalone().build();
        members.push(Client::builder().connect_embedded(&engine).await.unwrap());
        engines.push(engine);
    }
    let told = |name: &str| {
        let told = tape.0.lock().unwrap();
        let told = told.iter().filter(|(other, _)| other == name);
        told.map(|(_, fields)| fields.clone()).collect::<Vec<_>>()
    };
    let quorum = rwlease::Redlock::new(members).unwrap();
    let held = quorum.write("a").lease(Duration::from_secs(12)).await.unwrap();
    engines[0].faults().stop(0);
    engines[0].faults().flush_data(0);
    engines[0].faults().start(0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    engines[0].faults().pause(0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    tape.has("rwlease.renew", "not_held", &["lock"]).await;
    assert!(held.is_held() && told("rwlease.lost").is_empty());
    assert!(told("rwlease.at_risk").is_empty());

    engines[1].faults().pause(0);
    held.ended().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let token = held.fencing_token().unwrap().to_string();
    drop(held);
    let (at_risk, lost) = (told("rwlease.at_risk"), told("rwlease.lost"));
    assert_eq!((at_risk.len(), lost.len()), (1, 1), "{at_risk:?} {lost:?}");
    for told in [&at_risk[0], &lost[0]] {
        assert_eq!((&*told["lock"], &*told["mode"], &told["token"]), ("a", "write", &token));
    }
    assert_eq!(lost[0]["reason"], "expired");
    assert!((3.0..6.0).contains(&at_risk[0]["seconds_left"].parse::<f64>().unwrap()));
}

#[test]
fn each_client_event_has_a_documented_message() {
    let source = crate::source();
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let documented: Vec<String> =
        crate::documented_messages().iter().map(|it| squeezed(it)).collect();
    // Without white space, an event is `warn!(name:"rwlease.lost",field,..,"leaselost",);`.
    for event in source.split("name:\"").skip(1).filter(|it| it.starts_with("rwlease.")) {
        let event = event.split(");").next().unwrap();
        let message =
            event.trim_end_matches(',').strip_suffix('"').and_then(|it| it.rsplit('"').next());
        let message = message.unwrap_or_else(|| panic!("no message: {event}"));
        let is_known = message == "{message}" || documented.iter().any(|it| it == message);
        assert!(is_known, "not in the documentation: {message}: {event}");
    }
}

#[test]
fn client_event_and_span_names_equal_the_documented_ones() {
    let code = crate::names(&crate::source(), &["name:\"", "debug_span!(\""], "rwlease.");
    let words = crate::names(crate::DOCUMENTATION, &["`"], "rwlease.");
    assert!(code.len() > 8, "{code:?}");
    assert_eq!(code, words);
}
