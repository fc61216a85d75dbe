//! The record of a client.

use super::arguments;
use super::fixture::{Answer, Expect, HERE, Lab, start};

const DAY: u64 = 24 * 3_600_000;
const DESCRIPTION: &str = "4711 rwlease/0.1.0 web-1.example billing";

/// The rules of locks do not hold for records.
fn lab() -> Lab {
    let mut lab = Lab::new();
    lab.checked = false;
    lab
}

impl Lab {
    fn write_record(&mut self, age_ms: u64, ttl_ms: u64, description: &str) -> Answer {
        let (age, ttl) = (age_ms.to_string(), ttl_ms.to_string());
        self.send("client_record/write", &[HERE, &age, &ttl, description])
    }

    fn stored_record(&mut self) -> Option<String> {
        self.at_key("GET", &[])
    }

    /// By the server's own clock, which runs on.
    fn lives_for_a_day(&mut self) -> bool {
        let left: u64 = self.at_key("PTTL", &[]);
        (DAY - 60_000..=DAY).contains(&left)
    }
}

#[test]
fn record_has_the_start_and_the_description_until_its_end() {
    let mut lab = lab();
    assert_eq!(lab.write_record(5_000, DAY, DESCRIPTION).status(), "written");
    let record = format!("1 {} {DESCRIPTION}", lab.now() - 5_000);
    assert_eq!(lab.stored_record().as_ref(), Some(&record));
    assert!(lab.lives_for_a_day());
    let found = lab.unchanged(|lab| lab.send("client_record/read", &[HERE])).unwrap();
    assert_eq!((found.status.as_str(), found.text(0)), ("found", record));
}

#[test]
fn write_record_repeated_extends_its_life() {
    let mut lab = lab();
    lab.write_record(0, 600_000, DESCRIPTION).status();
    let record = lab.stored_record();
    assert!(!lab.lives_for_a_day());
    lab.pass(60_000);
    lab.write_record(60_000, DAY, DESCRIPTION).status();
    assert_eq!(lab.stored_record(), record, "the start stays");
    assert!(lab.lives_for_a_day());
}

#[test]
fn read_record_without_a_key_returns_not_found() {
    let mut lab = lab();
    let answer = lab.unchanged(|lab| lab.send("client_record/read", &[HERE])).unwrap();
    assert_eq!((answer.status.as_str(), answer.rest.len()), ("not_found", 0));
}

#[test]
fn read_of_a_record_longer_than_512_bytes_returns_not_found() {
    let mut lab = lab();
    for (length, status) in [(512, "found"), (513, "not_found"), (100_000, "not_found")] {
        lab.at_key::<()>("SET", &[&"x".repeat(length)]);
        let answer = lab.unchanged(|lab| lab.send("client_record/read", &[HERE])).unwrap();
        assert_eq!(answer.status, status, "{length}");
    }
}

#[test]
fn record_of_a_client_older_than_the_clock_starts_at_zero() {
    let mut lab = lab();
    lab.write_record(9_999_999_999_999, DAY, DESCRIPTION).status();
    assert_eq!(lab.stored_record(), Some(format!("1 0 {DESCRIPTION}")));
}

#[test]
fn description_of_256_printable_characters_is_accepted() {
    let mut lab = lab();
    let longest = " ~".repeat(128);
    assert_eq!(lab.write_record(0, 1, &longest).status(), "written");
}

#[test]
fn record_at_the_key_of_a_lock_is_refused_and_the_lock_stays() {
    let mut lab = lab();
    lab.write("ann1").granted();
    for (script, args) in arguments::calls(|script| script.starts_with("client_record/")) {
        lab.unchanged(|lab| lab.send(script, &args)).refused_with("WRONGTYPE");
    }
}

#[test]
fn record_in_a_full_memory_is_refused() {
    let server = start("maxmemory-policy noeviction");
    let mut lab = Lab::on_server_time(&server);
    lab.set_full(true);
    lab.unchanged(|lab| lab.write_record(0, DAY, DESCRIPTION)).refused_with("OOM");
    lab.set_full(false);
}
