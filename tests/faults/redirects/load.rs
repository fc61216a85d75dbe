//! Tasks that acquire and release locks without a pause, and check every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rwlease::{LockMode, Locks, Released};
use tokio::task::JoinSet;

use super::PATIENCE;
use super::book::{Book, Overlaps};
use super::raw::Witness;
use crate::support::{Error, PollLimit, Result};

/// What one task works with.
#[derive(Clone, Debug)]
struct Worker {
    locks: Locks,
    names: Arc<[String]>,
    book: Arc<Book>,
    witness: Option<Arc<Witness>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    rounds: AtomicU64,
    stop: AtomicBool,
}

/// Tasks that use some locks.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<Result>,
}

impl Load {
    /// Starts `tasks` tasks for each client.
    pub fn start(
        clients: &[Locks],
        tasks: usize,
        names: &[String],
        book: &Arc<Book>,
        witness: Option<Arc<Witness>>,
    ) -> Load {
        let shared = Arc::new(Shared::default());
        let mut set = JoinSet::new();
        for locks in clients {
            let worker = Worker {
                locks: locks.clone(),
                names: names.into(),
                book: book.clone(),
                witness: witness.clone(),
                shared: shared.clone(),
            };
            for _ in 0..tasks {
                set.spawn(worker.clone().run());
            }
        }
        Load { shared, tasks: set }
    }

    /// The number of times that a lock was acquired and released.
    pub fn rounds(&self) -> u64 {
        self.shared.rounds.load(Ordering::Relaxed)
    }

    /// Waits until `rounds` more rounds are done. Fails at once if a task has failed.
    pub async fn advance(&mut self, rounds: u64) -> Result {
        let goal = self.rounds() + rounds;
        let wait_limit = PollLimit::new(format!("{rounds} more rounds"));
        while self.rounds() < goal {
            self.check()?;
            wait_limit.pause(format!("{} of {goal} are done", self.rounds())).await?;
        }
        Ok(())
    }

    /// Fails if a task has failed.
    pub fn check(&mut self) -> Result {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        Ok(())
    }

    /// Lets every task finish its round. Returns the number of rounds.
    pub async fn finish(mut self) -> Result<u64> {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        Ok(self.rounds())
    }
}

impl Worker {
    async fn run(self) -> Result {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let name = &self.names[fastrand::usize(..self.names.len())];
            let mode = if fastrand::u8(..3) == 0 { LockMode::Write } else { LockMode::Read };
            self.round(name, mode)
                .await
                .map_err(|error| Error::new(format!("{mode:?} of {name}: {error:?}")))?;
            self.shared.rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn round(&self, name: &str, mode: LockMode) -> Result {
        let lock = self.locks.rwlock(name)?;
        let released = match mode {
            LockMode::Read => {
                let guard = lock.read().timeout(PATIENCE).await.map_err(in_full)?;
                self.stay(name, mode, guard.token()).await?;
                guard.release().await.map_err(in_full)?
            }
            LockMode::Write => {
                let guard = lock.write().timeout(PATIENCE).await.map_err(in_full)?;
                self.stay(name, mode, guard.token()).await?;
                guard.release().await.map_err(in_full)?
            }
        };
        match released {
            Released::Released => Ok(()),
            // The promoted replica did not have the grant.
            Released::AlreadyLost | Released::Unknown
                if self.book.overlaps() == Overlaps::InFailovers =>
            {
                Ok(())
            }
            other => Err(Error::new(format!("the release came to {other:?}"))),
        }
    }

    /// Holds for a moment, registered in the book. The witness confirms the grant.
    async fn stay(&self, name: &str, mode: LockMode, token: u64) -> Result {
        let _stay = self.book.enter(name, mode, token)?;
        match &self.witness {
            Some(witness) => witness.confirm(name, mode, token).await,
            None => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(())
            }
        }
    }
}

/// An error with its details, such as the server's answer.
fn in_full(error: rwlease::Error) -> Error {
    Error::new(format!("{error:?}"))
}
