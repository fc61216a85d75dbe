//! Fenced values: two writers, of which the first sleeps through its lease, for `ROUNDS` rounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join;
use rwlease::Client;
use testkit::{
    Cluster, ClusterConfig, ConnectBuilder, RedisStore, Result, StandaloneServer, connect,
    round_count, run_fencing_rounds,
};

#[tokio::test(flavor = "multi_thread")]
async fn fenced_value_accepts_no_stale_writer() -> Result {
    let server = StandaloneServer::start().await?;
    let (one, other) = (connect(&[server.url()]).await?, connect(&[server.url()]).await?);
    run_fencing_rounds([&one, &other], &RedisStore(&other), round_count()).await?.expect_no_fault();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fenced_value_accepts_no_stale_writer_while_its_slot_moves() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let patient = || Client::builder().call_timeout(Duration::from_secs(30));
    let one = patient().connect_to(&cluster.urls()).await?;
    let other = patient().connect_to(&cluster.urls()).await?;
    let slot = cluster.slot_of("{fenced}").await?;
    let (is_over, store) = (AtomicBool::new(false), RedisStore(&other));
    let rounds = async {
        let report = run_fencing_rounds([&one, &other], &store, round_count()).await;
        is_over.store(true, Ordering::Relaxed);
        report
    };
    let moves = async {
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            let target = 1 - cluster.master_of(slot).await?;
            cluster.move_slot(slot, target).await?;
            count += 1;
        }
        Result::Ok(count)
    };
    let (report, moves) = join(rounds, moves).await;
    report?.expect_no_fault();
    println!("the slot moved {} times", moves?);
    Ok(())
}

/// The rounds find a script that compares no tokens.
#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread")]
async fn fencing_rounds_find_a_fault_of_the_script() -> Result {
    let folder = testkit::TempFolder::of_scripts("fencing")?;
    let compares = "if not stored_line or token > stored_token then";
    folder.replace("lib/fenced_writer.lua", compares, "if true then")?;
    let engine = rwlease::embedded::EmbeddedCluster::new();
    let connect =
        async || Client::builder().scripts_from(&folder).unwrap().connect_embedded(&engine).await;
    let (one, other) = (connect().await?, connect().await?);
    let report = run_fencing_rounds([&one, &other], &RedisStore(&other), 64).await?;
    assert!(report.faults.iter().any(|fault| fault.contains("in place of")), "{report:?}");
    Ok(())
}
