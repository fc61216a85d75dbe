//! The conformance suite over connections of the library's own.

use conformance::lock_tests;
use conformance::site::two_clients;
use rwlease::{Client, Credentials, ErrorKind};
use testkit::{Backend, ServerSettings, StandaloneServer};

lock_tests!(two_clients(Backend::Native));
conformance::server_tests!(Backend::Native);
conformance::server_tests!(Backend::Native, with push);

#[tokio::test]
async fn urls_must_agree_in_what_they_say_beside_the_address() {
    let settings = ServerSettings::default().password("right");
    let server = StandaloneServer::start_with(settings).await.unwrap();
    let at = server.address();
    let first = format!("redis://:right@{at}");
    for other in ["", ":wrong@", "user:right@"].map(|who| format!("redis://{who}{at}")) {
        let urls = [&first, &other];
        let error = Client::connect(urls).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{other}: {error:?}");
        let provided = Client::builder().urls(urls).credentials(Credentials::password("right"));
        assert!(provided.connect().await.is_ok(), "{other}");
    }
    let error = Client::connect([&first, &format!("{first}/1")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert!(Client::connect([&first, &first]).await.is_ok());
}
