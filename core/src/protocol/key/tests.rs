use super::*;

#[test]
fn lock_key_of_a_bad_name_is_refused() {
    let new = |name: &str| LockKey::new(LockKind::ReadWrite, "rwlease:", name).map(drop);
    assert_eq!(new(""), Err(NameError::Empty));
    let long = MAX_NAME_LEN + 1;
    assert_eq!(new(&"x".repeat(long)), Err(NameError::TooLong(long)));
    assert!(LockKey::new(LockKind::SetNxMutex, "", &"x".repeat(MAX_NAME_LEN)).is_ok());
}

#[test]
fn lock_key_of_a_reserved_name_is_refused() {
    for name in ["fenced:{42}", "client:", "client:{42}"] {
        let start = &name[..7];
        for kind in [LockKind::ReadWrite, LockKind::Semaphore] {
            let refused = LockKey::new(kind, "rwlease:", name).map(drop);
            assert_eq!(refused, Err(NameError::Reserved(start)));
        }
        assert!(LockKey::new(LockKind::SetNxMutex, "", name).is_ok());
        assert!(LockKey::with_any_start(LockKind::ReadWrite, "rwlease:fenced:", name).is_ok());
    }
    for name in ["fenced", "clients:{42}", "Fenced:{42}", "{42}fenced:"] {
        assert!(LockKey::new(LockKind::ReadWrite, "rwlease:", name).is_ok());
    }
}
