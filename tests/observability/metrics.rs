//! What a client counts and measures, as Prometheus receives it; and the dashboard, whose queries
//! must use existing metrics.

use std::collections::BTreeSet;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rwlease::Client;
use rwlease::embedded::EmbeddedCluster;

#[tokio::test]
async fn prometheus_sees_each_step_of_a_lock_and_the_dashboard_queries_what_there_is() {
    // As the documentation recommends.
    let own = Matcher::Prefix("rwlease_".to_owned());
    let buckets = [0.001, 0.01, 0.1, 1.0, 10.0];
    let builder = PrometheusBuilder::new().set_buckets_for_metric(own, &buckets).unwrap();
    // The recorder of this thread alone: the other tests of the program use locks, too.
    let recorder = builder.build_recorder();
    let prometheus = recorder.handle();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    use_locks(&prometheus).await;
    // The background work has ended.
    let last = [r#"rwlease_releases_total{outcome="not_found"}"#, r#"kind="moved""#];
    let text = until(&prometheus, &last).await;

    for line in [
        r#"rwlease_acquire_seconds_count{mode="write",outcome="granted"} 2"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="granted"} 2"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="busy"} 1"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="timed_out"} 1"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="dropped"} 1"#,
        r#"rwlease_wait_seconds_count{mode="read",outcome="granted"} 1"#,
        r#"rwlease_wait_seconds_count{mode="read",outcome="timed_out"} 1"#,
        r#"rwlease_handoffs_total{mode="read",source="push"} 1"#,
        r#"rwlease_hold_seconds_count{mode="write",outcome="released"} 1"#,
        r#"rwlease_hold_seconds_count{mode="read",outcome="dropped"} 1"#,
        r#"rwlease_hold_seconds_count{mode="read",outcome="let_expire"} 1"#,
        r#"rwlease_hold_seconds_count{mode="write",outcome="lost"} 1"#,
        r#"rwlease_lease_losses_total{mode="write",reason="not_held"} 1"#,
        r#"rwlease_redirects_total{kind="moved"} 1"#,
        r#"rwlease_attempts_total{outcome="moved"} 1"#,
        r#"rwlease_subscriptions_total{outcome="lost"} 0"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line}:\n{text}");
    }
    for start in [
        r#"rwlease_renewals_total{outcome="renewed"}"#,
        r#"rwlease_renewals_total{outcome="not_held"}"#,
        r#"rwlease_renewal_seconds_bucket{outcome="renewed""#,
        r#"rwlease_releases_total{outcome="released"}"#,
        r#"rwlease_refreshes_total{outcome="changed"}"#,
        r#"rwlease_refreshes_total{outcome="failed"}"#,
        "rwlease_pushes_total ",
        r#"rwlease_connect_seconds_count{kind="commands",outcome="connected"}"#,
        r#"rwlease_connect_seconds_count{kind="subscriptions",outcome="connected"}"#,
        r#"rwlease_attempts_total{outcome="replied"}"#,
        r#"rwlease_commands_in_flight{server=""#,
        r#"rwlease_commands_queued{server=""#,
        r#"rwlease_subscriptions_total{outcome="subscribed"}"#,
    ] {
        assert!(text.contains(start), "{start}:\n{text}");
    }
    assert!(text.contains("# HELP rwlease_lease_losses_total Leases that were lost"), "{text}");
    let last = ["rwlease_cache_leases 0", "rwlease_cache_penalty_seconds_count"];
    cache_locks(&prometheus).await;
    let text = until(&prometheus, &last).await;
    for line in [
        r#"rwlease_cache_grants_total{lease="write"} 1"#,
        r#"rwlease_cache_recalls_total{mode="write",source="push"} 1"#,
        r#"rwlease_cache_recall_seconds_count{outcome="released"} 1"#,
        "rwlease_cache_penalty_seconds_count 1",
        "rwlease_cache_min_holds_total 0",
        r#"rwlease_cache_lost_total{outcome="idle"} 0"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line}:\n{text}");
    }
    for start in [
        r#"rwlease_cache_uncached_total{reason="not_reused"}"#,
        r#"rwlease_cache_keepalives_total{reason="interval"}"#,
    ] {
        assert!(text.contains(start), "{start}:\n{text}");
    }
    check_dashboard(&text);
    check_alerts(&text);
}

/// Runs each step once.
async fn use_locks(prometheus: &PrometheusHandle) {
    let engine = EmbeddedCluster::builder().masters(2).build();
    let settings = Client::builder().lease(Duration::from_millis(600));
    let locks = settings.connect_embedded(&engine).await.unwrap();
    check_start(&prometheus.render());
    let lock = locks.rwlock("a").unwrap();

    let writing = lock.write().await.unwrap();
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(lock.read().timeout(Duration::from_millis(30)).await.is_err());
    let dropped = tokio::time::timeout(Duration::from_millis(30), lock.read().into_future()).await;
    assert!(dropped.is_err());
    let waiting = testkit::spawn_read(&lock);
    crate::until_subscribed(&engine, &lock).await;
    until(prometheus, &[r#"rwlease_renewals_total{outcome="renewed"}"#]).await;
    let _ = writing.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());

    let writing = locks.rwlock("b").unwrap().write().await.unwrap();
    locks.rwlock("b").unwrap().force_release().await.unwrap();
    writing.ended().await;
    drop(writing);

    let lock = locks.rwlock("c").unwrap();
    let guard = lock.read().await.unwrap();
    crate::move_away(&engine, lock.slot());
    guard.let_expire().await.unwrap();
}

/// The counters that the documentation's alerts use exist before their first event.
fn check_start(text: &str) {
    for series in [
        r#"rwlease_lease_losses_total{mode="write",reason="not_held"}"#,
        r#"rwlease_lease_losses_total{mode="read",reason="expired"}"#,
        r#"rwlease_renewals_total{outcome="failed"}"#,
        r#"rwlease_attempts_total{outcome="no_reply"}"#,
        r#"rwlease_attempts_total{outcome="connection_lost"}"#,
        r#"rwlease_redirects_total{kind="moved"}"#,
        r#"rwlease_redirects_total{kind="ask"}"#,
        "rwlease_master_changes_total",
        r#"rwlease_subscriptions_total{outcome="lost"}"#,
        r#"rwlease_handoffs_total{mode="read",source="push"}"#,
        r#"rwlease_handoffs_total{mode="write",source="reply"}"#,
        r#"rwlease_cache_recalls_total{mode="read",source="push"}"#,
        r#"rwlease_cache_recalls_total{mode="write",source="reply"}"#,
        r#"rwlease_cache_uncached_total{reason="not_subscribed"}"#,
        r#"rwlease_cache_uncached_total{reason="recalled_early"}"#,
    ] {
        assert!(text.lines().any(|line| line == format!("{series} 0")), "{series}:\n{text}");
    }
}

/// A lock that is cached, used once more, and recalled.
async fn cache_locks(prometheus: &PrometheusHandle) {
    let engine = EmbeddedCluster::builder().masters(1).build();
    let settings = Client::builder().lease(Duration::from_secs(2));
    let locks = settings.connect_embedded(&engine).await.unwrap();
    let lock = locks.rwlock("d").unwrap().cached().unwrap();
    while lock.cache_status().hold.is_none() {
        drop(lock.write().await.unwrap());
    }
    let used = lock.write().await.unwrap();
    until(prometheus, &[r#"rwlease_cache_keepalives_total{reason="interval"}"#]).await;
    drop(used);
    let others = Client::builder().connect_embedded(&engine).await.unwrap();
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
    let dashboard: serde_json::Value = serde_json::from_str(crate::DASHBOARD).unwrap();
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
    for metric in crate::names(&crate::source(), &TOLD, "rwlease_") {
        assert!(
            queried.iter().any(|name| name.starts_with(&metric)),
            "the dashboard shows nothing of {metric}"
        );
    }
}

/// Each alert of the documentation queries a metric and labels that there are.
fn check_alerts(text: &str) {
    let alerts = crate::documented_alerts();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        for part in alert.split("rwlease_").skip(1) {
            let name = part.split(['{', '[', ' ']).next().unwrap();
            let labels = part.strip_prefix(name).unwrap().strip_prefix('{');
            let label = labels.map_or("", |labels| labels.split('=').next().unwrap());
            let is_there = text.lines().any(|line| {
                line.strip_prefix("rwlease_")
                    .and_then(|line| line.strip_prefix(name))
                    .is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
            });
            assert!(is_there, "{alert} queries what there is not:\n{text}");
        }
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
    let starts = ["counter\"", "gauge\"", "histogram\""];
    let described = crate::names(&crate::source(), &starts, "rwlease_");
    let told = crate::names(&crate::source(), &TOLD, "rwlease_");
    let words = crate::names(crate::DOCUMENTATION, &["| `"], "rwlease_");
    assert!(told.len() > 8, "{told:?}");
    assert_eq!(described, told);
    assert_eq!(words, told);
}

/// Who renders the metrics right after a shutdown sees all of the client.
#[tokio::test]
async fn shutdown_ends_with_the_last_metrics_of_the_client() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let prometheus = recorder.handle();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let locks = Client::builder().label("ends").connect_embedded(&engine).await.unwrap();
    let _guard = locks.rwlock("a").unwrap().write().await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await; // the worker begins
    let clients = |end: &str| {
        let text = prometheus.render();
        let is_so = |line: &str| line.starts_with("rwlease_clients{") && line.ends_with(end);
        assert!(text.lines().any(is_so), "{end}: {text}");
    };
    clients(" 1");
    assert!(locks.shutdown(Duration::from_secs(5)).await.is_empty());
    clients(" 0");
    let released = r#"rwlease_releases_total{outcome="released"} 1"#;
    assert!(prometheus.render().contains(released), "{}", prometheus.render());
}

/// A request for a cached lock that waits in the client is counted when its time is up.
#[tokio::test(start_paused = true)]
async fn local_wait_of_a_cached_lock_that_fails_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let prometheus = recorder.handle();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let locks = Client::builder().connect_embedded(&engine).await.unwrap();
    let lock = locks.rwlock("a").unwrap().cached().unwrap();
    while lock.cache_status().hold.is_none() {
        drop(lock.write().await.unwrap());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let limit = Duration::from_millis(100);
    let held = lock.write().await.unwrap();
    drop(lock.write().timeout(limit).await.unwrap_err());
    drop(held);
    engine.faults().stop(0);
    while lock.read().timeout(limit).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let text = prometheus.render();
    for line in [
        r#"rwlease_acquire_seconds_count{mode="write",outcome="timed_out"} 1"#,
        r#"rwlease_acquire_seconds_count{mode="read",outcome="unavailable"} 1"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line}:\n{text}");
    }
}
