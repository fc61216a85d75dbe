//! The conformance suite on one server that sentinels watch.

use conformance::lock_tests;
use conformance::site::SentinelSite;
use rwlease::{Client, ErrorKind, SentinelConfig};

use testkit::{Backend, Result, SentinelConfigForTest, SentinelDeployment};

/// Makes the tests of one backend.
macro_rules! sentinel_tests {
    ($module:ident, $backend:expr) => {
        mod $module {
            use super::*;

            lock_tests!(two_clients());
            conformance::server_tests! { by watched; on 1 masters with 1:
                scripts_are_sent_where_they_are_unknown
                keys_of_others_are_left_alone
                connections_that_are_cut_cost_nothing
                a_hand_off_needs_no_poll
                a_failover_by_order_loses_no_lock
                a_dead_master_is_replaced
                a_frozen_master_is_left
            }

            async fn two_clients() -> (Client, Client, SentinelDeployment) {
                let sentinels = SentinelDeployment::start().await.unwrap();
                let connect =
                    async || $backend.connect(Client::builder(), &[sentinels.url()]).await.unwrap();
                (connect().await, connect().await, sentinels)
            }

            async fn watched(_: usize, replicas: usize) -> Result<SentinelSite> {
                let config = SentinelConfigForTest::of(replicas);
                Ok(SentinelSite($backend, SentinelDeployment::start_with(config).await?))
            }
        }
    };
}

#[cfg(feature = "native")]
sentinel_tests!(native, Backend::Native);
#[cfg(feature = "redis")]
sentinel_tests!(redis_crate, Backend::Redis);

#[tokio::test]
async fn sentinel_config_that_makes_no_sense_is_invalid_input() {
    let of = |urls: &[&str]| Client::builder().urls(urls);
    let named = || SentinelConfig::new("mymaster").node("127.0.0.1:1");
    let sentinel = |sentinel| Client::builder().sentinel(sentinel);
    for (settings, why) in [
        (of(&["redis+sentinel://127.0.0.1:1"]), "URL of sentinels"),
        (
            of(&["redis+sentinel://127.0.0.1:1/a", "redis://127.0.0.1:1"]),
            "both servers and sentinels",
        ),
        (of(&["redis+sentinel://127.0.0.1:1/a", "redis+sentinel://127.0.0.1:2/b"]), "differ"),
        (of(&["redis+sentinel://127.0.0.1:1/a"]).sentinel(named()), "both `urls` and `sentinel`"),
        (sentinel(SentinelConfig::new("mymaster")), "no sentinel is named"),
        (sentinel(SentinelConfig::new("").node("127.0.0.1:1")), "is empty"),
        (sentinel(SentinelConfig::new("my master").node("127.0.0.1:1")), "a space"),
        (sentinel(SentinelConfig::new("mymaster").node("127.0.0.1:x")), "`host:port`"),
        (sentinel(named()).tls_root_certificates("PEM"), "certificates"),
    ] {
        let error = settings.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    let two = of(&["redis+sentinel://127.0.0.1:1/a", "redis+sentinel://127.0.0.1:2/a"]);
    assert_eq!(two.connect().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let secret = format!("{:?}", of(&["redis+sentinel://user:secret@s/a"]));
    assert!(!secret.contains("secret"), "{secret}");
    let parsed: SentinelConfig = "redis+sentinel://user:secret@s/a".parse().unwrap();
    assert!(!format!("{parsed:?}").contains("secret"), "{parsed:?}");
}
