//! A value that refuses stale writers. It is what makes a lock on a network safe for data: a writer
//! that was stopped for longer than its lease wakes up and writes all the same, and the value
//! refuses its token.

mod common;

use std::time::Duration;

use rwlease::{ErrorKind, RenewalPolicy};

#[tokio::main]
async fn main() -> rwlease::Result<()> {
    let client = common::connect().await?;
    let account = client.rwlock("account:{7}")?;
    let state = account.fenced_value("state:{7}")?;

    let slow =
        account.write().lease(Duration::from_millis(300)).renewal(RenewalPolicy::Manual).await?;
    let slow_writer = state.writer(&slow)?;
    slow.ended().await; // it was stopped, and its lease has ended

    let fresh = account.write().await?;
    let fresh_writer = state.writer(&fresh)?;
    println!("before the fresh writer: {:?}", fresh_writer.get().await?);
    fresh_writer.set("paid").await?;

    let refused = slow_writer.set("owed").await.expect_err("it is stale");
    println!("the stale writer: {refused}");
    assert_eq!(refused.kind(), ErrorKind::StaleToken);
    assert_eq!(refused.stored_token(), Some(fresh.fencing_token()));
    assert_eq!(state.get().await?, Some(b"paid".to_vec()));
    assert!(fresh.release().await?.was_held());
    Ok(())
}
