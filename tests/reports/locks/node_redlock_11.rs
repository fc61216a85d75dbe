//! mike-marcacci/node-redlock#11: a server that cannot save its data refuses writes (`MISCONF`).
//! The release fails, nobody is told, and the lock stays until it expires.
//!
//! A refused release is told, and carried out once the server writes again.

use crate::{LONG, SECOND, one, soon, until_free};

#[tokio::test(flavor = "multi_thread")]
async fn release_refused_by_misconf_is_told_and_repeated() {
    let (server, locks) = one().await;
    let lock = locks.rwlock("job").unwrap();
    let held = lock.write().lease(LONG).await.unwrap();
    let mut save = redis::cmd("CONFIG");
    server.run::<()>(save.arg("SET").arg("save").arg("3600 1")).await.unwrap();
    server.run_words::<()>("CONFIG SET stop-writes-on-bgsave-error yes").await.unwrap();
    // It has no place to save to.
    let folder = server.folder().to_owned();
    let aside = folder.with_extension("aside");
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::remove_dir_all(&aside).unwrap();
    let _ = server.run_words::<String>("BGSAVE").await;
    let wait_limit = testkit::PollLimit::new("a failed save");
    while server.info("persistence").await.unwrap()["rdb_last_bgsave_status"] != "err" {
        wait_limit.pause("it has not failed").await.unwrap();
    }
    let refused = soon(held.release()).await;
    assert!(refused.is_err() || refused.unwrap() == rwlease::ReleaseOutcome::Unknown);
    server.run_words::<()>("CONFIG SET stop-writes-on-bgsave-error no").await.unwrap();
    tokio::time::sleep(SECOND).await;
    until_free(&lock).await;
}
