//! A message that a lease was ended by force.

use super::*;

/// Whether the worker asks the server.
fn asks(effects: &Effects) -> bool {
    matches!(effects.sends, [Some(Sending::Ask { .. }), None])
}

#[test]
fn ended_message_loses_the_lease_only_after_the_server_confirms() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let heard = bench.on(Event::Ended { token: 5 });
    assert_eq!(heard.look, Some(bench.now), "long before a renewal is due");
    assert!(!bench.is_lost());
    assert!(asks(&bench.on(Event::Look)));
    assert!(!asks(&bench.on(Event::Look)), "it is on its way");
    let ends = bench.ends();
    // A failover has brought the lease back, or the message was forged.
    assert!(bench.asked(Some(5)).lost.is_none());
    assert_eq!((bench.is_lost(), bench.ends()), (false, ends));
    bench.on(Event::Ended { token: 5 });
    assert!(asks(&bench.on(Event::Look)));
    assert!(bench.on(Event::Asked(no_answer())).lost.is_none());
    assert!(!asks(&bench.on(Event::Look)), "the next renewal tells");
    bench.on(Event::Ended { token: 5 });
    assert!(asks(&bench.on(Event::Look)));
    let lost = bench.asked(None);
    assert!(lost.ended && lost.lost.is_some_and(|lost| lost.taken));
    assert!(bench.is_lost());
}

/// A message that arrives while the server is asked may be about something later.
#[test]
fn the_server_is_asked_once_more_of_what_is_heard_meanwhile() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.on(Event::Ended { token: 5 });
    assert!(asks(&bench.on(Event::Look)));
    for _ in 0..3 {
        bench.on(Event::Ended { token: 5 });
        assert!(!asks(&bench.on(Event::Look)), "one question at a time");
    }
    assert_eq!(bench.asked(Some(5)).look, Some(bench.now));
    assert!(asks(&bench.on(Event::Look)));
    bench.asked(Some(5));
    assert!(!asks(&bench.on(Event::Look)));
}

/// The user renews it, or nobody does: the question does not extend it.
#[test]
fn a_lease_that_nobody_renews_is_asked_about_and_not_made_longer() {
    let mut bench = Bench::holding(Mode::Read, 5, |options| options.renewal = Renewal::Manual);
    bench.on(Event::Ended { token: 5 });
    assert!(asks(&bench.on(Event::Look)));
    bench.asked(None);
    assert!(bench.is_lost());
}

#[test]
fn a_renewal_that_is_due_is_the_question() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.after(4_000).on(Event::Ended { token: 5 });
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    bench.renewed(Renewed::Lost);
    assert!(bench.is_lost());
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
}

#[test]
fn ended_message_for_another_lease_sends_no_request() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.on(Event::Ended { token: 4 });
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    // A lease that is being released, or a request under way.
    bench.on(Event::Release);
    bench.on(Event::Ended { token: 5 });
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    bench.on(Event::Ended { token: 5 });
    assert!(matches!(bench.state, State::Acquiring(_)));
}

/// The message and the answer that grants arrive on two connections.
#[test]
fn an_end_that_is_heard_of_before_the_grant_is_asked_about_after_it() {
    for (ended, is_asked) in [(4, false), (5, true), (6, true)] {
        let mut bench = Bench::new(Mode::Write, |_| {}, WaitPolicy::Queue { until: None });
        bench.call();
        for token in [ended, 3] {
            bench.on(Event::Ended { token });
        }
        let granted = bench.told(Acquired::Granted(bench.grant(5, LEASE)));
        let held = bench.on(Event::Acquired(Ok(granted)));
        assert!(matches!(held.next, Some(Next::Held { token: 5, .. })));
        assert_eq!(held.look == Some(bench.now), is_asked, "{ended}");
        assert_eq!(asks(&bench.on(Event::Look)), is_asked, "{ended}");
    }
    // The claim of a pushed grant serves as the question.
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    bench.acquired(QUEUED);
    bench.on(Event::Ended { token: 5 });
    assert!(matches!(bench.push(5, LEASE), Next::Held { .. }));
    assert!(matches!(bench.on(Event::Look).sends, [Some(Sending::Renew { .. }), None]));
    bench.renewed(Renewed::Lost);
    assert!(bench.is_lost());
}

/// The upgrade may have been granted and then ended by force before its answer arrived.
#[test]
fn an_upgrade_that_was_ended_by_force_is_asked_about() {
    let mut bench = Bench::upgrading(5);
    bench.on(Event::Ended { token: 6 });
    assert!(asks(&bench.on(Event::Look)));
    bench.asked(Some(6));
    assert!(!bench.is_lost(), "it was granted");
    // Another lease of this acquisition has taken its place, and is released.
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    bench.on(Event::Ended { token: 5 });
    bench.on(Event::Look);
    bench.asked(Some(6));
    assert!(bench.is_lost());
    assert_eq!(bench.on(Event::Look).sends, [None, Some(RELEASE)]);
}
