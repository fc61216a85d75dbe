//! The conformance suite over the `fred` crate.

use conformance::lock_tests;
use conformance::site::two_clients;
use testkit::Backend;

lock_tests!(two_clients(Backend::Fred));
conformance::server_tests!(Backend::Fred);
conformance::server_tests!(Backend::Fred, with push);

/// Above all, a client with certificates must not connect without checking them.
#[cfg(any(feature = "native", feature = "redis"))]
#[tokio::test]
async fn connect_fred_with_settings_for_urls_is_refused() {
    let server = testkit::StandaloneServer::start().await.unwrap();
    let connect = async |settings| Backend::Fred.connect(settings, &[server.url()]).await;
    crate::must_refuse(testkit::url_only_settings(), connect).await;
}
