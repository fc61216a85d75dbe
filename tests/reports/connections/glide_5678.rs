//! valkey-io/valkey-glide#5678: a token of the cloud has expired by the time that a connection is
//! made again, which then fails with the old one.
//!
//! Each connection is opened with credentials that are asked for then.

use std::sync::{Arc, Mutex};

use rwlease::{Client, Credentials};

use crate::{SECOND, soon};
use testkit::{ClientKind, ServerSettings, StandaloneServer};

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_opened_with_the_credentials_of_the_moment() {
    let settings = ServerSettings::default().line("user iam on >token:0 ~* &* +@all");
    let server = StandaloneServer::start_with(settings).await.unwrap();
    let token = Arc::new(Mutex::new("token:0".to_owned()));
    let provider = Provider(token.clone());
    let settings = Client::builder().credentials(provider).lease(5 * SECOND);
    let url = format!("redis://{}", server.address());
    let locks = settings.urls([url]).connect().await.unwrap();
    let held = locks.rwlock("held").unwrap().write().await.unwrap();
    for number in 1..4 {
        let new = format!("token:{number}");
        server.run_words::<()>(&format!("ACL SETUSER iam resetpass >{new}")).await.unwrap();
        *token.lock().unwrap() = new;
        server.kill_clients(ClientKind::Commands).await.unwrap();
        server.kill_clients(ClientKind::Subscribed).await.unwrap();
        let _ = soon(locks.rwlock("doc").unwrap().write()).await.unwrap().release().await.unwrap();
        testkit::wait_renewed(&held, 1).await.unwrap();
    }
}

#[derive(Debug)]
struct Provider(Arc<Mutex<String>>);

impl rwlease::CredentialsProvider for Provider {
    fn credentials(&self) -> rwlease::CredentialsFuture<'_> {
        let token = self.0.lock().unwrap().clone();
        Box::pin(async move { Ok(Credentials::new("iam", token)) })
    }
}
