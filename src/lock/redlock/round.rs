//! One try at all members of a quorum, and how they agree on a token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use rwlease_core::acquisition::{LeaseOptions, WaitPolicy};
use rwlease_core::protocol::{LockKey, LockKind, LockMode};
use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;

use super::telemetry;
use crate::client::acquire_task;
use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::lock::guard::Hold;
use crate::lock::lease::Lease;
use crate::lock::redlock::Redlock;
use crate::lock::redlock::guard::RedlockGuard;
use crate::lock::redlock::member_leases::MemberLeases;

/// The minimum time a round waits for slow members after a majority has granted the lock.
const LEAST_GRACE: Duration = Duration::from_millis(5);

/// One try at all members.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) quorum: Redlock,
    /// One for each member, in their order.
    pub(super) locks: Arc<[LockKey]>,
    pub(super) mode: LockMode,
    pub(super) options: LeaseOptions,
    pub(super) member_timeout: Duration,
    pub(super) drift: Duration,
}

/// The outcome of one try at all members.
pub(super) enum RoundOutcome {
    Held(RedlockGuard),
    /// A majority replied, and the lock is busy.
    Refused,
    /// No majority could be reached.
    Unreached(Error),
}

impl Round {
    /// Waits for the members' answers until then. A majority that is held by then is enough.
    pub(super) async fn run(&self, mut until: LocalInstant) -> Result<RoundOutcome> {
        let (members, majority) = (&self.quorum.members, self.quorum.majority());
        let clock = &*members[0].client.clock;
        let started = clock.now();
        let mut tries: FuturesUnordered<_> = (0..members.len())
            .map(async |place| (place, self.acquire(place, &self.options).await))
            .collect();
        let (mut held, mut refused, mut failures) = (Vec::new(), 0, Vec::new());
        // Until neither a grant nor the answer "busy" can come from a majority, or a majority is
        // busy. After a grant, the others have until the grace ends.
        let is_open = |granted: usize, refused: usize, left: usize| {
            let answered = granted + refused;
            granted + left >= majority || (answered < majority && answered + left >= majority)
        };
        while is_open(held.len(), refused, tries.len()) {
            match select(tries.next(), clock.sleep_until(until)).await {
                Either::Left((Some((place, Ok(Some(hold)))), _)) => {
                    held.push((place, hold));
                    if held.len() == majority {
                        // The others may take as long again as these did. After that a majority is
                        // enough, and the round releases late grants.
                        let now = clock.now();
                        until = until.min(now.saturating_add(
                            now.saturating_duration_since(started).max(LEAST_GRACE),
                        ));
                    }
                }
                Either::Left((Some((_, Ok(None))), _)) => refused += 1,
                Either::Left((Some((_, Err(error))), _)) => failures.push(error),
                Either::Left((None, _)) | Either::Right(_) => break,
            }
        }
        if held.len() < majority {
            // Dropping the leases releases them, and dropping the tries cancels them.
            return self.failed(held.len() + refused >= majority, failures);
        }
        drop(tries);
        let mut guard = RedlockGuard::new(MemberLeases::new(self.clone(), held, started));
        let token = match self.locks[0].kind {
            LockKind::ReadWrite => match self.agree_on_token(&guard).await {
                Ok(token) => Some(token),
                Err(Some(wrong)) => return Ok(RoundOutcome::Unreached(wrong)),
                Err(None) => return self.failed(false, failures),
            },
            _ => None,
        };
        if !guard.is_held() {
            return self.failed(false, failures);
        }
        guard.begin(token);
        Ok(RoundOutcome::Held(guard))
    }

    /// Gives a majority the greatest token that its members gave.
    ///
    /// If more members report that the token is too far ahead than accept it, the clock of the
    /// member that gave it is wrong. Then that member is left out and the lock is released there.
    /// Fails if no majority has a token, with an error to report if the reason is a clock.
    async fn agree_on_token(
        &self,
        guard: &RedlockGuard,
    ) -> std::result::Result<u64, Option<Error>> {
        let mut wrong = None;
        while guard.leases().len() >= guard.majority() {
            let written = match guard.foresee() {
                Some(foreseen) => foreseen,
                None => guard.write_token_back().await.ok_or(None)?,
            };
            if written.count >= guard.majority() {
                for (place, by) in written.refused {
                    self.emit_clock_offset(&self.member(place), "behind", by);
                }
                return Ok(written.token);
            }
            let nearest = written.refused.iter().min_by_key(|(_, by)| *by);
            let Some(&(place, by)) = nearest.filter(|_| written.refused.len() >= written.count)
            else {
                break; // too few have answered
            };
            let behind = self.member(place);
            let leases = guard.members.leases().into_iter();
            for (place, _) in
                leases.filter(|(_, lease)| lease.acquisition.fencing_token() == written.token)
            {
                guard.members.leave_out(place);
                let ahead = self.member(place);
                self.emit_clock_offset(&ahead, "ahead", by);
                wrong = Some(self.clock_is_wrong(&ahead, &behind, by));
            }
        }
        Err(wrong)
    }

    /// The member at this position.
    fn member(&self, place: usize) -> MemberName {
        let router = self.quorum.members[place].client.transport.router();
        let node = router.and_then(|router| router.master_of(self.locks[place].slot));
        MemberName { number: place + 1, node }
    }

    fn emit_clock_offset(&self, member: &MemberName, outcome: &'static str, by: Duration) {
        telemetry::clocks_differ(&self.locks[0], member.number, member.node.as_ref(), outcome, by);
    }

    fn clock_is_wrong(&self, ahead: &MemberName, behind: &MemberName, by: Duration) -> Error {
        let (members, majority) = (self.quorum.members.len(), self.quorum.majority());
        let message = format!(
            "{ahead} of {members} gave a token that is {:.0} s ahead of the clock of \
             {behind}: its clock is wrong, or theirs, and less than {majority} members are left without it",
            by.as_secs_f64()
        );
        self.with_lock(Error::new(ErrorKind::Unavailable, message))
    }

    /// Tries once to acquire the lock at the member at this position.
    pub(super) async fn acquire(
        &self,
        place: usize,
        options: &LeaseOptions,
    ) -> Result<Option<Hold>> {
        let (client, lock) = (&self.quorum.members[place].client, &self.locks[place]);
        let policy = WaitPolicy::strict_try(client.clock.now().saturating_add(self.member_timeout));
        let taken = acquire_task::acquire(client, lock, self.mode, options, policy).await?;
        Ok(taken.map(|acquisition| Hold(Lease::new((**client).clone(), acquisition))))
    }

    /// Decides what a try without a majority means. Fails if another try is useless: if the members
    /// without a permanent error are no majority.
    fn failed(&self, answered: bool, failures: Vec<Error>) -> Result<RoundOutcome> {
        let (members, majority) = (self.quorum.members.len(), self.quorum.majority());
        let is_permanent = |error: &Error| error.kind() != ErrorKind::Unavailable;
        let permanent = failures.iter().filter(|error| is_permanent(error)).count();
        let worse = |known: Error, other| if is_permanent(&known) { known } else { other };
        match failures.into_iter().reduce(worse) {
            _ if answered => Ok(RoundOutcome::Refused),
            Some(error) if members - permanent < majority => Err(error),
            failed => {
                let message = format!("fewer than {majority} of {members} members replied in time");
                let error = self.with_lock(Error::new(ErrorKind::Unavailable, message));
                Ok(RoundOutcome::Unreached(failed.into_iter().fold(error, Error::with_source)))
            }
        }
    }

    pub(super) fn with_lock(&self, error: Error) -> Error {
        self.locks[0].add_context(error)
    }
}

/// A member, for events and errors.
struct MemberName {
    /// Counted from 1.
    number: usize,
    /// The server of the lock there, if known.
    node: Option<Address>,
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.number)?;
        match &self.node {
            Some(node) => write!(f, " ({node})"),
            None => Ok(()),
        }
    }
}
