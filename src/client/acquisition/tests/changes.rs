//! Upgrades and downgrades.

use super::*;

#[test]
fn an_upgrade_has_the_terms_of_its_lease() {
    let mut bench = Bench::holding(Mode::Read, 5, |options| {
        options.replicas = 2;
        options.hold = Some(Duration::from_secs(10));
    });
    bench.after(4_000);
    let _ = bench.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
    let Next::Send { acquire, replicas, .. } = bench.call() else { panic!() };
    assert_eq!((acquire.lease, replicas), (Duration::from_secs(6), 2), "not past the longest hold");
    assert_eq!(acquire.goal, Goal::Upgrade { token: 5 });
}

#[test]
fn a_late_push_of_the_read_is_no_upgrade() {
    let mut bench = Bench::upgrading(5);
    bench.acquired(Acquired::Queued { ticket: 0, ahead: 2 });
    assert!(matches!(bench.push(5, LEASE), Next::Again));
    assert_eq!(bench.mode(), Mode::Read);
    bench.call();
    bench.acquired(Acquired::Queued { ticket: 0, ahead: 2 });
    assert!(matches!(bench.push(6, LEASE), Next::Held { token: 6, .. }));
    assert_eq!(bench.mode(), Mode::Write);
}

#[test]
fn an_upgrade_that_is_given_up_ends_its_wait_and_what_was_granted_becomes_a_read() {
    let mut bench = Bench::upgrading(5);
    bench.acquired(Acquired::Queued { ticket: 0, ahead: 2 });
    let _ = bench.on(Event::Leave);
    assert_eq!(bench.on(Event::Look).sends, [None, Some(END_WAIT)]);
    let granted = bench.grant(6, LEASE);
    let _ = bench.released(true, Ended::Writing(granted));
    let [None, Some(Sending::Downgrade(downgrade))] = bench.on(Event::Look).sends else { panic!() };
    assert_eq!(downgrade.token, 6);
    let told = bench.told(Renewed::Held(granted));
    let _ = bench.on(Event::Downgraded(Ok(told)));
    assert_eq!(bench.mode(), Mode::Read);
}

#[test]
fn an_upgrade_begins_when_no_change_can_arrive_any_more() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let _ = bench.on(Event::Downgrade);
    assert!(matches!(bench.on(Event::Look).sends, [None, Some(Sending::Downgrade(_))]));
    let until = Some(at(1_000));
    let policy = WaitPolicy::Queue { until };
    assert!(matches!(bench.on(Event::Upgrade(policy)).next, Some(Next::Wait(_))));
    let _ = bench.on(Event::Downgraded(no_answer()));
    assert!(matches!(bench.on(Event::Upgrade(policy)).next, Some(Next::Wait(_))), "it may arrive");
    let next = bench.after(1_000).on(Event::Upgrade(policy)).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::TimedOut);
    let told = bench.told(Renewed::Held(bench.grant(5, LEASE)));
    let _ = bench.on(Event::Downgraded(Ok(told)));
    let policy = WaitPolicy::Queue { until: None };
    assert!(matches!(bench.on(Event::Upgrade(policy)).next, Some(Next::Again)));
}

#[test]
fn a_claim_window_of_an_upgrade_ends_within_the_longest_hold() {
    let hold = |options: &mut LeaseOptions| options.hold = Some(Duration::from_secs(5));
    let mut bench = Bench::holding(Mode::Read, 5, hold);
    bench.after(4_000);
    let _ = bench.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
    let Next::Send { acquire, .. } = bench.call() else { panic!() };
    assert_eq!(acquire.wait.unwrap().window, Duration::from_secs(1));
}

#[test]
fn a_wait_that_is_over_is_ended_until_no_attempt_of_it_can_arrive() {
    let mut bench = Bench::upgrading(5);
    let _ = bench.on(Event::Leave); // its call is under way, until 2,000
    assert_eq!(bench.on(Event::Look).sends, [None, Some(END_WAIT)]);
    let _ = bench.after(100).released(true, Ended::Absent);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    // The next request takes over what is in doubt.
    let _ = bench.on(Event::Upgrade(WaitPolicy::strict_try(at(5_000))));
    bench.call();
    assert!(matches!(bench.acquired(Acquired::Refused), Next::Refused));
    assert_eq!(bench.on(Event::Look).sends, [None, Some(END_WAIT)], "it lingers");
    let _ = bench.on(Event::Release);
    let effects = bench.given_back(Ended::Released);
    assert!(!effects.over, "the upgrade may still arrive");

    let mut ended = Bench::upgrading(5);
    let _ = ended.on(Event::Leave);
    let _ = ended.on(Event::Look);
    let _ = ended.after(100).released(true, Ended::Absent);
    ended.after(2_900 + 20);
    let _ = ended.on(Event::Look);
    let _ = ended.after(500).released(true, Ended::Absent);
    assert!(matches!(&ended.state, State::Held(holding) if holding.pending().is_none()));
}

#[test]
fn a_downgrade_makes_a_lease_longer_unless_replicas_must_confirm_it() {
    for (replicas, ends) in [(0, 10_000), (1, 9_000)] {
        let mut bench = Bench::holding(Mode::Write, 5, |options| options.replicas = replicas);
        let _ = bench.after(1_000).on(Event::Downgrade);
        let _ = bench.on(Event::Look);
        let told = bench.told(Renewed::Held(bench.grant(5, LEASE)));
        let _ = bench.on(Event::Downgraded(Ok(told)));
        assert_eq!((bench.mode(), bench.ends()), (Mode::Read, at(ends)));
    }
}

/// A contact that no replica has confirmed does not keep the gate open.
#[test]
fn a_downgrade_of_a_cached_write_is_a_contact_unless_replicas_must_confirm_it() {
    for (replicas, sent) in [(0, 1_000), (1, 0)] {
        let mut bench = Bench::holding(Mode::Write, 5, |options| {
            (options.replicas, options.cached) = (replicas, true);
        });
        let _ = bench.after(1_000).on(Event::Downgrade);
        let _ = bench.on(Event::Look);
        let grant = Grant { recall: Some(Mode::Write), ..bench.grant(5, LEASE) };
        let told = bench.told(Renewed::Held(grant));
        let _ = bench.on(Event::Downgraded(Ok(told)));
        let State::Held(holding) = &bench.state else { panic!("it is not held") };
        let contact = holding.contact.as_deref().unwrap();
        assert_eq!((contact.sent, contact.recall), (at(sent), Some(Mode::Write)));
    }
}

#[test]
fn a_downgrade_is_called_off_until_it_is_sent() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let _ = bench.on(Event::Downgrade);
    let _ = bench.on(Event::StayWriter);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    let _ = bench.on(Event::Downgrade);
    let _ = bench.on(Event::Look);
    let _ = bench.on(Event::StayWriter);
    assert!(matches!(&bench.state, State::Held(holding) if holding.pending().is_some()));
}

#[test]
fn a_change_that_is_told_of_the_loss_loses_the_lease_and_what_took_its_place() {
    let mut upgrading = Bench::upgrading(5);
    let told = upgrading.told(Acquired::Lost);
    let effects = upgrading.on(Event::Acquired(Ok(told)));
    assert!(effects.lost.is_some_and(|lost| lost.taken));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Lost);
    assert_eq!(upgrading.on(Event::Look).sends, [None, Some(RELEASE)]);
    let mut downgrading = Bench::holding(Mode::Write, 5, |_| {});
    let _ = downgrading.on(Event::Downgrade);
    let _ = downgrading.on(Event::Look);
    let told = downgrading.told(Renewed::Lost);
    assert!(downgrading.on(Event::Downgraded(Ok(told))).lost.is_some());
    assert_eq!(downgrading.on(Event::Look).sends, [None, Some(RELEASE)]);
}
