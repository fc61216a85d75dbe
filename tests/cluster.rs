//! The support code itself: clusters form, slots move, masters die and are replaced, and nothing is left running.

mod support;

use std::path::Path;

use redis::cmd;
use support::{Cluster, Result, ServerSettings, Single};

#[tokio::test]
async fn a_single_server_answers_and_ends() -> Result {
    let server = Single::start().await?;
    let _: () = server.run(cmd("SET").arg("a").arg(1)).await?;
    assert_eq!(server.say::<i64>("GET a").await?, 1);

    let (id, folder) = (server.id(), server.folder().to_path_buf());
    drop(server);
    assert!(!is_alive(id));
    assert!(!folder.exists());
    Ok(())
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let wrong = ServerSettings::default().line("no-such-setting yes");
    let error = Single::start_with(wrong).await.expect_err("started").to_string();
    assert!(error.contains("no-such-setting"), "{error}");

    let missing = ServerSettings::default().binary("/no/such/server");
    let error = Single::start_with(missing).await.expect_err("started").to_string();
    assert!(error.contains("/no/such/server"), "{error}");
}

#[tokio::test]
async fn a_killed_server_comes_back_at_its_port() -> Result {
    let server = Single::start_with(ServerSettings::default().password("secret")).await?;
    let first = server.id();
    server.kill()?;
    assert!(!server.is_running() && !is_alive(first));
    assert!(server.say::<String>("PING").await.is_err());
    server.restart().await?;
    assert_eq!(server.say::<String>("PING").await?, "PONG");
    Ok(())
}

#[tokio::test]
async fn slots_move_with_their_keys() -> Result {
    let cluster = Cluster::start().await?;
    assert_eq!(cluster.masters().await?, [0, 1, 2]);
    assert_eq!(cluster.replicas_of(1).await?, [4]);

    let slot = cluster.slot_of("{move}").await?;
    let from = cluster.owner(slot).await?;
    let to = (from + 1) % 3;
    for number in 0..250 {
        let _: () = cluster
            .node(from)
            .run(cmd("SET").arg(format!("{{move}}{number}")).arg(number))
            .await?;
    }

    let step = cluster.begin_move(slot, to).await?;
    cluster.move_key(step, "{move}7").await?;
    let asked = cluster
        .node(from)
        .say::<i64>("GET {move}7")
        .await
        .expect_err("not redirected")
        .to_string();
    assert!(asked.to_uppercase().contains("ASK"), "{asked}");
    assert_eq!(cluster.node(from).say::<i64>("GET {move}8").await?, 8);
    assert_eq!(cluster.move_keys(step).await?, 249);
    cluster.finish_move(step).await?;

    assert_eq!(cluster.owner(slot).await?, to);
    assert_eq!(cluster.node(to).say::<i64>("GET {move}249").await?, 249);
    for turn in 0..10 {
        cluster.move_slot(slot, turn % 3).await?;
        assert_eq!(cluster.owner(slot).await?, turn % 3);
    }
    if cluster.version().has_atomic_moves() {
        let there = cluster.owner(slot).await?;
        cluster.move_slots_at_once(slot, slot, (there + 1) % 3).await?;
        assert_eq!(cluster.node((there + 1) % 3).say::<i64>("GET {move}8").await?, 8);
    }
    Ok(())
}

/// There is no process of this id, not even an unreaped one.
fn is_alive(id: Option<u32>) -> bool {
    id.is_some_and(|id| Path::new(&format!("/proc/{id}")).exists())
}
