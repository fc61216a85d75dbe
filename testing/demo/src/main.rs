//! Locks taken, contended, handed over, lost and fenced, in under a minute: on the embedded engine,
//! or with `--cluster` on six `redis-server` processes.

mod stage;
mod store;
mod teller;

use std::time::Duration;

use rwlease::{Client, RenewalPolicy, RwLock};
use stage::Stage;
use store::Store;
use teller::Teller;
use tokio::task::JoinSet;

pub type Outcome<T = ()> = testkit::Result<T>;

#[tokio::main]
async fn main() -> Outcome {
    let stage = Stage::set(std::env::args().any(|argument| argument == "--cluster")).await?;
    let teller = Teller::new();
    teller.title(&format!("rwlease on {}", stage.name()));
    let client = stage.connect().await?;
    taken_and_refused(&teller, &client).await?;
    handed_over_in_order(&teller, &client).await?;
    crashed(&teller, &client, &stage.connect().await?).await?;
    fenced(&teller, &client).await?;
    moved(&teller, &client, &stage).await?;
    let left = client.shutdown(Duration::from_secs(5)).await;
    teller.title(&format!("done: {} leases left behind", left.len()));
    Ok(())
}

async fn taken_and_refused(teller: &Teller, client: &Client) -> Outcome {
    teller.title("Readers share, a writer is alone, and who cannot have it is told");
    let order = client.rwlock("order:{42}")?;
    teller.say("", &format!("the lock `{}` lives in slot {}", order.name(), order.slot()));
    let alice = order.read().await?;
    teller.say("alice", &format!("reads, token {}", alice.fencing_token()));
    let bob = order.read().await?;
    teller.say("bob", &format!("reads too, token {}", bob.fencing_token()));
    match order.try_write().await? {
        None => teller.say("carol", "tries to write, and is refused: there are readers"),
        Some(_) => return Err(testkit::Error::new("a writer beside readers")),
    }
    teller.say("alice", &format!("releases: {:?}", alice.release().await?));
    teller.say("bob", &format!("releases: {:?}", bob.release().await?));
    let carol = order.write().await?;
    teller.say(
        "carol",
        &format!(
            "writes, token {}, lease for {:.1?} more",
            carol.fencing_token(),
            carol.remaining()
        ),
    );
    let error = order
        .read()
        .timeout(Duration::from_millis(300))
        .await
        .err()
        .ok_or_else(|| testkit::Error::new("a reader beside a writer"))?;
    teller.say("dave", &format!("would read, waits 0.3 s, gives up: {error}"));
    assert!(carol.release().await?.was_held());
    Ok(())
}

async fn handed_over_in_order(teller: &Teller, client: &Client) -> Outcome {
    teller.title(
        "A queue, phase-fair: when a write ends, the readers that wait by then go together, then the next writer",
    );
    let lock = client.rwlock("ledger")?;
    let first = lock.write().await?;
    teller.say("erin", "writes; the others queue up");
    let mut queue = JoinSet::new();
    for (name, writes) in
        [("frank", true), ("grace", false), ("heidi", true), ("ivan", false), ("judy", false)]
    {
        let waiter = wait_and_hold(teller.clone(), lock.clone(), name, writes);
        queue.spawn(waiter);
        tokio::time::sleep(Duration::from_millis(60)).await; // so that they come in this order
        teller.say(name, if writes { "waits to write" } else { "waits to read" });
    }
    teller.say("erin", &format!("releases: {:?}", first.release().await?));
    while let Some(done) = queue.join_next().await {
        done??;
    }
    Ok(())
}

async fn wait_and_hold(
    teller: Teller,
    lock: RwLock,
    name: &'static str,
    writes: bool,
) -> rwlease::Result<()> {
    let pause = Duration::from_millis(150);
    if writes {
        let guard = lock.write().await?;
        teller.say(name, &format!("writes, token {}", guard.fencing_token()));
        tokio::time::sleep(pause).await;
        assert!(guard.release().await?.was_held());
    } else {
        let guard = lock.read().await?;
        teller.say(name, &format!("reads, token {}", guard.fencing_token()));
        tokio::time::sleep(pause).await;
        assert!(guard.release().await?.was_held());
    }
    teller.say(name, "is done");
    Ok(())
}

async fn crashed(teller: &Teller, client: &Client, doomed: &Client) -> Outcome {
    teller.title("A holder that crashes: its lease ends, nobody is locked out forever");
    let lock = client.rwlock("report")?;
    let lost = doomed
        .rwlock("report")?
        .write()
        .lease(Duration::from_secs(2))
        .renewal(RenewalPolicy::Manual)
        .await?;
    teller.say("mallory", "writes with a lease of 2 s, and crashes");
    std::mem::forget(lost);
    let next = lock.write().await?;
    teller.say(
        "niaj",
        &format!("has waited for that lease to end, and writes, token {}", next.fencing_token()),
    );
    assert!(next.release().await?.was_held());
    Ok(())
}

async fn fenced(teller: &Teller, client: &Client) -> Outcome {
    teller.title("A writer that sleeps through its lease is stopped by its token");
    let lock = client.rwlock("balance")?;
    let mut store = Store::default();
    let slow = lock.write().lease(Duration::from_secs(1)).renewal(RenewalPolicy::Manual).await?;
    let stale = slow.fencing_token();
    teller.say("olivia", &format!("writes, token {stale}, and falls asleep"));
    let lease = (*slow).clone();
    lease.ended().await;
    teller.say(
        "olivia",
        &format!("her guard says {:?} before the server lets anybody else in", lease.state()),
    );
    let fresh = lock.write().await?;
    store.write(fresh.fencing_token(), "by peggy").map_err(testkit::Error::new)?;
    teller.say(
        "peggy",
        &format!(
            "writes, token {}: the store now holds `{}`",
            fresh.fencing_token(),
            store.value()
        ),
    );
    match store.write(stale, "by olivia") {
        Err(refused) => teller.say("olivia", &format!("wakes and writes: {refused}")),
        Ok(()) => return Err(testkit::Error::new("a stale write was let through")),
    }
    teller.say("olivia", &format!("releases: {:?}", slow.release().await?));
    assert!(fresh.release().await?.was_held());
    Ok(())
}

async fn moved(teller: &Teller, client: &Client, stage: &Stage) -> Outcome {
    teller.title(
        "A slot moves to another master under a lock that is held, and one that is waited for",
    );
    let lock = client.rwlock("shard:{7}")?;
    let holder = lock.write().lease(Duration::from_secs(3)).await?;
    teller.say(
        "rupert",
        &format!("writes; slot {} is on {}", lock.slot(), stage.master_of(lock.slot()).await?),
    );
    let waiting = tokio::spawn(wait_and_hold(teller.clone(), lock.clone(), "sybil", true));
    tokio::time::sleep(Duration::from_millis(100)).await;
    teller.say("sybil", "waits to write");
    stage.move_away(lock.slot()).await?;
    teller.say(
        "",
        &format!(
            "slot {} is on {} now, with the lock and its queue",
            lock.slot(),
            stage.master_of(lock.slot()).await?
        ),
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    teller.say(
        "rupert",
        &format!("was renewed there: {:?}, {:.1?} left", holder.state(), holder.remaining()),
    );
    teller.say("rupert", &format!("releases: {:?}", holder.release().await?));
    waiting.await??;
    Ok(())
}
