use super::*;

/// Sets one setting, in its unit, and checks all.
type Check = fn(u64) -> Result<()>;

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

fn checked(change: impl FnOnce(&mut ClientConfig)) -> Result<()> {
    let mut settings = ClientConfig::default();
    change(&mut settings);
    settings.check()
}

fn router_checked(change: impl FnOnce(&mut RouterConfig)) -> Result<()> {
    let mut settings = RouterConfig::default();
    change(&mut settings);
    settings.check()
}

#[test]
fn each_range_has_its_ends_and_nothing_beyond() {
    let day = 24 * 3_600_000;
    let ranges: &[(&str, u64, u64, Check)] = &[
        ("lease", 10, 30 * day, |it| checked(|all| all.lease = ms(it))),
        ("margin", 0, 500, |it| {
            checked(|all| (all.lease, all.acquisition.safety_margin) = (ms(1_000), Some(ms(it))))
        }),
        // The time to live is that of 60,001 ms.
        ("interval", 1, 60_000, |it| {
            checked(|all| {
                (all.acquisition.polling.poll_interval, all.acquisition.polling.waiter_ttl) =
                    (ms(it), ms(180_003))
            })
        }),
        ("interval of a short life", 1, 100, |it| {
            checked(|all| {
                (all.acquisition.polling.poll_interval, all.acquisition.polling.waiter_ttl) =
                    (ms(it), ms(300))
            })
        }),
        ("waiters' time to live", 100, 3_600_000, |it| {
            checked(|all| {
                (all.acquisition.polling.poll_interval, all.acquisition.polling.waiter_ttl) =
                    (ms(1), ms(it))
            })
        }),
        ("window", 10, 600_000, |it| checked(|all| all.acquisition.polling.claim_timeout = ms(it))),
        ("call timeout", 1, 3_600_000, |it| checked(|all| all.acquisition.call_timeout = ms(it))),
        ("minimum hold", 0, 100, |it| checked(|all| all.cache.min_hold = ms(it))),
        ("wait of a try", 0, 10_000, |it| checked(|all| all.cache.try_wait = ms(it))),
        ("connect timeout", 1, 3_600_000, |it| router_checked(|all| all.connect_timeout = ms(it))),
        ("response timeout", 1, 3_600_000, |it| {
            router_checked(|all| all.response_timeout = ms(it))
        }),
        ("calls in flight", 1, 1 << 20, |it| {
            router_checked(|all| all.max_in_flight_per_server = it as usize)
        }),
        ("prefix", 0, 128, |it| checked(|all| all.key_prefix = "p".repeat(it as usize))),
        ("mutex prefix", 0, 128, |it| {
            checked(|all| all.set_nx_key_prefix = "p".repeat(it as usize))
        }),
    ];
    for (what, least, most, check) in ranges {
        assert!(check(*least).is_ok() && check(*most).is_ok(), "{what}");
        let beyond = [least.checked_sub(1), Some(most + 1)];
        for value in beyond.into_iter().flatten() {
            assert!(check(value).is_err(), "{what}: {value}");
        }
    }
}
