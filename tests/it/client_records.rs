//! Who a client is, on real servers: its label, its record, and the rights for them.

use rwlease::{Client, ErrorKind, SentinelConfig};
use testkit::{ConnectBuilder, PollLimit, Server, ServerSettings, StandaloneServer, connect};

use crate::fixture::single;

/// The names of the connections of this library.
async fn names(server: &Server) -> Vec<String> {
    let list: String = server.run_words("CLIENT LIST").await.unwrap();
    let words = list.lines().flat_map(|line| line.split(' '));
    words.filter_map(|word| word.strip_prefix("name=")).map(str::to_owned).collect()
}

async fn record(server: &Server, client: &Client) -> Option<String> {
    let words = format!("GET rwlease:client:{}", client.client_id());
    server.run_words(&words).await.unwrap()
}

async fn written(server: &Server, client: &Client) -> String {
    let limit = PollLimit::new("the record of the client");
    loop {
        match record(server, client).await {
            Some(record) => return record,
            None => limit.pause("none").await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn label_is_in_the_record_and_the_name_of_the_connection() {
    let server = StandaloneServer::start().await.unwrap();
    let client = Client::builder().urls([server.url()]).label("billing").connect().await.unwrap();
    let record = written(&server, &client).await;
    assert!(record.starts_with("1 ") && record.ends_with(" billing"), "{record}");
    assert!(names(&server).await.contains(&"billing".to_owned()));
    let key = format!("rwlease:client:{}", client.client_id());
    let ttl: i64 = server.run_words(&format!("PTTL {key}")).await.unwrap();
    assert!((7_100_000..=7_200_000).contains(&ttl), "{ttl}");
}

#[tokio::test(flavor = "multi_thread")]
async fn label_by_default_has_the_process_id() {
    let (server, client) = single().await;
    let ending = format!(":{}", std::process::id());
    let record = written(&server, &client).await;
    assert!(record.ends_with(&ending), "{record}");
    assert!(names(&server).await.iter().any(|name| name.ends_with(&ending)));
}

#[tokio::test(flavor = "multi_thread")]
async fn label_that_is_empty_leaves_no_record_and_no_name() {
    let server = StandaloneServer::start().await.unwrap();
    let settings = Client::builder().label("");
    let client = settings.connect_to(&[server.url()]).await.unwrap();
    let guard = client.rwlock("a").unwrap().write().await.unwrap();
    assert_eq!(record(&server, &client).await, None);
    assert!(names(&server).await.iter().all(String::is_empty));
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn label_with_a_space_is_invalid_input_before_anything_is_dialled() {
    for settings in [
        Client::builder().urls(["redis://127.0.0.1:1"]),
        Client::builder().sentinel(SentinelConfig::new("master").node("127.0.0.1:1")),
    ] {
        let error = settings.label("two words").connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

/// All else works: locks, and queries, which show ids.
#[tokio::test(flavor = "multi_thread")]
async fn record_without_the_rights_is_not_written_and_locks_work() {
    let least = "user locker on >p resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha \
                 +asking +time +info +cluster|slots +cluster|myid +cluster|info +ssubscribe \
                 +sunsubscribe +wait +exists +hget +hmget +hset +hdel +pexpireat +spublish";
    let server = StandaloneServer::start_with(ServerSettings::default().line(least)).await.unwrap();
    let url = server.url().replace("redis://", "redis://locker:p@");
    let (one, other) = (connect(&[&url]).await.unwrap(), connect(&[&url]).await.unwrap());
    let guard = one.rwlock("a").unwrap().write().await.unwrap();
    assert!(other.rwlock("a").unwrap().try_write().await.unwrap().is_none());
    let status = other.rwlock("a").unwrap().status().await.unwrap();
    let writer = status.writer.unwrap();
    assert!(writer.client.is_none() && writer.id == guard.id(), "{writer:?}");
    assert!(guard.release().await.unwrap().was_held());
    assert_eq!(record(&server, &one).await, None);
}
