//! redis/redis#15496: a line break within an error of the server splits it in two, and the rest of
//! it is the reply to somebody else's command.
//!
//! The rest of a broken error answers nobody.

use crate::support::{Fake, ServerAct, StandaloneServer};
use crate::{LONG, client, soon};
use rwlease::Locks;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn error_with_a_line_break_answers_one_call_at_most() {
    let server = StandaloneServer::start().await.unwrap();
    let near = client(&server).await;
    let _held = near.rwlock("held").unwrap().write().lease(LONG).await.unwrap();
    let granted = "granted 1700000000000 0 client-id-00000001 1700000000000000 9999999999999";
    for rest in ["+OK".to_owned(), ":1".into(), format!("${}\r\n{granted}", granted.len())] {
        let fake = Fake::before(&server, move |act| {
            let is_broken = act.words.iter().any(|word| word.ends_with("broken"));
            match is_broken && act.connection < 4 {
                true => ServerAct::bytes(format!("-ERR no such thing: a\r\n{rest}\r\n")),
                false => ServerAct::forward(act),
            }
        });
        let fake = fake.await.unwrap();
        let locks = Locks::connect([fake.url()]).await.unwrap();
        let _ = locks.rwlock("warm").unwrap().write().await.unwrap().release().await.unwrap();
        let mut tries = JoinSet::new();
        for name in ["held", "broken", "held", "held", "held"] {
            let lock = locks.rwlock(name).unwrap();
            tries.spawn(async move { (name, lock.try_write().await) });
        }
        for (name, tried) in soon(tries.join_all()).await {
            let is_granted = tried.is_ok_and(|guard| guard.is_some());
            assert!(name == "broken" || !is_granted, "another client holds it");
        }
    }
}
