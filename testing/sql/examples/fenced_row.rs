//! A row of PostgreSQL that survives a worker that sleeps through its lease.

use std::time::Duration;

use rwlease::{Client, RenewalPolicy};
use rwlease_sql::{PostgresServer, Statements};

#[tokio::main]
async fn main() -> testkit::Result {
    let (server, sql) = (PostgresServer::start().await?, Statements::of_the_page());
    let database = server.connect().await?;
    database.batch_execute(&sql.create_table).await?;
    let client = Client::embedded().await?;
    let account = client.rwlock("account:{7}")?;

    let slow = account.write().lease(Duration::from_millis(300)).renewal(RenewalPolicy::Manual);
    let slow = slow.await?;
    let slow_token = slow.fencing_token().get() as i64;
    slow.ended().await; // it was stopped, and its lease has ended

    let fresh = account.write().await?;
    let fresh_token = fresh.fencing_token().get() as i64;
    let write = async |token: i64, value: &str| {
        database.execute(&sql.set, &[&"account:{7}", &token, &1_i64, &value]).await
    };
    println!("rows changed by the fresh writer: {}", write(fresh_token, "paid").await?);
    println!("rows changed by the stale writer: {}", write(slow_token, "owed").await?);
    let row = database.query_one("SELECT value FROM fenced", &[]).await?;
    let value: String = row.get(0);
    println!("the row has `{value}`");
    assert_eq!(value, "paid");
    assert!(fresh.release().await?.was_held());
    Ok(())
}
