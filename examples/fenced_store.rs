//! A store that refuses stale writers. It is what makes a lock on a network safe for data: a writer
//! that was stopped for longer than its lease wakes up and writes all the same, and the store
//! refuses its token.

mod common;
#[path = "demo/store.rs"]
mod store;

use std::time::Duration;

use rwlease::{RenewalPolicy, Result};
use store::Store;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = common::connect().await?;
    let account = locks.rwlock("account:{7}")?;
    let mut store = Store::default();

    let slow =
        account.write().lease(Duration::from_millis(300)).renewal(RenewalPolicy::Manual).await?;
    let token = slow.token();
    slow.lost().await; // it was stopped, and its lease has ended

    let fresh = account.write().await?;
    println!("the fresh writer: {:?}", store.write(fresh.token(), "paid"));
    println!("the stale writer: {:?}", store.write(token, "owed"));
    println!("the store holds `{}`", store.value());
    assert_eq!(store.value(), "paid");
    assert!(fresh.release().await?.was_held());
    Ok(())
}
