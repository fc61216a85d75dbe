use rwlease_core::acquisition::AcquisitionState;
use rwlease_core::protocol::{ClientId, LockKind};

use super::*;

fn lock(name: &str) -> LockKey {
    LockKey::new(LockKind::ReadWrite, "", name).unwrap()
}

fn registry(counts: &[u64]) -> AcquisitionRegistry {
    let mut registry = AcquisitionRegistry::default();
    for &count in counts {
        let id = ClientId::from_random([1; 11]).acquisition(count);
        let acquisition = Acquisition::new(id, count, lock("a"), AcquisitionState::Ended);
        assert!(registry.add(Arc::new(acquisition)));
    }
    registry
}

#[test]
fn registry_all_is_in_the_order_of_acquire() {
    let all = registry(&[3, 1, 2]).all();
    assert_eq!(all.iter().map(|acquisition| acquisition.number).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn the_last_one_of_a_client_that_takes_no_more_locks_is_reported() {
    for end in
        [(|registry| registry.is_closed = true) as fn(&mut AcquisitionRegistry), |registry| {
            registry.is_orphaned = true
        }]
    {
        let mut registry = registry(&[1, 2, 3]);
        assert!(!registry.remove(1));
        end(&mut registry);
        assert!(!registry.remove(2), "there is another one");
        assert!(registry.remove(3));
    }
    assert!(!registry(&[1]).remove(1), "more may come");
}

const fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

/// The numbers of the acquisitions that a turn looks at.
fn turn(registry: &mut AcquisitionRegistry, now: LocalInstant) -> (Vec<u64>, bool) {
    let work = registry.take_due(now);
    (work.acquisitions.iter().map(|acquisition| acquisition.number).collect(), work.has_more)
}

#[test]
fn take_work_of_many_releases_takes_a_turn_of_them_and_leases_first() {
    let releases = 3 * TURN as u64;
    let mut registry = registry(&(0..releases + 2).collect::<Vec<_>>());
    (0..releases).for_each(|count| assert!(registry.schedule(count, at(1), true)));
    registry.schedule(releases, at(2), false);
    registry.schedule(releases + 1, at(9), false);
    let (first, has_more) = turn(&mut registry, at(5));
    assert!(first.iter().copied().eq([releases].into_iter().chain(0..TURN as u64 - 1)));
    assert!(has_more);
    let (second, _) = turn(&mut registry, at(9));
    assert_eq!((second[0], second.len()), (releases + 1, TURN));
    assert_eq!(turn(&mut registry, at(9)).0.len(), TURN);
    let (last, has_more) = turn(&mut registry, at(9));
    assert_eq!((last.len(), has_more), (2, false));
    assert_eq!(turn(&mut registry, at(9)), (vec![], false));
}

#[test]
fn take_work_of_many_leases_leaves_room_for_releases() {
    let leases = 2 * TURN as u64;
    let mut registry = registry(&(0..leases + 100).collect::<Vec<_>>());
    (0..leases + 100).for_each(|count| assert!(registry.schedule(count, at(1), count >= leases)));
    let (first, _) = turn(&mut registry, at(5));
    assert_eq!(first.len(), TURN);
    assert_eq!(first.iter().filter(|count| **count >= leases).count(), MIN_RELEASES);
}

/// A release has no timer of a lease.
#[test]
fn note_of_a_release_ends_the_look_at_its_lease() {
    let mut registry = registry(&[1]);
    registry.schedule(1, at(1), false);
    registry.schedule(1, at(7), true);
    assert_eq!(turn(&mut registry, at(5)), (vec![], false));
    assert_eq!(turn(&mut registry, at(7)), (vec![1], false));
    assert_eq!(turn(&mut registry, at(7)), (vec![], false));
}

#[test]
fn take_work_with_many_locks_to_grant_takes_one_turn() {
    let mut registry = registry(&[]);
    (0..TURN + 3).for_each(|number| registry.grant_waiters(&lock(&number.to_string())));
    let work = registry.take_due(at(0));
    assert_eq!((work.locks_to_grant.len(), work.has_more), (TURN, true));
    let work = registry.take_due(at(0));
    assert_eq!((work.locks_to_grant.len(), work.has_more), (3, false));
}

#[test]
fn take_work_after_a_failure_is_finished() {
    let mut registry = registry(&[1]);
    registry.schedule(1, at(1), false);
    registry.fail();
    let work = registry.take_due(at(5));
    assert!(work.is_finished && work.acquisitions.is_empty() && registry.is_drained());
    assert_eq!(registry.all().len(), 1, "shutdown names it");
}

#[test]
fn each_lock_to_grant_is_taken_once() {
    let mut registry = registry(&[]);
    registry.is_orphaned = true;
    ["a", "b", "a"].iter().for_each(|name| registry.grant_waiters(&lock(name)));
    let work = registry.take_due(LocalInstant::from_duration(Duration::ZERO));
    let locks: Vec<_> = work.locks_to_grant.iter().map(|lock| &*lock.name).collect();
    assert_eq!(locks, ["a", "b"]);
    assert!(!work.is_finished);
    assert!(registry.take_due(LocalInstant::from_duration(Duration::ZERO)).is_finished);
}

#[test]
fn client_agenda_take_returns_earliest_wake_time_of_each_acquisition_in_order() {
    let mut agenda = TimerQueue::default();
    agenda.insert_earlier(1, at(30));
    agenda.insert_earlier(2, at(20));
    agenda.insert_earlier(1, at(10));
    agenda.insert_earlier(1, at(40));
    assert_eq!(agenda.next_due(), Some(at(10)));
    assert_eq!(agenda.pop_due(at(15)), Some(1));
    assert_eq!(agenda.pop_due(at(15)), None);
    assert_eq!(agenda.pop_due(at(50)), Some(2));
    assert_eq!(agenda.pop_due(at(50)), None, "the later looks at 1 are gone");
    agenda.insert_earlier(1, at(40));
    assert_eq!(agenda.pop_due(at(50)), Some(1), "noted again, it comes again");
}

#[test]
fn client_agenda_forget_removes_every_wake_time_of_the_acquisition() {
    let mut agenda = TimerQueue::default();
    for number in 0..100_000 {
        agenda.insert_earlier(number, at(30_000 + number));
        agenda.insert_earlier(number, at(10_000 + number));
        agenda.remove(number);
    }
    assert_eq!((agenda.order.len(), agenda.due.len(), agenda.next_due()), (0, 0, None));
}
