//! Where the examples find their servers: `RWLEASE_URL` (comma-separated; one node of a cluster is
//! enough; or one URL of sentinels), else in this process.

use rwlease::Client;

pub async fn connect() -> rwlease::Result<Client> {
    match std::env::var("RWLEASE_URL") {
        Ok(url) if url.contains("+sentinel://") => Client::connect([url]).await,
        Ok(urls) => Client::connect(urls.split(',')).await,
        Err(_) => Client::embedded().await,
    }
}
