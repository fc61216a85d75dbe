//! Two writers of one row, of which the first sleeps through its lease, for `ROUNDS` rounds.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rwlease::{Client, FencingToken};
use rwlease_sql::{PostgresServer, PostgresStore, RowWriter, SqliteStore, Statements};
use testkit::{FencedStore, FencingReport, Result, round_count, run_fencing_rounds};

async fn two_clients() -> Result<[Client; 2]> {
    let engine = rwlease::embedded::EmbeddedCluster::new();
    let connect = async || Client::builder().connect_embedded(&engine).await;
    Ok([connect().await?, connect().await?])
}

async fn rounds(store: &impl FencedStore, count: u64) -> Result<FencingReport> {
    let [one, other] = two_clients().await?;
    run_fencing_rounds([&one, &other], store, count).await
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_row_accepts_no_stale_writer() -> Result {
    let server = PostgresServer::start().await?;
    let store = PostgresStore::new(&server, Statements::of_the_page()).await?;
    rounds(&store, round_count()).await?.expect_no_fault();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_row_accepts_no_stale_writer() -> Result {
    let store = SqliteStore::new(Statements::of_the_page())?;
    rounds(&store, round_count()).await?.expect_no_fault();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fencing_rounds_find_a_statement_that_compares_no_tokens() -> Result {
    let server = PostgresServer::start().await?;
    let postgres = PostgresStore::new(&server, Statements::without_comparison()).await?;
    let sqlite = SqliteStore::new(Statements::without_comparison())?;
    for report in [rounds(&postgres, 64).await?, rounds(&sqlite, 64).await?] {
        let is_stale = |fault: &&String| fault.contains("a stale write was accepted");
        assert!(report.faults.iter().filter(is_stale).count() > 30, "{report:?}");
    }
    Ok(())
}

/// A statement that was sent before, on a connection that has broken, and runs after a later one.
#[tokio::test(flavor = "multi_thread")]
async fn row_keeps_the_later_write_of_one_token() -> Result {
    let server = PostgresServer::start().await?;
    let writer = RowWriter::new("a", FencingToken::try_from(1 << 53)?);
    let right = Statements::of_the_page;
    for (statements, expected) in
        [(right(), "second"), (Statements::comparing_tokens_only(), "first")]
    {
        let postgres = PostgresStore::new(&server, statements.clone()).await?;
        assert!(postgres.write(&writer, 1, Some("first")).await?);
        assert!(postgres.write(&writer, 2, Some("second")).await?);
        assert!(postgres.write(&writer, 2, Some("second")).await?, "repeated");
        postgres.write(&writer, 1, Some("first")).await?;
        assert_eq!(postgres.get("a").await?.as_deref(), Some(expected));

        let sqlite = SqliteStore::new(statements)?;
        assert!(sqlite.write(&writer, 1, Some("first"))?);
        assert!(sqlite.write(&writer, 2, Some("second"))?);
        assert!(sqlite.write(&writer, 2, Some("second"))?, "repeated");
        sqlite.write(&writer, 1, Some("first"))?;
        assert_eq!(sqlite.get("a").await?.as_deref(), Some(expected));
    }
    Ok(())
}

/// The writer of a transaction enters, and keeps an older writer out of another table.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_transaction_that_entered_protects_another_table() -> Result {
    let server = PostgresServer::start().await?;
    let statements = Statements::of_the_page();
    let _store = PostgresStore::new(&server, statements.clone()).await?;
    let (mut fresh, stale) = (server.connect().await?, server.connect().await?);
    fresh
        .batch_execute("CREATE TABLE balance (amount int); INSERT INTO balance VALUES (100)")
        .await?;

    let work = fresh.transaction().await?;
    assert!(work.query_opt(&statements.enter, &[&"a", &8_i64, &1_i64]).await?.is_some());
    let late = tokio::spawn({
        let enter = statements.enter.clone();
        async move { stale.query_opt(&enter, &[&"a", &7_i64, &1_i64]).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!late.is_finished(), "it waits for the row");
    work.execute("UPDATE balance SET amount = 90", &[]).await?;
    work.commit().await?;
    assert!(late.await??.is_none(), "it is refused");
    Ok(())
}
