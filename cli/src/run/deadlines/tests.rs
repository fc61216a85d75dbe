use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn command_is_terminated_then_killed_before_the_lease_ends() {
    let deadlines = Deadlines::new(ms(10_000), None).unwrap(); // 2500 of grace, 500 in reserve
    assert_eq!(deadlines.step(ms(9_500), None), DeadlineAction::Wait(MAX_SLEEP));
    assert_eq!(deadlines.step(ms(3_100), None), DeadlineAction::Wait(ms(100)));
    assert_eq!(deadlines.step(ms(3_000), None), DeadlineAction::Terminate);
    assert_eq!(deadlines.step(ms(700), Some(ms(2_299))), DeadlineAction::Wait(ms(200)));
    assert_eq!(deadlines.step(ms(500), Some(ms(2_400))), DeadlineAction::Kill);
    // The lease was made longer again, but what was told to end has to end.
    assert_eq!(deadlines.step(ms(9_000), Some(ms(2_500))), DeadlineAction::Kill);
}

#[test]
fn command_without_lease_left_is_killed_at_once() {
    let deadlines = Deadlines::new(ms(1_500), None).unwrap();
    assert_eq!(deadlines.step(Duration::ZERO, None), DeadlineAction::Kill);
    assert_eq!(deadlines.step(ms(75), None), DeadlineAction::Kill);
}

#[test]
fn grace_that_leaves_no_time_to_renew_is_refused() {
    assert!(Deadlines::new(ms(900), Some(ms(301))).is_err());
    assert!(Deadlines::new(ms(900), Some(ms(300))).is_ok());
}
