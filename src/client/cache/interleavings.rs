//! All interleavings of threads at the gate, searched by loom: `make loom`.

#![allow(clippy::unwrap_used)]

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use rwlease_core::protocol::LockMode;
use rwlease_core::time::LocalInstant;

use crate::client::cache::gate::Gate;

const FIRST_TOKEN: u64 = 7;
const NOW: LocalInstant = LocalInstant::from_nanos(1);

/// A gate with the data that its lock protects. loom reports each access that is not ordered.
struct GuardedCell {
    gate: Gate,
    data: UnsafeCell<u64>,
    /// The greatest token of a writer.
    newest: AtomicU64,
}

impl GuardedCell {
    /// An open gate of a lease that owns this many tokens beyond the first.
    fn new(mode: LockMode, more_tokens: u64) -> GuardedCell {
        let gate = Gate::new(mode, FIRST_TOKEN);
        gate.is_consistent_with(FIRST_TOKEN + more_tokens);
        gate.set_local_grant_deadline(LocalInstant::from_nanos(1_000));
        gate.state.open();
        GuardedCell { gate, data: UnsafeCell::new(0), newest: AtomicU64::new(0) }
    }

    /// Holds in this mode for a moment, if the gate lets it in. Returns its token, and whether it
    /// must notify on leaving.
    fn hold(&self, mode: LockMode) -> Option<(u64, bool)> {
        if !self.gate.enter(mode, NOW) {
            return None;
        }
        if let Err(notifies) = self.gate.start_phase(mode) {
            return Some((0, notifies));
        }
        let token = self.gate.token();
        match mode {
            LockMode::Read => self.data.with(|_| {
                assert!(token >= self.newest.load(Ordering::Relaxed), "the token is stale");
            }),
            LockMode::Write => self.data.with_mut(|_| {
                let newest = self.newest.swap(token, Ordering::Relaxed);
                assert!(token > newest, "the token of an earlier writer");
            }),
        }
        Some((token, self.gate.leave(mode)))
    }
}

/// Three threads at most, and as many switches as the search can afford.
fn search(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn writers_and_a_reader_exclude_each_other_and_tokens_rise() {
    search(|| {
        let lock = Arc::new(GuardedCell::new(LockMode::Write, 8));
        let others = [LockMode::Write, LockMode::Read].map(|mode| {
            let lock = lock.clone();
            thread::spawn(move || lock.hold(mode))
        });
        let own = lock.hold(LockMode::Write);
        let held = others.map(|other| other.join().unwrap()).into_iter().chain([own]);
        assert!(held.flatten().count() > 0, "somebody gets in");
        assert!(lock.gate.snapshot().is_unused());
    });
}

/// A writer can check whether tokens are left, and enter only after a reader has used the last one.
#[test]
fn last_token_is_used_once() {
    for mode in [LockMode::Read, LockMode::Write] {
        search(move || {
            let lock = Arc::new(GuardedCell::new(LockMode::Write, 0));
            let other = thread::spawn({
                let lock = lock.clone();
                move || lock.hold(mode)
            });
            let own = lock.hold(LockMode::Write);
            let tokens = [own, other.join().unwrap()].into_iter().flatten();
            let used: Vec<u64> =
                tokens.map(|(token, _)| token).filter(|token| *token > 0).collect();
            assert!(mode == LockMode::Read || used.len() <= 1, "two writers have {used:?}");
            assert!(used.iter().all(|token| *token <= FIRST_TOKEN), "{used:?} are not owned");
        });
    }
}

#[test]
fn downgraded_writer_shares_with_readers_alone() {
    search(|| {
        let lock = Arc::new(GuardedCell::new(LockMode::Write, 8));
        let others = [LockMode::Write, LockMode::Read].map(|mode| {
            let lock = lock.clone();
            thread::spawn(move || lock.hold(mode))
        });
        if lock.gate.enter(LockMode::Write, NOW) && lock.gate.start_phase(LockMode::Write).is_ok() {
            let token = lock.gate.token();
            lock.data.with_mut(|_| lock.newest.store(token, Ordering::Relaxed));
            lock.gate.state.downgrade();
            lock.data.with(|_| assert_eq!(lock.newest.load(Ordering::Relaxed), token));
            lock.gate.leave(LockMode::Read);
        }
        others.map(|other| other.join().unwrap());
        assert!(lock.gate.snapshot().is_unused());
    });
}

/// Whoever closes the gate sees the guards that are inside, or the last of them notifies. Nobody
/// enters after the close.
#[test]
fn gate_close_with_guards_inside_is_notified_by_the_last_guard() {
    for mode in [LockMode::Read, LockMode::Write] {
        search(move || {
            let lock = Arc::new(GuardedCell::new(LockMode::Write, 8));
            let notified = Arc::new(AtomicBool::new(false));
            let guards = [mode, LockMode::Read].map(|mode| {
                let (lock, notified) = (lock.clone(), notified.clone());
                thread::spawn(move || {
                    if let Some((_, true)) = lock.hold(mode) {
                        notified.store(true, Ordering::Relaxed);
                    }
                })
            });
            let was_unused = lock.gate.state.close().is_unused();
            assert!(lock.hold(LockMode::Read).is_none() && lock.hold(LockMode::Write).is_none());
            guards.map(|guard| guard.join().unwrap());
            assert!(was_unused || notified.load(Ordering::Relaxed), "nobody notifies");
        });
    }
}

/// A request that queues sees that the lease is unused, or the last guard notifies. Nobody passes
/// it by the fast path.
#[test]
fn queued_request_is_passed_by_nobody_and_notified() {
    search(|| {
        let lock = Arc::new(GuardedCell::new(LockMode::Write, 8));
        let notified = Arc::new(AtomicBool::new(false));
        let guard = thread::spawn({
            let (lock, notified) = (lock.clone(), notified.clone());
            move || {
                if let Some((_, true)) = lock.hold(LockMode::Write) {
                    notified.store(true, Ordering::Relaxed);
                }
            }
        });
        lock.gate.state.set_queued(true);
        let was_unused = lock.gate.snapshot().is_unused();
        assert!(lock.hold(LockMode::Read).is_none(), "the fast path passes the queue");
        guard.join().unwrap();
        assert!(was_unused || notified.load(Ordering::Relaxed), "nobody notifies");
    });
}

/// A lease that is lost lets nobody in after that, also where a keep-alive is answered late.
#[test]
fn lost_hold_lets_nobody_in() {
    search(|| {
        let lock = Arc::new(GuardedCell::new(LockMode::Write, 8));
        let other = thread::spawn({
            let lock = lock.clone();
            move || lock.hold(LockMode::Write)
        });
        lock.gate.mark_lost();
        assert!(lock.hold(LockMode::Read).is_none() && lock.hold(LockMode::Write).is_none());
        other.join().unwrap();
    });
}
