use super::*;

const fn at(ms: u64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_millis(ms))
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_lease_counts_from_the_sending_and_from_what_the_server_says_is_left() {
    let grant = Grant::new(1, 9_000);
    assert_eq!(lease_deadline(grant, 8_000, at(500), ms(100)), at(1_399));
    // An earlier attempt was granted, and this one reports it: less than a lease is left.
    assert_eq!(lease_deadline(grant, 8_900, at(500), ms(10)), at(589));
    assert_eq!(lease_deadline(grant, 9_500, at(500), ms(10)), at(490));
}

#[test]
fn a_pushed_lease_counts_from_the_earlier_of_two_bounds() {
    let grant = Grant::new(1, 9_000);
    let mut bound = ClockBounds::default();
    bound.observe(at(100), at(140), 8_000);
    // By the bound the server reaches 9000 at 1094 or later, by the message at 1159 or earlier.
    assert_eq!(pushed_deadline(grant, 8_050, at(210), Some(&bound), ms(50)), Some(at(1_044)));
    // The server's clock was set back in between, so the message is the earlier limit.
    assert_eq!(pushed_deadline(grant, 8_200, at(210), Some(&bound), ms(0)), Some(at(1_009)));
    assert_eq!(pushed_deadline(grant, 8_050, at(210), None, ms(0)), None);
}

#[test]
fn renewals_stop_at_their_limits() {
    let mut twice = RenewalBudget { renewals_left: Some(2), hold_deadline: None, kept_until: None };
    assert!(twice.can_renew(at(0)));
    twice.record_renewal();
    twice.record_renewal();
    assert!(!twice.can_renew(at(0)));
    let held =
        RenewalBudget { renewals_left: None, hold_deadline: Some(at(1_000)), kept_until: None };
    assert!(held.can_renew(at(999)) && !held.can_renew(at(1_000)));
    assert_eq!(held.lease(at(400), ms(5_000)), ms(600));
    assert_eq!((held.clamp_to_hold(at(1_300)), held.clamp_to_hold(at(700))), (at(1_000), at(700)));
    assert_eq!(twice.clamp_to_hold(at(1_300)), at(1_300));
}

#[test]
fn a_renewal_goes_out_by_a_third_of_the_lease() {
    assert_eq!(renew_at(at(0), ms(3_000), 0.0), at(1_000));
    assert_eq!(renew_at(at(0), ms(3_000), 1.0), at(900));
    assert_eq!(renew_at(at(19), ms(3_000), 0.0), at(1_000), "with others");
    // However short the lease is, there is a pause before its renewal.
    for (sent, lease) in [(10_007, 10), (10_007, 59), (10_007, 61), (10_007, 600)] {
        let pause = renew_at(at(sent), ms(lease), 1.0).saturating_duration_since(at(sent));
        assert!(pause >= ms(lease).mul_f64(0.28), "{pause:?} of {lease} ms");
    }
    assert_eq!(retry_at(at(0), ms(3_000), 0.0), at(300));
    assert_eq!(retry_at(at(0), ms(60_000), 1.0), at(500));
}
