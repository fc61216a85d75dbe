//! A program without a runtime: threads that change a counter one after the other, and a leader
//! among them.

use std::thread;
use std::time::Duration;

use rwlease::blocking::Wait;
use rwlease::{Client, Result};

fn main() -> Result<()> {
    let client = match std::env::var("RWLEASE_URL") {
        // The commas in the URL of sentinels are its own.
        Ok(url) if url.contains("+sentinel://") => Client::connect([url]).wait()?,
        Ok(urls) => Client::connect(urls.split(',')).wait()?,
        Err(_) => Client::embedded().wait()?,
    };
    let workers: Vec<_> = (1..=3)
        .map(|number| {
            let client = client.clone();
            thread::spawn(move || count(&client, number))
        })
        .collect();
    for worker in workers {
        worker.join().expect("a worker does not panic")?;
    }

    let lead =
        client.election("blocking:jobs")?.campaign().timeout(Duration::from_secs(10)).wait()?;
    println!("leads in term {}", lead.term());
    assert!(lead.resign().wait()?.was_held());
    // Whatever was dropped and not released yet.
    client.shutdown(Duration::from_secs(2)).wait();
    Ok(())
}

fn count(client: &Client, number: u32) -> Result<()> {
    let counter = client.rwlock("blocking:counter")?;
    let writing = counter.write().timeout(Duration::from_secs(10)).wait()?;
    println!("thread {number} writes, token {}", writing.fencing_token());
    let reading = writing.downgrade().wait()?;
    println!("thread {number} reads, {:?} left", reading.remaining());
    assert!(reading.release().wait()?.was_held());
    Ok(())
}
