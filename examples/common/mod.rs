//! Where the examples find their servers: `RWLEASE_URL` (comma-separated; one node of a cluster is
//! enough; or one URL of sentinels), else in this process.

use rwlease::Locks;

pub async fn connect() -> rwlease::Result<Locks> {
    match std::env::var("RWLEASE_URL") {
        Ok(url) if url.contains("+sentinel://") => Locks::connect([url]).await,
        Ok(urls) => Locks::connect(urls.split(',')).await,
        Err(_) => Locks::embedded().await,
    }
}
