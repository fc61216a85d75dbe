//! One `write()` and its release, for `scripts/call-path`. It waits for a line of input before and
//! after it, so that only the calls in between are recorded.

use std::io::{BufRead, Error, stdin};

use rwlease::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: one_write URL")?;
    let client = Client::builder().urls([url]).connect().await?;
    let lock = client.rwlock("order")?;
    // The first call of a client uploads the scripts.
    let _ = lock.write().await?.release().await?;
    wait_for_line("ready")?;
    let guard = lock.write().await?;
    let _ = guard.release().await?;
    wait_for_line("done")?;
    Ok(())
}

fn wait_for_line(state: &str) -> Result<(), Error> {
    println!("{state}");
    stdin().lock().read_line(&mut String::new()).map(drop)
}
