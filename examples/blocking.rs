//! A program without a runtime: threads that change a counter one after the other, and a leader
//! among them.

use std::thread;
use std::time::Duration;

use rwlease::Result;
use rwlease::blocking::Locks;

fn main() -> Result<()> {
    let locks = match std::env::var("RWLEASE_URL") {
        // The commas in the URL of sentinels are its own.
        Ok(url) if url.contains("+sentinel://") => Locks::connect([url])?,
        Ok(urls) => Locks::connect(urls.split(','))?,
        Err(_) => Locks::embedded()?,
    };
    let workers: Vec<_> = (1..=3)
        .map(|number| {
            let locks = locks.clone();
            thread::spawn(move || count(&locks, number))
        })
        .collect();
    for worker in workers {
        worker.join().expect("a worker does not panic")?;
    }

    let lead = locks.leader("blocking:jobs")?.campaign().timeout(Duration::from_secs(10)).wait()?;
    println!("leads in term {}", lead.term());
    assert!(lead.resign()?.was_held());
    // Whatever was dropped and not released yet.
    locks.shutdown(Duration::from_secs(2))?;
    Ok(())
}

fn count(locks: &Locks, number: u32) -> Result<()> {
    let counter = locks.rwlock("blocking:counter")?;
    let writing = counter.write().timeout(Duration::from_secs(10)).wait()?;
    println!("thread {number} writes, token {}", writing.token());
    let reading = writing.downgrade()?;
    println!("thread {number} reads, {:?} left", reading.remaining());
    assert!(reading.release()?.was_held());
    Ok(())
}
