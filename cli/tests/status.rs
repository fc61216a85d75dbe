//! `rwlease status`, `list` and `slot`.

use std::future::IntoFuture;
use std::time::Duration;

use rustix::process::Signal;
use rwlease::{Client, Slot};
use serde_json::Value;

use crate::fixture::{Tool, alone};
use testkit::Result;

/// The first two columns of a row.
fn first_words(row: &str) -> String {
    row.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn status_shows_holders_waiters_and_the_upgrader() -> Result {
    let (server, tool) = alone().await?;
    let free = tool.exits(&["status", "a"], 0).await?;
    assert!(free.out.starts_with("a  slot 11174  free, 0 wait"), "{free:?}");

    let locks = Client::connect([server.url()]).await?;
    let lock = locks.rwlock("a")?;
    let (one, other) = (lock.read().await?, lock.read().await?);
    let waiting = tool.start(&["run", "--write", "a", "--", "true"])?;
    let status = tool.until("a", |status| status["waiter_count"] == 1).await?;
    assert_eq!((&status["name"], &status["locked"]), (&"a".into(), &true.into()));
    assert_eq!(status["slot"], Slot::of("rwlease:a").get());
    assert_eq!(status["writer"], Value::Null);
    assert_eq!(status["readers"].as_array().map(Vec::len), Some(2));
    assert_eq!(status["readers"][0]["id"], one.id());
    assert_eq!(status["readers"][1]["token"], other.fencing_token().get());
    assert_eq!(status["waiters"][0]["mode"], "write");

    let words = tool.run(&["status", "a"]).await?.out;
    assert!(words.contains("held by 2 readers, 1 waits"), "{words}");
    for id in [one.id(), other.id()] {
        let line = words.lines().find(|line| line.contains(id)).unwrap_or_default();
        assert_eq!(first_words(line), "holds read", "{words}");
    }
    assert!(words.lines().any(|line| first_words(line) == "waits write"), "{words}");
    assert!(!words.contains('\x1b'), "colour is for terminals");

    let id = one.id().to_owned();
    let upgrade = tokio::spawn(one.upgrade().into_future());
    let status = tool.until("a", |status| status["waiter_count"] == 2).await?;
    assert_eq!(status["upgrader"]["id"], id.as_str());
    let words = tool.run(&["status", "a"]).await?.out;
    let lines: Vec<&str> = words.lines().filter(|line| line.contains(&id)).collect();
    assert_eq!(first_words(lines[0]), "holds read", "{words}");
    assert_eq!(first_words(lines[1]), "upgrades write", "{words}");
    let _ = other.release().await?;
    let _ = upgrade.await.unwrap().map_err(rwlease::Error::from)?.release().await?;
    assert_eq!(waiting.ended().await?.status, Some(0));
    Ok(())
}

#[tokio::test]
async fn status_shows_more_than_one_page() -> Result {
    let (server, tool) = alone().await?;
    let lock = Client::connect([server.url()]).await?.rwlock("a")?;
    let mut readers = Vec::new();
    for _ in 0..150 {
        readers.push(lock.read().await?);
    }
    let status = tool.status("a").await?;
    assert_eq!(status["readers"].as_array().map(Vec::len), Some(150));
    Ok(())
}

#[tokio::test]
async fn status_watch_repeats_until_interrupted() -> Result {
    let (server, tool) = alone().await?;
    let mut watch = tool.start(&["status", "a", "--watch", "--every", "20ms", "--json"])?;
    let before: Value = serde_json::from_str(&watch.line().await?)?;
    assert_eq!(before["locked"], false);
    let lock = Client::connect([server.url()]).await?.rwlock("a")?;
    let _guard = lock.write().await?;
    while serde_json::from_str::<Value>(&watch.line().await?)?["locked"] == false {}
    // Also while it waits for an answer.
    server.freeze()?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    watch.signal(Signal::INT)?;
    assert_eq!(watch.ended().await?.status, Some(130));
    server.thaw()?;
    Ok(())
}

#[tokio::test]
async fn status_and_list_escape_control_characters_of_lock_names() -> Result {
    let (server, tool) = alone().await?;
    let (name, shown) = ("a\n\x1b[2Jb", "a\\n\\u{1b}[2Jb");
    let lock = Client::connect([server.url()]).await?.rwlock(name)?;
    let _guard = lock.read().await?;
    let listed = tool.run(&["list"]).await?.out;
    assert!(listed.contains(&format!("\n{shown}  read ")), "{listed:?}");
    let words = tool.run(&["status", name]).await?.out;
    assert!(words.starts_with(&format!("{shown}  slot")), "{words:?}");
    assert_eq!(tool.status(name).await?["name"], name);
    let refused = tool.exits(&["run", "--timeout", "0s", name, "--", "true"], 75).await?;
    refused.expect_err(&["\\u{1b}[2Jb"]);
    let revoked = tool.run(&["revoke", name]).await?.out;
    assert!(revoked.starts_with(&format!("revoked {shown} from")), "{revoked:?}");
    Ok(())
}

#[tokio::test]
async fn slot_needs_no_server() -> Result {
    let ran = Tool::new([""]).run(&["slot", "order:{42}", "{42}", "a"]).await?;
    let shared = Slot::of("42").get();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_eq!(ran.out, format!("{shared:>5}  order:{{42}}\n{shared:>5}  {{42}}\n11174  a\n"));
    Ok(())
}

/// A key that is no lock may be a semaphore: that is a second query.
#[tokio::test]
async fn status_whose_second_query_is_refused_says_so() -> Result {
    let (server, tool) = alone().await?;
    let locks = Client::connect([server.url()]).await?;
    let _permit = locks.semaphore("s", 2)?.acquire(1).await?;
    let _lock = locks.rwlock("a")?.write().await?;
    tool.exits(&["status", "a"], 0).await?;
    tool.exits(&["run", "--timeout", "0s", "b", "--", "true"], 0).await?;
    // The server knows the scripts of locks, and the user may load no other.
    server.run_words::<()>("ACL SETUSER poor on nopass ~* &* +@all -eval").await?;
    let poor = Tool::new([server.url().replace("redis://", "redis://poor:any@")]);
    poor.exits(&["status", "a"], 0).await?;
    for args in [&["status", "s"][..], &["list"], &["run", "--timeout", "0s", "s", "--", "true"]] {
        poor.exits(args, 77).await?.expect_err(&["eval"]);
    }
    Ok(())
}
