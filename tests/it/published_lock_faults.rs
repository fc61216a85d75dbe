//! The five faults of the published single-hash lock, shown on a real server, and absent here.
//!
//! Every test has two halves with the same steps. In the first, the published lock fails; in the
//! second, this library's lock does not.

use std::time::Duration;

use redis::cmd;
use rwlease::{ReleaseOutcome, RenewalPolicy};
use testkit::published::{SingleHash, Timeouts};
use testkit::{Error, Result, StandaloneServer, connect};

/// The time by a client's clock, for the published lock. Any value will do, because that lock
/// ignores the server's clock.
const NOW: u64 = 1_700_000_000_000;
const HOUR: u64 = 3_600_000;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

/// 1. A second reader overwrites the first one's timestamp, so its release lets a writer in while
///    the first one reads.
#[tokio::test]
async fn release_by_one_reader_keeps_the_other_readers() -> Result {
    let server = StandaloneServer::start().await?;

    let lock = published(&server, Timeouts::default()).await?;
    assert!(lock.acquire_read(NOW).await?);
    assert!(lock.acquire_read(NOW + 1).await?);
    lock.release_read(NOW + 1).await?;
    assert!(lock.acquire_write(NOW + 2).await?, "the published lock has lost its fault");

    let lock = connect(&[server.url()]).await?.rwlock("order")?;
    let first = lock.try_read().await?.expect("free");
    let second = lock.try_read().await?.expect("free");
    assert_eq!(second.release().await?, ReleaseOutcome::Released);
    assert!(lock.try_write().await?.is_none());
    assert_eq!(first.release().await?, ReleaseOutcome::Released);
    assert!(lock.try_write().await?.is_some());
    Ok(())
}

/// 2. The clocks of different clients are compared, so one whose clock is fast takes the lock from
///    its holder.
#[tokio::test]
async fn acquire_ignores_the_clock_of_the_client() -> Result {
    let server = StandaloneServer::start().await?;

    let lock = published(&server, Timeouts::default()).await?;
    assert!(lock.acquire_write(NOW).await?);
    assert!(lock.acquire_write(NOW + HOUR).await?, "the published lock has lost its fault");

    // Calls the scripts directly, where a client can send any time. The only time that a call takes
    // is the one until which the request is valid.
    let now = server_ms(&server).await?;
    assert_eq!(acquire_write(&server, "holder-00001", now + 1_000).await?, "granted");
    for claimed in [0, now + 1_000, now + HOUR, now + 10 * 365 * 24 * HOUR] {
        assert_eq!(acquire_write(&server, "other-000001", claimed).await?, "busy");
    }
    for claimed in [1, NOW, now - HOUR] {
        assert_eq!(acquire_write(&server, "other-000001", claimed).await?, "too_late");
    }
    Ok(())
}

/// 3. Two acquisitions in the same millisecond are one, so either can release the other.
#[tokio::test]
async fn acquires_in_the_same_millisecond_have_their_own_leases() -> Result {
    let server = StandaloneServer::start().await?;

    let lock = published(&server, Timeouts::default()).await?;
    assert!(lock.acquire_write(NOW).await?);
    assert!(!lock.acquire_write(NOW).await?);
    lock.release_write(NOW).await?; // by the acquisition that was refused
    assert!(lock.acquire_write(NOW + 1).await?, "the published lock has lost its fault");

    let locks = [connect(&[server.url()]).await?, connect(&[server.url()]).await?];
    let [first, second] = [locks[0].rwlock("order")?, locks[1].rwlock("order")?];
    let (held, also_held) = tokio::join!(first.try_read(), second.try_read());
    let (held, also_held) = (held?.expect("free"), also_held?.expect("readers share"));
    assert_ne!(held.fencing_token(), also_held.fencing_token());
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    assert!(first.try_write().await?.is_none());
    assert_eq!(also_held.release().await?, ReleaseOutcome::Released);
    assert!(first.try_write().await?.is_some());
    Ok(())
}

/// 4. Each acquire sets the key's time to live anew, so a short lease cuts a long one short.
#[tokio::test]
async fn short_lease_does_not_shorten_a_longer_lease() -> Result {
    let server = StandaloneServer::start().await?;

    let long =
        published(&server, Timeouts { key: ms(LONG), read: ms(LONG), write: ms(LONG) }).await?;
    let short =
        published(&server, Timeouts { key: ms(SHORT), read: ms(LONG), write: ms(LONG) }).await?;
    assert!(long.acquire_read(NOW).await?);
    assert!(short.acquire_read(NOW + 1).await?);
    assert!(!long.acquire_write(NOW + 2).await?);
    pass(SHORT).await;
    assert!(long.acquire_write(NOW + 2).await?, "the published lock has lost its fault");

    let lock = connect(&[server.url()]).await?.rwlock("order")?;
    let long = lock.try_read().lease(LONG).await?.expect("free");
    let short = lock.try_read().lease(SHORT).renewal(RenewalPolicy::Manual).await?.expect("free");
    pass(SHORT).await;
    assert_eq!(short.release().await?, ReleaseOutcome::AlreadyLost);
    assert!(lock.try_write().await?.is_none());
    // The server removes a key that has ended, whatever its fields say.
    assert!(server.run_words::<u64>("PTTL rwlease:order").await? > ms(LONG) / 2);
    assert_eq!(long.release().await?, ReleaseOutcome::Released);
    assert!(lock.try_write().await?.is_some());
    Ok(())
}

/// 5. Each client applies its own timeout to the holder's lease, so an impatient client takes the
///    lock from its holder.
#[tokio::test]
async fn lease_length_is_set_by_its_holder_alone() -> Result {
    let server = StandaloneServer::start().await?;

    let holder = published(&server, Timeouts { write: ms(LONG), ..Timeouts::default() }).await?;
    let judge = published(&server, Timeouts { write: ms(SHORT), ..Timeouts::default() }).await?;
    assert!(holder.acquire_write(NOW).await?);
    assert!(
        judge.acquire_write(NOW + ms(SHORT) + 1).await?,
        "the published lock has lost its fault"
    );

    let lock = connect(&[server.url()]).await?.rwlock("order")?;
    let held = lock.try_write().lease(LONG).await?.expect("free");
    pass(SHORT).await;
    assert!(lock.try_write().lease(SHORT).await?.is_none());
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    assert!(lock.try_write().lease(SHORT).await?.is_some());
    Ok(())
}

async fn published(server: &StandaloneServer, timeouts: Timeouts) -> Result<SingleHash> {
    Ok(SingleHash::new(server.connect().await?, "published", timeouts))
}

/// The script's status after one try to acquire, for a lease that outlasts the test.
async fn acquire_write(server: &StandaloneServer, id: &str, not_after: u64) -> Result<String> {
    let script = rwlease::scripts().find(|script| script.name() == "acquire_write");
    let script = script.ok_or_else(|| Error::new("there is no script acquire_write"))?;
    let mut try_acquire = cmd("EVAL");
    try_acquire.arg(script.text()).arg(1).arg("rwlease:order");
    try_acquire.arg("-").arg(not_after).arg(id).arg(ms(LONG)).arg(&["f", "1", "0"]);
    let reply: String = server.run(&try_acquire).await?;
    let status = reply.split(' ').next();
    Ok(status.ok_or_else(|| Error::new("a reply without a status"))?.into())
}

async fn server_ms(server: &StandaloneServer) -> Result<u64> {
    let (seconds, micros): (u64, u64) = server.run_words("TIME").await?;
    Ok(seconds * 1_000 + micros / 1_000)
}

/// Waits until `lease` has ended, and some time longer.
async fn pass(lease: Duration) {
    tokio::time::sleep(2 * lease).await;
}

fn ms(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
