//! Rounds of two writers of one fenced store, of which the first sleeps through its lease.

use std::time::Duration;

use futures::future::{join, try_join_all};
use rwlease::{Client, ErrorKind, FencedWriter, FencingToken, Lease, RenewalPolicy, WriteGuard};

use super::Result;

/// How many pairs of writers run at a time, each with a lock and a value of its own.
const LANES: usize = 32;

/// The lease of the writer that sleeps.
const SHORT: Duration = Duration::from_millis(30);

/// A store that refuses tokens older than the newest that it has seen. Each value belongs to the
/// lock with its name.
#[allow(async_fn_in_trait)]
pub trait FencedStore {
    /// Writes one value with one token.
    type Writer;

    fn writer(&self, name: &str, lease: &Lease, token: FencingToken) -> Result<Self::Writer>;

    /// Shuts out older writers, and returns the value. `None` if the token is stale.
    async fn enter(&self, writer: &Self::Writer) -> Result<Option<Option<String>>>;

    /// False if the token is stale.
    async fn set(&self, writer: &Self::Writer, value: &str) -> Result<bool>;

    /// False if the token is stale.
    async fn delete(&self, writer: &Self::Writer) -> Result<bool>;

    async fn get(&self, name: &str) -> Result<Option<String>>;
}

/// What the rounds found.
#[derive(Debug, Default)]
pub struct FencingReport {
    pub rounds: u64,
    /// The writes that the store refused.
    pub refused: u64,
    /// What the store did that it must not do.
    pub faults: Vec<String>,
}

impl FencingReport {
    /// There was no fault, and every round had a write to refuse.
    pub fn expect_no_fault(&self) {
        println!("{} rounds, {} writes refused", self.rounds, self.refused);
        assert!(self.faults.is_empty(), "{:#?}", self.faults);
        assert!(self.refused >= self.rounds, "{self:?}");
    }
}

/// The number of rounds: `ROUNDS`, or some hundreds.
pub fn round_count() -> u64 {
    std::env::var("ROUNDS").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

/// The name of the lock and the value of a lane. All are in one slot, so that a test can move it.
fn lane_name(lane: usize) -> String {
    format!("{{fenced}}:{lane}")
}

/// Runs rounds of two writers, and judges what the store accepted.
pub async fn run_fencing_rounds(
    clients: [&Client; 2],
    store: &impl FencedStore,
    rounds: u64,
) -> Result<FencingReport> {
    let lanes = (0..LANES).map(async |lane| {
        let mut report = FencingReport::default();
        for number in (lane as u64..rounds).step_by(LANES) {
            let round = Round { clients, store, name: lane_name(lane), number };
            round.run(&mut report).await?;
            report.rounds += 1;
        }
        Ok::<_, super::Error>(report)
    });
    let mut total = FencingReport::default();
    for report in try_join_all(lanes).await? {
        total.rounds += report.rounds;
        total.refused += report.refused;
        total.faults.extend(report.faults);
    }
    Ok(total)
}

struct Round<'a, S> {
    clients: [&'a Client; 2],
    store: &'a S,
    name: String,
    number: u64,
}

impl<S: FencedStore> Round<'_, S> {
    async fn run(&self, report: &mut FencingReport) -> Result {
        let [slow_client, fresh_client] = self.clients;
        let slow = self.short_write(slow_client).await?;
        let stale = self.store.writer(&self.name, &slow, slow.fencing_token())?;
        if self.number.is_multiple_of(2) && !self.store.set(&stale, &self.text("early")).await? {
            report.faults.push(format!("{}: the newest writer was refused", self.text("early")));
        }
        slow.ended().await;

        let held = fresh_client.rwlock(&self.name)?.write().await?;
        let fresh = self.store.writer(&self.name, &held, held.fencing_token())?;
        let (mut expected, late) = (Some(self.text("fresh")), self.text("late"));
        let is_accepted = match self.number % 4 {
            0 => {
                self.write(&fresh, report).await?;
                self.store.set(&stale, &late).await?
            }
            1 => {
                let Some(read) = self.store.enter(&fresh).await? else {
                    let fresh = self.text("fresh");
                    report.faults.push(format!("{fresh}: the newest writer was refused"));
                    return Ok(());
                };
                let is_accepted = self.store.set(&stale, &late).await?;
                expected = read;
                is_accepted
            }
            2 => {
                // Either order is right, if the fresh value stays.
                let (written, late) =
                    join(self.write(&fresh, report), self.store.set(&stale, &late)).await;
                written?;
                report.refused += u64::from(!late?);
                self.store.set(&stale, &self.text("later")).await?
            }
            _ => {
                self.write(&fresh, report).await?;
                if !self.store.delete(&fresh).await? {
                    report.faults.push(format!("{}: not deleted", self.text("fresh")));
                }
                expected = None;
                self.store.set(&stale, &late).await?
            }
        };
        match is_accepted {
            true => report.faults.push(format!("{late}: a stale write was accepted")),
            false => report.refused += 1,
        }
        let found = self.store.get(&self.name).await?;
        if found != expected {
            report.faults.push(format!("{late}: {found:?} in place of {expected:?}"));
        }
        let _ = held.release().await?;
        Ok(())
    }

    /// A write whose lease soon ends. The machine can stand still for longer than the lease.
    async fn short_write(&self, client: &Client) -> Result<WriteGuard> {
        let lock = client.rwlock(&self.name)?;
        loop {
            match lock.write().lease(SHORT).renewal(RenewalPolicy::Manual).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                acquired => return Ok(acquired?),
            }
        }
    }

    async fn write(&self, fresh: &S::Writer, report: &mut FencingReport) -> Result {
        if !self.store.set(fresh, &self.text("fresh")).await? {
            report.faults.push(format!("{}: the newest writer was refused", self.text("fresh")));
        }
        Ok(())
    }

    fn text(&self, what: &str) -> String {
        format!("{} {} {what}", self.name, self.number)
    }
}

/// The fenced values of the library.
#[derive(Debug)]
pub struct RedisStore<'a>(pub &'a Client);

impl FencedStore for RedisStore<'_> {
    type Writer = FencedWriter;

    fn writer(&self, name: &str, lease: &Lease, token: FencingToken) -> Result<FencedWriter> {
        let value = self.0.rwlock(name)?.fenced_value(name)?;
        match value.writer(lease) {
            // The machine stood still, and the lease has ended.
            Err(error) if error.kind() == ErrorKind::LeaseLost => {
                Ok(value.writer_with_token(token))
            }
            made => Ok(made?),
        }
    }

    async fn enter(&self, writer: &FencedWriter) -> Result<Option<Option<String>>> {
        Ok(unless_stale(writer.get().await)?.map(|value| value.map(text)))
    }

    async fn set(&self, writer: &FencedWriter, value: &str) -> Result<bool> {
        Ok(unless_stale(writer.set(value).await)?.is_some())
    }

    async fn delete(&self, writer: &FencedWriter) -> Result<bool> {
        Ok(unless_stale(writer.delete().await)?.is_some())
    }

    async fn get(&self, name: &str) -> Result<Option<String>> {
        Ok(self.0.rwlock(name)?.fenced_value(name)?.get().await?.map(text))
    }
}

fn text(value: Vec<u8>) -> String {
    String::from_utf8_lossy(&value).into_owned()
}

fn unless_stale<T>(result: rwlease::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == ErrorKind::StaleToken => Ok(None),
        Err(error) => Err(error.into()),
    }
}
