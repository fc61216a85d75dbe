//! Leader election for programs without a runtime.

use std::time::Duration;

use crate::blocking::background_runtime::run;
use crate::blocking::request::Request;
use crate::blocking::rwlock::RwLock;
use crate::error::Result;
use crate::lock::leader::leadership::Leadership;
use crate::lock::leader::{self, CurrentLeader, watch};
use crate::lock::request::{Acquire, TryAcquire};

/// [`Leader`](crate::Leader).
///
/// A thread cannot be cancelled. Work under a leadership must check
/// [`is_leading`](super::Leadership::is_leading) before each step, and send its
/// [`term`](super::Leadership::term) along.
#[derive(Clone, Debug)]
pub struct Leader {
    leader: leader::Leader,
    lock: RwLock,
}

impl Leader {
    pub(super) fn new(leader: leader::Leader) -> Self {
        let lock = RwLock(leader.lock().clone());
        Leader { leader, lock }
    }

    /// As [`Leader::name`](crate::Leader::name).
    pub fn name(&self) -> &str {
        self.leader.name()
    }

    /// As [`Leader::campaign`](crate::Leader::campaign).
    pub fn campaign(&self) -> Request<Acquire<'_, Leadership>> {
        Request(self.leader.campaign())
    }

    /// As [`Leader::try_campaign`](crate::Leader::try_campaign).
    pub fn try_campaign(&self) -> Request<TryAcquire<'_, Leadership>> {
        Request(self.leader.try_campaign())
    }

    /// As [`Leader::current`](crate::Leader::current).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn current(&self) -> Result<Option<CurrentLeader>> {
        run(self.leader.current())?
    }

    /// As [`Leader::watch`](crate::Leader::watch).
    pub fn watch(&self) -> LeaderWatch {
        LeaderWatch(self.leader.watch())
    }

    /// As [`Leader::lock`](crate::Leader::lock).
    pub fn lock(&self) -> &RwLock {
        &self.lock
    }
}

/// [`LeaderWatch`](crate::LeaderWatch).
#[derive(Debug)]
pub struct LeaderWatch(watch::LeaderWatch);

impl LeaderWatch {
    /// As [`LeaderWatch::every`](crate::LeaderWatch::every).
    pub fn every(self, every: Duration) -> Self {
        LeaderWatch(self.0.every(every))
    }

    /// As [`LeaderWatch::changed`](crate::LeaderWatch::changed).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn changed(&mut self) -> Result<Option<CurrentLeader>> {
        run(self.0.changed())?
    }
}
