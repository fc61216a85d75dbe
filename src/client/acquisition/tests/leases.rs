//! Renewals of a lease, and its loss.

use super::*;

#[test]
fn a_lease_is_renewed_while_its_limits_allow_it_and_ends_by_itself() {
    let mut bench = Bench::holding(Mode::Read, 5, |options| options.renewal = Renewal::AtMost(1));
    bench.after(2_000);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    bench.after(1_000);
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    assert_eq!(bench.on(Event::Look).sends, [None, None], "it is on its way");
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(Renewed::Held(grant));
    assert_eq!(bench.ends(), at(12_000));
    bench.after(5_000);
    assert_eq!(bench.on(Event::Look).sends, [None, None], "there was one renewal");
    let effects = bench.after(4_000).on(Event::Look);
    assert!(bench.is_lost() && effects.ended && effects.lost.is_some_and(|lost| !lost.taken));
    let late = bench.renewed(Renewed::Held(grant));
    assert!(bench.is_lost() && late.lost.is_none(), "for good, and told once");
}

#[test]
fn another_token_is_another_lease_unless_an_upgrade_explains_it() {
    let renew = |bench: &mut Bench, token: u64, sent: Moment| {
        let mut told = bench.told(Renewed::Other(bench.grant(token, LEASE)));
        told.sent = sent;
        let _ = bench.on(Event::Renewed(Ok(told)));
        bench.is_lost()
    };
    for token in [4, 6] {
        let mut bench = Bench::holding(Mode::Read, 5, |_| {});
        bench.after(1_000);
        assert!(renew(&mut bench, token, at(1_000)), "{token}");
        // The lease in its place is released.
        assert_eq!(bench.on(Event::Look).sends, [None, Some(RELEASE)]);
    }
    let mut upgrading = Bench::upgrading(5);
    assert!(!renew(&mut upgrading, 6, at(0)), "granted, and not heard of yet");
    let mut given_up = Bench::upgrading(5);
    let _ = given_up.on(Event::Leave);
    assert!(!renew(&mut given_up, 6, at(0)), "granted all the same");
    let mut granted = Bench::upgrading(5);
    granted.after(1_000);
    let grant = granted.grant(6, LEASE);
    assert!(matches!(granted.acquired(Acquired::Granted(grant)), Next::Held { token: 6, .. }));
    assert!(!renew(&mut granted, 5, at(900)), "sent before the upgrade");
    assert!(renew(&mut granted, 5, at(1_100)), "the server has lost the upgrade");
}

/// The answer to the upgrade tells of the write. Until then the read ends when it did before.
#[test]
fn renewal_answered_other_while_upgrading_changes_no_deadline_and_is_not_repeated_at_once() {
    let mut bench = Bench::upgrading(5);
    bench.after(3_000);
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    let ends = bench.ends();
    let grant = bench.grant(6, LEASE);
    let effects = bench.renewed(Renewed::Other(grant));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Unavailable);
    assert_eq!((bench.ends(), bench.is_lost()), (ends, false));
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    assert!(matches!(bench.push(6, LEASE), Next::Held { token: 6, .. }));
    let [Some(Sending::Renew { renew, .. }), None] = bench.on(Event::Look).sends else { panic!() };
    assert_eq!((renew.mode, renew.token), (Mode::Write, 6), "the claim");
    // An answer to another renewal of the read, which comes after the upgrade.
    let mut late = bench.told(Renewed::Other(grant));
    late.sent = at(3_000);
    let _ = bench.on(Event::Renewed(Ok(late)));
    assert!(!bench.is_lost());
}

#[test]
fn renewal_says_the_mode_the_token_and_the_permits_that_are_held() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let renewal = |bench: &mut Bench| {
        let [Some(Sending::Renew { renew, .. }), _] = bench.after(3_500).on(Event::Look).sends
        else {
            panic!()
        };
        (renew.mode, renew.token, renew.permits)
    };
    assert_eq!(renewal(&mut bench), (Mode::Write, 5, 0));
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(Renewed::Held(grant));
    let _ = bench.on(Event::Downgrade);
    let _ = bench.on(Event::Look);
    let downgraded = bench.told(Renewed::Held(grant));
    let _ = bench.on(Event::Downgraded(Ok(downgraded)));
    assert_eq!(renewal(&mut bench), (Mode::Read, 5, 0));
    let permits = Permits { count: 7, limit: 10 };
    let mut bench = Bench::holding(Mode::Read, 5, |options| options.permits = Some(permits));
    let _ = bench.on(Event::Shrink { keep: 3 });
    assert_eq!(renewal(&mut bench), (Mode::Read, 5, 3));
}

#[test]
fn lease_replaced_at_renewal_is_not_kept_and_its_release_gives_up() {
    let replaced = || {
        let mut bench = Bench::holding(Mode::Write, 5, |_| {});
        let grant = bench.grant(6, LEASE);
        let _ = bench.renewed(Renewed::Other(grant));
        bench
    };
    let mut kept = replaced();
    assert!(!kept.on(Event::Keep).over);
    let mut bench = replaced();
    let _ = bench.on(Event::Look);
    for _ in 0..100 {
        let _ = bench.on(Event::Released { only_wait: false, outcome: no_answer() });
        let _ = bench.after(1_000).on(Event::Look);
    }
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    assert!(matches!(&bench.state, State::Held(holding) if holding.pending().is_none()));
    let mut good = Bench::holding(Mode::Write, 5, |_| {});
    assert!(good.on(Event::Keep).over);
}

#[test]
fn a_revoked_lease_ends_at_its_deadline() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let grant = bench.grant(5, LEASE);
    let effects = bench.renewed(Renewed::Revoked(grant));
    assert!(matches!(effects.note, Some(Note::Renewed { outcome: "revoked", .. })));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Revoked);
    assert!(matches!(&bench.state, State::Held(it) if it.is_shaky(bench.now) && !it.is_lost()));
    bench.after(5_000);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    assert_eq!(bench.ends(), at(9_000));
}

#[test]
fn a_revoked_lease_ends_earlier_if_a_failover_has_lost_its_renewal() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.after(3_000);
    let renewed = bench.grant(5, LEASE);
    let _ = bench.renewed(Renewed::Held(renewed));
    assert_eq!(bench.ends(), at(12_000));
    bench.after(3_000);
    let as_granted = bench.grant(5, Duration::from_secs(3));
    let _ = bench.renewed(Renewed::Revoked(as_granted));
    assert_eq!(bench.ends(), at(9_000));
    assert!(!bench.after(2_999).is_lost());
    let _ = bench.after(1).on(Event::Look);
    assert!(bench.is_lost());
}

#[test]
fn a_revoked_lease_that_has_ended_is_lost() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let over = bench.grant(5, Duration::ZERO);
    let effects = bench.after(3_000).renewed(Renewed::Revoked(over));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Lost);
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let whole = bench.grant(5, LEASE);
    let _ = bench.renewed(Renewed::Lost);
    let effects = bench.renewed(Renewed::Revoked(whole));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Lost);
}

#[test]
fn an_upgrade_that_is_refused_as_revoked_has_the_lease_renewed_at_once() {
    let mut bench = Bench::upgrading(5);
    assert_eq!(kind_of(bench.acquired(Acquired::Revoked)), ErrorKind::Revoked);
    let sends = bench.on(Event::Look).sends;
    assert!(matches!(sends[0], Some(Sending::Renew { .. })), "{sends:?}");
    let mut late = Bench::upgrading(5);
    assert_eq!(kind_of(late.after(60_000).acquired(Acquired::Revoked)), ErrorKind::Lost);
}

#[test]
fn an_answer_from_before_a_revocation_does_not_extend_the_lease() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let early = bench.told(Renewed::Held(bench.grant(5, LEASE + Duration::from_secs(3))));
    bench.after(1_000);
    let left = bench.grant(5, Duration::from_secs(8));
    let _ = bench.renewed(Renewed::Revoked(left));
    let effects = bench.on(Event::Renewed(Ok(early)));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Revoked);
    assert_eq!(bench.ends(), at(9_000));
    assert_eq!(bench.after(5_000).on(Event::Look).sends, [None, None]);
}

#[test]
fn an_upgrade_that_is_granted_after_a_revocation_is_renewed() {
    let mut bench = Bench::upgrading(5);
    let left = bench.grant(5, LEASE);
    let _ = bench.renewed(Renewed::Revoked(left));
    let granted = bench.grant(6, LEASE);
    let next = bench.acquired(Acquired::Granted(granted));
    assert!(matches!(next, Next::Held { token: 6, .. }), "{next:?}");
    bench.after(3_000);
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    let grant = bench.grant(6, LEASE);
    let _ = bench.renewed(Renewed::Held(grant));
    assert_eq!(bench.ends(), at(12_000));
}

#[test]
fn a_renewal_that_fails_is_tried_again_and_the_lease_is_uncertain_meanwhile() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.after(3_000);
    let _ = bench.on(Event::Look);
    let effects = bench.on(Event::Renewed(no_answer()));
    assert!(effects.changed && matches!(effects.note, Some(Note::RenewalFailed { .. })));
    assert!(matches!(&bench.state, State::Held(holding) if holding.is_shaky(bench.now)));
    bench.after(900);
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    let grant = bench.grant(5, LEASE);
    let _ = bench.renewed(Renewed::Held(grant));
    assert!(matches!(&bench.state, State::Held(holding) if !holding.is_shaky(bench.now)));
}

/// A renewal may be late by a sixth of the lease.
#[test]
fn a_renewal_that_is_late_makes_the_lease_uncertain() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let due = 3_000; // a third of the lease
    bench.after(due + 1_500);
    assert!(!bench.is_shaky());
    bench.after(1);
    assert!(bench.is_shaky());
}

#[test]
fn a_claim_is_not_counted_as_a_renewal() {
    for (renewal, claims) in [(Renewal::Manual, 1), (Renewal::AtMost(1), 2)] {
        let wait = WaitPolicy::Queue { until: None };
        let mut bench = Bench::new(Mode::Write, |options| options.renewal = renewal, wait);
        bench.call();
        bench.acquired(QUEUED);
        bench.push(5, Duration::from_millis(1_500));
        let mut sent = 0;
        for _ in 0..5 {
            let [renewal, _] = bench.on(Event::Look).sends;
            sent += u32::from(renewal.is_some());
            let grant = bench.grant(5, LEASE);
            if renewal.is_some() {
                let _ = bench.renewed(Renewed::Held(grant));
            }
            bench.after(3_000);
        }
        assert_eq!(sent, claims, "{renewal:?}");
    }
    let mut bench = Bench::holding(Mode::Read, 5, |options| options.renewal = Renewal::Manual);
    let _ = bench.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
    bench.call();
    bench.acquired(Acquired::Queued { ticket: 0, ahead: 1 });
    bench.push(6, Duration::from_millis(1_500));
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
}
