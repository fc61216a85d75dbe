//! `rwlease list`, and the names of holders in all commands.

use std::future::IntoFuture;

use rwlease::{Client, Slot};
use serde_json::Value;

use crate::fixture::{LONG, Ran, Tool, alone};
use testkit::{Cluster, ClusterConfig, PollLimit, Result, Server};

async fn connect(server: &Server, label: &str) -> Result<Client> {
    let client = Client::builder().urls([server.url()]).label(label).connect().await?;
    let words = format!("EXISTS rwlease:client:{}", client.client_id());
    PollLimit::new("the record of the client").until(|| server.run_words(&words)).await?;
    Ok(client)
}

/// Masters that serve their slots while another one is away.
async fn three_masters() -> Result<Cluster> {
    let shape = ClusterConfig::of(3, 0).line("cluster-require-full-coverage no");
    Cluster::start_with(shape).await
}

fn json(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn names(ran: &Ran) -> Vec<String> {
    json(ran).iter().map(|lock| lock["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn list_shows_locks_and_semaphores_sorted_with_their_holders() -> Result {
    let (server, tool) = alone().await?;
    let client = connect(&server, "billing").await?;
    let write = client.rwlock("b")?.write().await?;
    let reads = [client.rwlock("c")?.read().await?, client.rwlock("c")?.read().await?];
    let permit = client.semaphore("a", 3)?.acquire(2).await?;
    assert!(client.rwlock("d")?.write().await?.release().await?.was_held());
    // No locks: a hash of another program, and the records of clients.
    server.run_words::<()>("HSET rwlease:foreign field value").await?;

    let ran = tool.run(&["list"]).await?.expect_err_lines(0, 0);
    let lines: Vec<Vec<&str>> =
        ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let who = format!("(pid {}", std::process::id());
    assert_eq!(lines[0], ["NAME", "HELD", "SINCE", "LEFT", "WAIT", "WHO"]);
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), ["NAME", "a", "b", "c", "d"]);
    assert_eq!((lines[1][1], lines[2][1], &lines[3][1..3]), ("2/3", "write", &["2", "read"][..]));
    assert_eq!(lines[4], ["d", "free", "0"]);
    for line in ran.out.lines().skip(1).take(3) {
        assert!(line.contains("billing") && line.contains(&who), "{}", ran.out);
    }
    assert!(ran.out.contains("and 1 more"), "{}", ran.out);
    drop((write, reads, permit));
    Ok(())
}

#[tokio::test]
async fn list_json_has_the_shape_of_status() -> Result {
    let (server, tool) = alone().await?;
    let client = connect(&server, "billing").await?;
    let write = client.rwlock("b")?.write().await?;
    let permit = client.semaphore("a", 3)?.acquire(2).await?;
    let ran = tool.run(&["list", "--json"]).await?;
    let [semaphore, lock] = &json(&ran)[..] else { panic!("{ran:?}") };
    assert_eq!((&semaphore["kind"], &lock["kind"]), (&"semaphore".into(), &"lock".into()));
    assert_eq!(lock["writer"]["id"], write.id());
    let slot = Slot::of("rwlease:b").get();
    assert_eq!((&lock["slot"], &lock["locked"]), (&slot.into(), &true.into()));
    for holder in [&lock["writer"], &semaphore["holders"][0]] {
        let client = &holder["client"];
        assert_eq!(
            (&client["label"], &client["pid"]),
            (&"billing".into(), &std::process::id().into())
        );
        assert!(client["host"].is_string() && client["started_at"].is_u64(), "{client}");
        assert!(client["version"].as_str().is_some_and(|text| text.starts_with("rwlease/")));
    }
    for (name, listed) in [("b", lock), ("a", semaphore)] {
        let status = tool.status(name).await?;
        let keys =
            |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
        assert_eq!(keys(&status), keys(listed));
    }
    drop((write, permit));
    Ok(())
}

#[tokio::test]
async fn list_held_and_waiting_filter_locks() -> Result {
    let (server, tool) = alone().await?;
    let client = Client::connect([server.url()]).await?;
    let held = client.rwlock("held")?.write().await?;
    let wanted = client.rwlock("wanted")?.write().await?;
    let permit = client.semaphore("permits", 1)?.acquire(1).await?;
    assert!(client.rwlock("free")?.write().await?.release().await?.was_held());
    let lock = client.rwlock("wanted")?;
    let waiting = tokio::spawn(async move { lock.write().into_future().await });
    tool.until("wanted", |status| status["waiter_count"] == 1).await?;
    let listed = async |args: &[&str]| {
        let args: Vec<&str> = ["list", "--json"].iter().chain(args).copied().collect();
        Ok::<_, testkit::Error>(names(&tool.run(&args).await?))
    };
    assert_eq!(listed(&[]).await?, ["free", "held", "permits", "wanted"]);
    assert_eq!(listed(&["--held"]).await?, ["held", "permits", "wanted"]);
    assert_eq!(listed(&["--waiting"]).await?, ["wanted"]);
    assert_eq!(listed(&["h"]).await?, ["held"]);
    assert_eq!(listed(&["--held", "--waiting", "w"]).await?, ["wanted"]);
    let none = tool.exits(&["list", "nothing"], 0).await?;
    assert_eq!(none.out, "");
    drop((held, wanted, permit));
    drop(waiting.await);
    Ok(())
}

#[tokio::test]
async fn list_with_a_dead_master_shows_the_others_and_exits_69() -> Result {
    let cluster = three_masters().await?;
    let client = Client::connect(cluster.urls()).await?;
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(client.rwlock(format!("lock-{number:02}"))?.write().await?);
    }
    let dead = 1;
    let mut expected = Vec::new();
    for guard in 0..30 {
        let name = format!("lock-{guard:02}");
        if cluster.master_of(Slot::of(format!("rwlease:{name}")).get()).await? != dead {
            expected.push(name);
        }
    }
    assert!((1..30).contains(&expected.len()));
    let address = cluster.node(dead).address().to_string();
    cluster.node(dead).kill()?;
    let ran = Tool::new(cluster.urls()).exits(&["list", "--json"], 69).await?;
    assert_eq!(names(&ran), expected, "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.err.contains(&format!("the locks on {address} are not shown")), "{}", ran.err);
    Ok(())
}

#[tokio::test]
async fn list_skips_hashes_whose_names_no_lock_can_have() -> Result {
    let (server, tool) = alone().await?;
    let client = Client::connect([server.url()]).await?;
    let held = client.rwlock("held")?.write().await?;
    for name in [String::new(), "x".repeat(513)] {
        server.run_words::<()>(&format!("HSET rwlease:{name} field value")).await?;
    }
    let ran = tool.run(&["list", "--json"]).await?.expect_err_lines(0, 0);
    assert_eq!(names(&ran), ["held"]);
    drop(held);
    Ok(())
}

#[tokio::test]
async fn refused_run_while_the_record_of_the_holder_is_away_shows_its_id() -> Result {
    let cluster = three_masters().await?;
    let client = Client::connect(cluster.urls()).await?;
    let master = async |key: String| cluster.master_of(Slot::of(key).get()).await;
    let away = master(format!("rwlease:client:{}", client.client_id())).await?;
    let mut number = 0;
    while master(format!("rwlease:lock-{number}")).await? == away {
        number += 1;
    }
    let name = format!("lock-{number}");
    let guard = client.rwlock(&*name)?.write().lease(LONG).await?;
    let others = (0..3).filter(|node| *node != away).map(|node| cluster.node(node).url());
    let tool = Tool::new(others);
    cluster.node(away).freeze()?;
    let ran = tool.run(&["run", "--timeout", "0s", &name, "--", "true"]).await?;
    cluster.node(away).thaw()?;
    assert_eq!(ran.status, Some(75), "{ran:?}");
    assert!(ran.err.contains(&format!("{} has written for", guard.id())), "{ran:?}");
    drop(guard);
    Ok(())
}

#[tokio::test]
async fn status_and_refused_run_name_the_holder() -> Result {
    let (server, tool) = alone().await?;
    let client = connect(&server, "billing").await?;
    let guard = client.rwlock("a")?.write().await?;
    let permit = client.semaphore("s", 1)?.acquire(1).await?;
    let who = format!("billing (pid {}", std::process::id());
    for name in ["a", "s"] {
        let status = tool.run(&["status", name]).await?.out;
        let line = status.lines().find(|line| line.starts_with("holds")).unwrap_or_default();
        assert!(line.contains(&who), "{status}");
    }
    for timeout in ["0s", "200ms"] {
        let ran = tool.exits(&["run", "--timeout", timeout, "a", "--", "true"], 75).await?;
        ran.expect_err(&[&who, "has written for"]);
    }
    let run = ["run", "--timeout", "0s", "--permits", "1/1", "s", "--", "true"];
    tool.exits(&run, 75).await?.expect_err(&[&who, "has held permits for"]);
    drop((guard, permit));
    Ok(())
}

#[tokio::test]
async fn run_label_names_the_holder_and_queries_leave_no_record() -> Result {
    let (server, tool) = alone().await?;
    let running = tool.start(&["run", "--label", "nightly", "a", "--", "sleep", "600"])?;
    let status = tool.until("a", |status| status["writer"]["client"]["label"] == "nightly").await?;
    assert_eq!(status["writer"]["client"]["pid"], running.id()?);
    tool.run(&["list"]).await?;
    let keys: Vec<String> = server.run_words("KEYS rwlease:client:*").await?;
    assert_eq!(keys.len(), 1, "{keys:?}");
    let wrong = tool.exits(&["run", "--label", "two words", "b", "--", "true"], 64).await?;
    wrong.expect_err(&["`label`"]);
    drop(running);
    Ok(())
}
