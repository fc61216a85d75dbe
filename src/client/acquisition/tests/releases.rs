//! Releases, by the holder and by the worker.

use super::*;

#[test]
fn a_request_that_is_dropped_is_released_until_no_attempt_can_arrive() {
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    let effects = bench.on(Event::Leave);
    assert!(effects.ended && effects.look == Some(at(0)));
    let late = bench.told(Acquired::Granted(bench.grant(5, LEASE)));
    let next = bench.on(Event::Acquired(Ok(late))).next.unwrap();
    assert_eq!(kind_of(next), ErrorKind::Cancelled, "what comes late is not held");
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
    assert_eq!(bench.on(Event::Look).sends, [None, None], "it is on its way");
    let effects = bench.after(10).released(false, Ended::Absent);
    assert!(!effects.over && effects.look > Some(at(2_000)), "the call may still arrive");
    bench.after(3_100);
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
    assert!(bench.released(false, Ended::Absent).over);
    assert_eq!(bench.state, State::Ended);
}

#[test]
fn a_release_is_tried_until_what_may_be_there_has_ended_by_itself() {
    let mut held = Bench::holding(Mode::Write, 5, |_| {});
    held.settings.margin = Some(Duration::from_secs(1));
    let mut doubtful = Bench::holding(Mode::Read, 5, |_| {});
    let _ = doubtful.on(Event::Upgrade(WaitPolicy::Queue { until: None }));
    doubtful.call();
    let mut waiting = Bench::waiting(Mode::Write);
    waiting.call();
    // A lease; a call that may arrive at its deadline, and a lease; a place, and a call.
    for (mut bench, over) in [(held, 9_000), (doubtful, 11_000), (waiting, 20_000)] {
        let _ = bench.on(Event::Drop);
        bench.after(over + 4_999);
        assert!(!bench.on(Event::Look).over);
        assert!(bench.after(1).on(Event::Look).over, "{over}");
    }
    // An answer that requires one more release extends the time to give up.
    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    let _ = bench.on(Event::Leave);
    bench.after(24_000);
    let _ = bench.on(Event::Look);
    let mut told = bench.told(Ended::Absent);
    told.envelope.now = 1_000_000;
    let outcome = Ok(told);
    let again = bench.on(Event::Released { only_wait: false, outcome }).look.unwrap();
    bench.after(1_500);
    assert!(again > at(25_000) && !bench.on(Event::Look).over);
}

#[test]
fn a_guard_that_is_dropped_is_released() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let effects = bench.on(Event::Drop);
    assert!(matches!(effects.held, Some((Mode::Write, "dropped", _))) && effects.ended);
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
    let why = failed(Reason::TimedOut(None), None);
    let effects = bench.on(Event::Released { only_wait: false, outcome: why });
    assert_eq!(effects.look, Some(at(500)), "again");
    bench.after(500);
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
    assert!(bench.released(false, Ended::Released).over);
}

#[test]
fn a_release_of_its_holder_ends_it_unless_an_attempt_can_still_arrive() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let effects = bench.on(Event::Release);
    assert!(matches!(effects.held, Some((Mode::Write, "released", _))));
    assert!(bench.after(10_000).on(Event::Look).lost.is_none(), "its end is no loss");
    let effects = bench.given_back(Ended::Released);
    assert!(effects.over && effects.ended);

    let mut bench = Bench::waiting(Mode::Write);
    bench.call();
    let _ = bench.on(Event::Acquired(no_answer()));
    bench.call();
    let grant = bench.grant(5, LEASE);
    assert!(matches!(bench.acquired(Acquired::Granted(grant)), Next::Held { .. }));
    let _ = bench.on(Event::Release);
    assert!(!bench.given_back(Ended::Released).over);
    let effects = bench.on(Event::Drop);
    assert!(effects.held.is_none(), "its end was told");
    assert_eq!(bench.on(Event::Look).sends, [Some(RELEASE), None]);
}

#[test]
fn release_begun_ends_the_lease_for_every_observer() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let effects = bench.on(Event::Release);
    assert!(effects.ended, "callers that wait for the end are notified");
    assert!(effects.lost.is_none(), "it is not a loss");
    let State::Held(holding) = &bench.state else { panic!("{:?}", bench.state) };
    assert!(holding.is_releasing() && !holding.is_held(bench.now));
}

#[test]
fn renewal_answered_while_releasing_returns_an_error_and_is_no_loss() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let _ = bench.on(Event::Release);
    let effects = bench.on(Event::Renewed(no_answer()));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Unavailable);
    let grant = bench.grant(5, LEASE);
    let effects = bench.renewed(Renewed::Revoked(grant));
    assert_eq!(kind_of(effects.next.unwrap()), ErrorKind::Lost);
    assert_eq!(kind_of(bench.renewed(Renewed::Lost).next.unwrap()), ErrorKind::Lost);
    assert!(!bench.is_lost());
}

#[test]
fn an_end_means_nothing_to_what_is_over() {
    let mut bench = Bench::holding(Mode::Write, 5, |_| {});
    let _ = bench.on(Event::Keep);
    assert_eq!(bench.state, State::Ended);
    for event in [Event::Drop, Event::Leave, Event::Look, Event::Release, Event::Downgrade] {
        let effects = bench.on(event);
        assert!(!effects.over && !effects.ended && effects.look.is_none());
    }
    assert_eq!(kind_of(bench.call()), ErrorKind::Cancelled);
}
