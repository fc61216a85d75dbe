use super::*;
use crate::ErrorKind;

fn wanted(kind: LockKind, name: &str, mode: LockMode) -> RequestedLock {
    (LockKey::new(kind, "", name).unwrap(), mode)
}

#[test]
fn locks_come_in_the_order_of_their_keys_and_a_write_stands_for_a_read() {
    let named = vec![
        wanted(LockKind::ReadWrite, "b", LockMode::Read),
        wanted(LockKind::SetNxMutex, "c", LockMode::Write),
        wanted(LockKind::ReadWrite, "a", LockMode::Read),
        wanted(LockKind::ReadWrite, "b", LockMode::Write),
        wanted(LockKind::ReadWrite, "a", LockMode::Read),
    ];
    let order: Vec<_> = in_order(named)
        .unwrap()
        .into_iter()
        .map(|(lock, mode)| (lock.name.to_string(), mode))
        .collect();
    let expected = [("a", LockMode::Read), ("b", LockMode::Write), ("c", LockMode::Write)];
    assert_eq!(order, expected.map(|(name, mode)| (name.to_string(), mode)));
}

#[test]
fn multi_of_no_lock_or_one_key_of_two_kinds_returns_invalid() {
    let both = vec![
        wanted(LockKind::SetNxMutex, "a", LockMode::Write),
        wanted(LockKind::ReadWrite, "a", LockMode::Read),
    ];
    for named in [vec![], both] {
        assert_eq!(in_order(named).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
