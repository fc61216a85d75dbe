//! samyama-ai/samyama-graph#1322: an error holds bare line feeds. A client that reads up to a line
//! feed takes the second line for the reply to its next command, and stays one behind.
//!
//! Only a whole line end ends a reply.

use rwlease::{Client, ErrorKind};

use crate::soon;
use testkit::{Fake, ServerAct, StandaloneServer};

#[tokio::test(flavor = "multi_thread")]
async fn error_with_bare_line_feeds_is_one_reply() {
    let server = StandaloneServer::start().await.unwrap();
    let fake = Fake::before(&server, |act| {
        let is_broken = act.words.iter().any(|word| word.ends_with("broken"));
        match is_broken {
            true => ServerAct::bytes("-ERR no\n  | such\n  = thing\n\r\n"),
            false => ServerAct::forward(act),
        }
    });
    let fake = fake.await.unwrap();
    let locks = Client::connect([fake.url()]).await.unwrap();
    for _ in 0..5 {
        let error = soon(locks.rwlock("broken").unwrap().try_write()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
        let guard = soon(locks.rwlock("doc").unwrap().try_write()).await.unwrap().expect("free");
        assert_eq!(guard.release().await.unwrap(), rwlease::ReleaseOutcome::Released);
    }
}
