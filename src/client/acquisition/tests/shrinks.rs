//! Giving back some of the permits.

use super::*;

/// Holds three of five permits.
fn three_permits() -> Bench {
    let permits = Some(Permits { count: 3, limit: 5 });
    Bench::holding(Mode::Read, 5, |options| options.permits = permits)
}

fn keeps(keep: u32) -> [Option<Sending>; 2] {
    [None, Some(Sending::Shrink(Shrink { keep }))]
}

#[test]
fn permits_are_given_back_once() {
    let mut bench = three_permits();
    assert_eq!(bench.on(Event::Shrink { keep: 1 }).look, Some(at(0)));
    assert_eq!(bench.on(Event::Look).sends, keeps(1));
    assert_eq!(bench.on(Event::Look).sends, [None, None], "it is on its way");
    assert!(bench.shrunk(1, 5).changed);
    assert_eq!(bench.on(Event::Look).sends, [None, None]);
    assert!(!bench.is_lost());
}

#[test]
fn a_call_under_way_that_keeps_too_many_is_followed_by_another() {
    let mut bench = three_permits();
    let _ = bench.on(Event::Shrink { keep: 2 });
    assert_eq!(bench.on(Event::Look).sends, keeps(2));
    let _ = bench.on(Event::Shrink { keep: 1 });
    assert_eq!(bench.on(Event::Look).sends, [None, None], "one at a time");
    assert_eq!(bench.shrunk(2, 5).look, Some(at(0)));
    assert_eq!(bench.on(Event::Look).sends, keeps(1));
    let _ = bench.shrunk(1, 5);
    let _ = bench.on(Event::Shrink { keep: 2 });
    assert_eq!(bench.on(Event::Look).sends, keeps(1), "never more than before");
}

#[test]
fn a_call_that_fails_is_tried_again() {
    let mut bench = three_permits();
    let _ = bench.on(Event::Shrink { keep: 1 });
    let _ = bench.on(Event::Look);
    let effects = bench.on(Event::Shrunk { keep: 1, outcome: no_answer() });
    assert_eq!(effects.look, Some(at(500)));
    assert_eq!(bench.after(400).on(Event::Look).sends, [None, None]);
    assert_eq!(bench.after(100).on(Event::Look).sends, keeps(1));
}

#[test]
fn permits_that_are_gone_are_lost_and_what_took_their_place_is_released() {
    let mut gone = three_permits();
    let outcome = Ok(gone.told(None));
    assert!(gone.on(Event::Shrunk { keep: 1, outcome }).lost.is_some());
    assert_eq!(gone.on(Event::Look).sends, [None, None]);
    let mut replaced = three_permits();
    assert!(replaced.shrunk(1, 6).lost.is_some());
    assert_eq!(replaced.on(Event::Look).sends, [None, Some(RELEASE)]);
}

#[test]
fn shrink_of_released_or_lost_permits_has_no_effect() {
    let mut released = three_permits();
    let _ = released.on(Event::Shrink { keep: 1 });
    let _ = released.on(Event::Look);
    let _ = released.on(Event::Release);
    let outcome = Ok(released.told(None));
    let effects = released.on(Event::Shrunk { keep: 1, outcome });
    assert!(effects.lost.is_none(), "the release answers for it");
    let mut lost = three_permits();
    let _ = lost.renewed(Renewed::Lost);
    let _ = lost.on(Event::Shrink { keep: 1 });
    assert!(
        !lost.on(Event::Look).sends.iter().flatten().any(|it| matches!(it, Sending::Shrink(_)))
    );
}
