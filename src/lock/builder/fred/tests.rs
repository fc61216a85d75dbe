use ::fred::types::config::Config;

use crate::{Client, ErrorKind};

#[tokio::test]
async fn a_user_needs_a_password() {
    let config = Config::from_url("redis://locker@127.0.0.1:1").unwrap();
    let error = Client::builder().connect_fred(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    assert!(error.to_string().contains("a user without a password"), "{error}");
    let config = Config::from_url("redis://127.0.0.1:1").unwrap();
    let error = Client::builder().connect_fred(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
