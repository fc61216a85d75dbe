//! Where the examples find their servers: `RWLEASE_URL` (comma-separated; one node of a cluster is
//! enough), else in this process.

use rwlease::Locks;

pub async fn connect() -> rwlease::Result<Locks> {
    match std::env::var("RWLEASE_URL") {
        Ok(urls) => Locks::connect(urls.split(',')).await,
        Err(_) => Locks::embedded().await,
    }
}
