use rwlease_core::protocol::ClientId;

use super::*;
use crate::error::ErrorKind;

fn transfer(name: &str) -> LeaseTransfer {
    let id = ClientId::from_random([9; 11]).acquisition(77);
    let lease = TransferredLease {
        mode: LockMode::Write,
        id,
        token: 1_700_000_000_000_000,
        deadline: 1_700_000,
    };
    LeaseTransfer { name: name.into(), lease }
}

#[test]
fn lease_transfer_is_parsed_from_its_text() {
    for name in ["a", "order:{42}", "100 %\n\0", "naïve ключ", &"x".repeat(512)] {
        for mode in [LockMode::Read, LockMode::Write] {
            let mut made = transfer(name);
            made.lease.mode = mode;
            let text = made.to_string();
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
            assert_eq!(text.parse::<LeaseTransfer>().unwrap(), made);
        }
    }
    assert_eq!(
        transfer("a b").to_string(),
        "rwlease-transfer-1:w:99999999999000001D:1700000000000000:1700000:a%20b"
    );
}

#[test]
fn lease_transfer_of_other_text_is_invalid_input() {
    let good = transfer("name").to_string();
    let parts: Vec<&str> = good.split(':').collect();
    let long = "x".repeat(513);
    let changes: [(usize, &[&str]); 6] = [
        (0, &["", "rwlease-transfer-2", " rwlease-transfer-1"]),
        (1, &["", "x", "W", "rw"]),
        (2, &["", "short", "99999999999000001D1", "9999999999900000 D"]),
        (3, &["", "0", "x", "-1", "9007199254740993", "99999999999999999999"]),
        (4, &["", "x", "-1", "10000000000000"]),
        (5, &["", " ", "a b", "a\n", "%", "%2", "%zz", "%2a", "%FF", "é", &long]),
    ];
    for (at, bad) in changes {
        for part in bad {
            let mut parts = parts.clone();
            parts[at] = part;
            let error = parts.join(":").parse::<LeaseTransfer>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{part:?} at {at}");
            assert!(!error.to_string().contains("99999999999"), "{error}");
        }
        assert!(parts[..at].join(":").parse::<LeaseTransfer>().is_err());
    }
}

#[test]
fn lease_transfer_debug_has_the_name_but_no_acquisition_id() {
    let printed = format!("{:?}", transfer("name"));
    assert!(printed.contains("name") && !printed.contains("99999999999"), "{printed}");
}
