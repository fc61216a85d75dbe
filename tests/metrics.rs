//! What a client counts and measures, as Prometheus receives it; and the dashboard, whose queries
//! must use existing metrics.

// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods)]

mod observing;

use std::collections::BTreeSet;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use rwlease::Locks;
use rwlease::embedded::EmbeddedCluster;

#[tokio::test]
async fn prometheus_sees_each_step_of_a_lock_and_the_dashboard_queries_what_there_is() {
    let builder = PrometheusBuilder::new().set_buckets(&[0.001, 0.01, 0.1, 1.0, 10.0]).unwrap();
    let prometheus = builder.install_recorder().unwrap();
    use_locks(&prometheus).await;
    // The background work has ended.
    let last = [r#"rwlease_releases_total{outcome="absent"}"#, r#"kind="moved""#];
    let text = until(&prometheus, &last).await;

    for line in [
        r#"rwlease_acquire_seconds_count{mode="write",outcome="granted"} 2"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="granted"} 2"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="busy"} 1"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="timed_out"} 1"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="dropped"} 1"#,
        r#"rwlease_wait_seconds_count{mode="read",outcome="granted"} 1"#,
        r#"rwlease_wait_seconds_count{mode="read",outcome="timed_out"} 1"#,
        r#"rwlease_handoffs_total{mode="read",way="push"} 1"#,
        r#"rwlease_hold_seconds_count{mode="write",outcome="released"} 1"#,
        r#"rwlease_hold_seconds_count{mode="read",outcome="dropped"} 1"#,
        r#"rwlease_hold_seconds_count{mode="read",outcome="kept"} 1"#,
        r#"rwlease_hold_seconds_count{mode="write",outcome="lost"} 1"#,
        r#"rwlease_lost_total{mode="write",outcome="taken"} 1"#,
        r#"rwlease_redirects_total{kind="moved"} 1"#,
        r#"rwlease_attempts_total{outcome="moved"} 1"#,
        r#"rwlease_subscriptions_total{outcome="lost"} 0"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line}:\n{text}");
    }
    for start in [
        r#"rwlease_renewals_total{outcome="held"}"#,
        r#"rwlease_renewals_total{outcome="lost"}"#,
        r#"rwlease_renewal_seconds_bucket{outcome="held""#,
        r#"rwlease_releases_total{outcome="released"}"#,
        r#"rwlease_refreshes_total{outcome="changed"}"#,
        r#"rwlease_refreshes_total{outcome="failed"}"#,
        "rwlease_pushes_total ",
        r#"rwlease_connect_seconds_count{kind="commands",outcome="connected"}"#,
        r#"rwlease_connect_seconds_count{kind="subscriptions",outcome="connected"}"#,
        r#"rwlease_attempts_total{outcome="answered"}"#,
        r#"rwlease_commands_in_flight{node=""#,
        r#"rwlease_commands_queued{node=""#,
        r#"rwlease_subscriptions_total{outcome="joined"}"#,
    ] {
        assert!(text.contains(start), "{start}:\n{text}");
    }
    assert!(text.contains("# HELP rwlease_lost_total Leases that were lost"), "{text}");
    let last = ["rwlease_cache_leases 0", "rwlease_cache_penalty_seconds_count"];
    cache_locks(&prometheus).await;
    let text = until(&prometheus, &last).await;
    for line in [
        r#"rwlease_cache_grants_total{lease="write"} 1"#,
        r#"rwlease_cache_recalls_total{mode="write",way="push"} 1"#,
        r#"rwlease_cache_recall_seconds_count{outcome="released"} 1"#,
        "rwlease_cache_penalty_seconds_count 1",
        "rwlease_cache_min_holds_total 0",
        r#"rwlease_cache_lost_total{outcome="idle"} 0"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line}:\n{text}");
    }
    for start in [
        r#"rwlease_cache_plain_total{reason="unused"}"#,
        r#"rwlease_cache_contacts_total{reason="due"}"#,
    ] {
        assert!(text.contains(start), "{start}:\n{text}");
    }
    check_dashboard(&text);
}

/// Runs each step once.
async fn use_locks(prometheus: &PrometheusHandle) {
    let engine = EmbeddedCluster::builder().masters(2).build();
    let settings = Locks::builder().lease(Duration::from_millis(600));
    let locks = settings.connect_embedded(&engine).await.unwrap();
    check_start(&prometheus.render());
    let lock = locks.rwlock("a").unwrap();

    let writing = lock.write().await.unwrap();
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(lock.read().timeout(Duration::from_millis(30)).await.is_err());
    let dropped = tokio::time::timeout(Duration::from_millis(30), lock.read().into_future()).await;
    assert!(dropped.is_err());
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.unwrap() }
    });
    observing::until_subscribed(&engine, &lock).await;
    until(prometheus, &[r#"rwlease_renewals_total{outcome="held"}"#]).await;
    let _ = writing.release().await.unwrap();
    drop(waiting.await.unwrap());

    let writing = locks.rwlock("b").unwrap().write().await.unwrap();
    locks.rwlock("b").unwrap().force_release().await.unwrap();
    writing.lost().await;
    drop(writing);

    let lock = locks.rwlock("c").unwrap();
    let guard = lock.read().await.unwrap();
    observing::move_away(&engine, lock.slot());
    guard.keep().await.unwrap();
}

/// The counters that the documentation's alerts use exist before their first event.
fn check_start(text: &str) {
    for series in [
        r#"rwlease_lost_total{mode="write",outcome="taken"}"#,
        r#"rwlease_lost_total{mode="read",outcome="expired"}"#,
        r#"rwlease_renewals_total{outcome="failed"}"#,
        r#"rwlease_attempts_total{outcome="silent"}"#,
        r#"rwlease_attempts_total{outcome="broken"}"#,
        r#"rwlease_redirects_total{kind="moved"}"#,
        r#"rwlease_redirects_total{kind="ask"}"#,
        "rwlease_master_changes_total",
        r#"rwlease_subscriptions_total{outcome="lost"}"#,
        r#"rwlease_handoffs_total{mode="read",way="push"}"#,
        r#"rwlease_handoffs_total{mode="write",way="answer"}"#,
        r#"rwlease_cache_recalls_total{mode="read",way="push"}"#,
        r#"rwlease_cache_recalls_total{mode="write",way="answer"}"#,
        r#"rwlease_cache_plain_total{reason="unsubscribed"}"#,
    ] {
        assert!(text.lines().any(|line| line == format!("{series} 0")), "{series}:\n{text}");
    }
}

/// A lock that is cached, used once more, and recalled.
async fn cache_locks(prometheus: &PrometheusHandle) {
    let engine = EmbeddedCluster::builder().masters(1).build();
    let settings = Locks::builder().lease(Duration::from_secs(2));
    let locks = settings.connect_embedded(&engine).await.unwrap();
    let lock = locks.rwlock("d").unwrap().cached().unwrap();
    while lock.local().hold.is_none() {
        drop(lock.write().await.unwrap());
    }
    let used = lock.write().await.unwrap();
    until(prometheus, &[r#"rwlease_cache_contacts_total{reason="due"}"#]).await;
    drop(used);
    let others = Locks::builder().connect_embedded(&engine).await.unwrap();
    drop(others.rwlock("d").unwrap().write().await.unwrap());
}

/// The text, once it contains all of these.
async fn until(prometheus: &PrometheusHandle, words: &[&str]) -> String {
    let found = async {
        loop {
            let text = prometheus.render();
            if words.iter().all(|word| text.contains(word)) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let text = tokio::time::timeout(Duration::from_secs(20), found).await;
    text.unwrap_or_else(|_| panic!("not all of {words:?} in:\n{}", prometheus.render()))
}

fn check_dashboard(text: &str) {
    let dashboard: serde_json::Value = serde_json::from_str(observing::DASHBOARD).unwrap();
    let mut queries = Vec::new();
    collect(&dashboard, &mut queries);
    assert!(queries.len() > 8, "{queries:?}");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let there: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let labels: BTreeSet<String> = text
        .split(['{', ','])
        .filter_map(|part| part.split_once("=\""))
        .map(|(name, _)| name.to_owned())
        .collect();
    let mut queried = BTreeSet::new();
    for query in &queries {
        for word in query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            if word.starts_with("rwlease_") {
                assert!(
                    there.contains(word),
                    "{query} queries {word}, which there is not: {there:?}"
                );
                queried.insert(word.to_owned());
            }
        }
        let by = query
            .split("by (")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .flat_map(|list| list.split(", "));
        for label in by {
            assert!(labels.contains(label), "{query} sums by {label}: {labels:?}");
        }
    }
    for metric in observing::names(&observing::source(), &TOLD, "rwlease_") {
        assert!(
            queried.iter().any(|name| name.starts_with(&metric)),
            "the dashboard shows nothing of {metric}"
        );
    }
}

/// Collects the queries of all panels.
fn collect(part: &serde_json::Value, queries: &mut Vec<String>) {
    match part {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(query) if name == "expr" => queries.push(query.to_owned()),
                    _ => collect(value, queries),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, queries)),
        _ => {}
    }
}

/// How the source emits metrics.
const TOLD: [&str; 7] = [
    "count_event!(\"",
    "count_labeled!(\"",
    "record_duration!(\"",
    "record_duration_labeled!(\"",
    "server_gauge!(\"",
    "counter!(\"",
    "gauge!(\"",
];

#[test]
fn client_metrics_equal_the_documented_ones() {
    let starts = ["describe_counter!(\"", "describe_gauge!(\"", "describe_histogram!(\""];
    let described = observing::names(&observing::source(), &starts, "rwlease_");
    let told = observing::names(&observing::source(), &TOLD, "rwlease_");
    let words = observing::names(observing::DOCUMENTATION, &["| `"], "rwlease_");
    assert!(told.len() > 8, "{told:?}");
    assert_eq!(described, told);
    assert_eq!(words, told);
}
