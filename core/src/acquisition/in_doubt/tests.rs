use std::time::Duration;

use super::*;

const fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

fn ended(deadline_ms: u64, in_doubt: Doubt) -> InDoubtUntil {
    InDoubtUntil::of_ended_call(at(deadline_ms), in_doubt).unwrap()
}

#[test]
fn call_in_doubt_ends_at_its_not_after_or_else_is_guessed() {
    let exact = ended(2_000, Doubt::Until(9_500));
    assert_eq!(exact.latest_server_time(9_000, at(1_700)), 9_500);
    for guessed in [InDoubtUntil::local_only(at(2_000)), ended(2_000, Doubt::Unbounded)] {
        assert_eq!(guessed.latest_server_time(9_000, at(1_700)), 9_000 + 300 + SLACK_MS);
    }
}

#[test]
fn combined_in_doubt_keeps_latest_server_time_or_guesses_if_uncounted() {
    let (early, late) = (ended(3_000, Doubt::Until(8_000)), ended(2_000, Doubt::Until(9_500)));
    let together = later_of(Some(early), Some(late)).unwrap();
    assert_eq!(
        (together.local_deadline, together.latest_server_time(1, at(0))),
        (at(3_000), 9_500)
    );
    let guessed = later_of(Some(late), Some(InDoubtUntil::local_only(at(1_000)))).unwrap();
    assert_eq!(guessed.latest_server_time(9_000, at(1_700)), 9_000 + 300 + SLACK_MS);
    assert_eq!((later_of(None, Some(late)), later_of(Some(late), None)), (Some(late), Some(late)));
    assert_eq!(later_of(None, None), None);
    assert_eq!(InDoubtUntil::of_ended_call(at(2_000), Doubt::None), None);
}
