//! Campaigns, leads that are lost, and watches.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{ErrorKind, Locks, Released, RenewalPolicy};
use tokio::time::timeout;

use crate::support::wait_for_waiters;

const SECOND: Duration = Duration::from_secs(1);

/// Ends a test that would never end.
const LONG: Duration = Duration::from_secs(60);

/// So long that no test depends on its end.
const NEVER: Duration = LONG;

async fn client(engine: &EmbeddedCluster) -> Locks {
    Locks::builder().connect_embedded(engine).await.unwrap()
}

/// Neither a poll nor the end of a lease makes the next candidate lead within this test.
#[tokio::test(start_paused = true)]
async fn resign_makes_the_next_candidate_lead_at_once() {
    let engine = EmbeddedCluster::new();
    let patient = || Locks::builder().lease(3 * NEVER).poll_interval(NEVER).waiter_ttl(3 * NEVER);
    let one = patient().connect_embedded(&engine).await.unwrap();
    let other = patient().connect_embedded(&engine).await.unwrap();
    let (mine, theirs) = (one.leader("at once").unwrap(), other.leader("at once").unwrap());
    let lead = mine.campaign().await.unwrap();
    assert!(lead.is_leading() && theirs.try_campaign().await.unwrap().is_none());
    let next = tokio::spawn(async move { theirs.campaign().await });
    wait_for_waiters(mine.lock(), 1).await.unwrap();
    let term = lead.term();
    assert_eq!(lead.resign().await.unwrap(), Released::Released);
    let next = timeout(SECOND, next).await.unwrap().unwrap().unwrap();
    assert!(next.is_leading() && next.term() > term);
    let current = mine.current().await.unwrap().unwrap();
    assert_eq!((current.term, current.id.as_str()), (next.term(), next.id()));
    assert_eq!(current.client_id(), other.client_id());
    drop(next);
    let last = timeout(SECOND, mine.campaign()).await.unwrap().unwrap();
    assert!(last.term() > current.term, "a lead that is dropped is resigned");
}

#[tokio::test(start_paused = true)]
async fn campaign_with_max_hold_passes_the_lead_on() {
    let engine = EmbeddedCluster::new();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let candidates = [one.leader("round").unwrap(), other.leader("round").unwrap()];
    let (mut last, mut leads) = (0, Vec::new());
    for turn in 0..4 {
        let campaign = candidates[turn % 2].campaign().lease(SECOND).max_hold(5 * SECOND);
        let lead = timeout(LONG, campaign).await.unwrap().unwrap();
        assert!(lead.term() > last && lead.is_leading());
        assert!(leads.iter().all(|before: &rwlease::Leadership| !before.is_leading()));
        last = lead.term();
        leads.push(lead);
    }
    let work = candidates[0].campaign().max_hold(5 * SECOND).run(async |_| pending::<()>().await);
    let error = timeout(LONG, work).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "the term ends the work");
}

/// Also at the server: another candidate leads then.
#[tokio::test(start_paused = true)]
async fn max_hold_below_the_lease_ends_the_term() {
    let engine = EmbeddedCluster::new();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let (one, other) = (one.leader("short").unwrap(), other.leader("short").unwrap());
    let lead = one.campaign().max_hold(2 * SECOND).await.unwrap();
    assert!(lead.remaining() <= 2 * SECOND, "{:?}", lead.remaining());
    let next = timeout(4 * SECOND, other.campaign().max_hold(2 * SECOND)).await.unwrap().unwrap();
    assert!(next.is_leading() && !lead.is_leading() && next.term() > lead.term());
    // Granted by a poll of its own, and by a message.
    let next_but_one = timeout(4 * SECOND, one.campaign().max_hold(SECOND / 2)).await;
    let left = next_but_one.unwrap().unwrap().remaining();
    assert!(left <= SECOND / 2, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn run_is_cancelled_when_the_leader_loses_its_lease() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let leader = client(&EmbeddedCluster::new()).await.leader("lost").unwrap();
    let cancelled = Arc::new(AtomicBool::new(false));
    let lead = leader.campaign().lease(SECOND).renewal(RenewalPolicy::Manual).await.unwrap();
    let (term, told) = (lead.term(), Told(cancelled.clone()));
    let work = lead.run(async move |lease| {
        let _told = told;
        assert_eq!(lease.token(), term);
        pending::<()>().await
    });
    let error = timeout(LONG, work).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::Lost, Some("lost")));
    assert!(cancelled.load(Ordering::SeqCst), "the work's future was dropped");
    let output = leader.campaign().run(async |lease| lease.token()).await.unwrap();
    assert!(output > term);
    assert!(leader.current().await.unwrap().is_none(), "a leader whose work is done resigns");
}

/// As in a process that continues after it was stopped: the work is woken, and no timer has fired
/// yet.
#[tokio::test]
async fn run_is_not_resumed_after_the_lease_has_ended() {
    let leader = client(&EmbeddedCluster::new()).await.leader("stopped").unwrap();
    let steps = AtomicU32::new(0);
    let campaign =
        leader.campaign().lease(Duration::from_millis(200)).renewal(RenewalPolicy::Manual);
    let work = campaign.run(async |lease| {
        while lease.is_held() {
            std::thread::sleep(Duration::from_millis(1));
        }
        poll_fn(|_| {
            steps.fetch_add(1, Ordering::SeqCst);
            Poll::<()>::Pending
        })
        .await
    });
    let error = timeout(LONG, twice(work)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(steps.load(Ordering::SeqCst), 1, "the step that it was stopped in");
}

/// Polls a pending future a second time, before the runtime can check its timers.
async fn twice<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Pending => work.as_mut().poll(context),
        ready => ready,
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn watch_reports_each_change_and_no_renewal() {
    let engine = EmbeddedCluster::new();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let (mine, theirs) = (one.leader("watched").unwrap(), other.leader("watched").unwrap());
    let mut watch = client(&engine).await.leader("watched").unwrap().watch();
    assert!(watch.changed().await.unwrap().is_none());
    let mut last = 0;
    for _ in 0..3 {
        for leader in [&mine, &theirs] {
            let lead = leader.campaign().lease(6 * SECOND).await.unwrap();
            // The future is dropped between two queries and during one. The watch neither repeats a
            // change nor omits one.
            let told = loop {
                match timeout(SECOND / 7, watch.changed()).await {
                    Ok(changed) => break changed.unwrap().unwrap(),
                    Err(_) => continue,
                }
            };
            assert_eq!((told.term, told.id.as_str()), (lead.term(), lead.id()));
            assert!(told.term > last && told.remaining > Duration::ZERO);
            last = told.term;
            assert!(timeout(LONG, watch.changed()).await.is_err(), "it was only renewed");
            let _ = lead.resign().await.unwrap();
        }
    }
    assert!(watch.changed().await.unwrap().is_none());
    assert!(timeout(LONG, watch.changed()).await.is_err(), "nobody leads, and it was told");
    // A minute later the server has forgotten the lock and its last term.
    let lead = mine.campaign().await.unwrap();
    assert_eq!(watch.changed().await.unwrap().unwrap().term, lead.term());
}

/// A leader that is gone leads until its lease has ended, and no longer.
#[tokio::test(start_paused = true)]
async fn watch_reports_the_end_of_a_lease() {
    let engine = EmbeddedCluster::new();
    let leader = client(&engine).await.leader("ended").unwrap();
    let lead = leader.campaign().lease(10 * SECOND).renewal(RenewalPolicy::Manual).await.unwrap();
    let mut watch = leader.watch().every(SECOND / 10);
    assert_eq!(watch.changed().await.unwrap().unwrap().term, lead.term());
    let start = engine.now();
    assert!(watch.changed().await.unwrap().is_none());
    let led = engine.now() - start; // by the servers' clocks, which are simulated
    assert!(led > 9 * SECOND && led < 11 * SECOND, "{led:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_polls_no_more_often_than_its_interval() {
    let engine = EmbeddedCluster::new();
    let mut watch = client(&engine).await.leader("looks").unwrap().watch().every(SECOND);
    assert!(watch.changed().await.unwrap().is_none());
    engine.reset_script_stats();
    assert!(timeout(100 * SECOND, watch.changed()).await.is_err());
    let looks = engine.script_stats().scripts;
    assert!((99..=200).contains(&looks), "{looks} in a hundred seconds");
}

#[tokio::test(start_paused = true)]
async fn watch_without_a_server_returns_unavailable_and_continues() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).standalone().build();
    let leader = client(&engine).await.leader("unknown").unwrap();
    let mut watch = leader.watch();
    assert!(watch.changed().await.unwrap().is_none());
    engine.faults().stop(0);
    let error = timeout(LONG, watch.changed()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    engine.faults().start(0);
    let lead = leader.campaign().await.unwrap();
    let told = loop {
        match timeout(LONG, watch.changed()).await.unwrap() {
            Ok(told) => break told.unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
        }
    };
    assert_eq!(told.term, lead.term());
}

/// A failover loses the leader and its term. The promoted server knows an earlier term, so its
/// answers name no leader.
#[tokio::test(start_paused = true)]
async fn watch_after_failover_that_lost_the_leader_reports_none_when_its_lease_ends() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(1).build();
    let leader = client(&engine).await.leader("lost").unwrap();
    let mut watch = client(&engine).await.leader("lost").unwrap().watch();
    let earlier = leader.campaign().lease(10 * SECOND).await.unwrap();
    assert_eq!(watch.changed().await.unwrap().unwrap().term, earlier.term());
    let replica = engine.faults().replicas(0)[0];
    engine.faults().lag_replica(replica);
    let _ = earlier.resign().await.unwrap();
    assert!(watch.changed().await.unwrap().is_none());
    let lost = leader.campaign().lease(4 * SECOND).renewal(RenewalPolicy::Manual).await.unwrap();
    assert_eq!(watch.changed().await.unwrap().unwrap().term, lost.term());
    let remaining = lost.remaining();
    engine.faults().promote(0, 0).unwrap();
    assert!(timeout(remaining / 2, watch.changed()).await.is_err(), "its lease may be valid");
    let reported = timeout(remaining, watch.changed()).await.expect("nobody leads").unwrap();
    assert!(reported.is_none());
    assert!(timeout(3 * SECOND, watch.changed()).await.is_err(), "it is reported once");
}
