//! Campaigns, leads that are lost, and watches.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{ErrorKind, RenewalPolicy};
use tokio::time::timeout;

use crate::fixture::{LONG, SECOND, client};

#[tokio::test(start_paused = true)]
async fn campaign_with_max_hold_passes_the_lead_on() {
    let engine = EmbeddedCluster::new();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let candidates = [one.election("round").unwrap(), other.election("round").unwrap()];
    let (mut last, mut leads) = (None, Vec::new());
    for turn in 0..4 {
        let campaign = candidates[turn % 2].campaign().lease(SECOND).max_hold(5 * SECOND);
        let lead = timeout(LONG, campaign).await.unwrap().unwrap();
        assert!(Some(lead.term()) > last && lead.is_leading());
        assert!(leads.iter().all(|before: &rwlease::LeaderGuard| !before.is_leading()));
        last = Some(lead.term());
        leads.push(lead);
    }
    let work = candidates[0]
        .campaign()
        .max_hold(5 * SECOND)
        .run_while_held(async |_| pending::<()>().await);
    let error = timeout(LONG, work).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "the term ends the work");
}

/// Also at the server: another candidate leads then.
#[tokio::test(start_paused = true)]
async fn max_hold_below_the_lease_ends_the_term() {
    let engine = EmbeddedCluster::new();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let (one, other) = (one.election("short").unwrap(), other.election("short").unwrap());
    let lead = one.campaign().max_hold(2 * SECOND).await.unwrap();
    assert!(lead.remaining() <= 2 * SECOND, "{:?}", lead.remaining());
    let next = timeout(4 * SECOND, other.campaign().max_hold(2 * SECOND)).await.unwrap().unwrap();
    assert!(next.is_leading() && !lead.is_leading() && next.term() > lead.term());
    // Granted by a poll of its own, and by a message.
    let next_but_one = timeout(4 * SECOND, one.campaign().max_hold(SECOND / 2)).await;
    let left = next_but_one.unwrap().unwrap().remaining();
    assert!(left <= SECOND / 2, "{left:?}");
}

/// As in a process that continues after it was stopped: the work is woken, and no timer has fired
/// yet.
#[tokio::test]
async fn run_is_not_resumed_after_the_lease_has_ended() {
    let leader = client(&EmbeddedCluster::new()).await.election("stopped").unwrap();
    let steps = AtomicU32::new(0);
    let campaign =
        leader.campaign().lease(Duration::from_millis(200)).renewal(RenewalPolicy::Manual);
    let work = campaign.run_while_held(async |lease| {
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
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
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
    let (mine, theirs) = (one.election("watched").unwrap(), other.election("watched").unwrap());
    let mut watch = client(&engine).await.election("watched").unwrap().observe();
    assert!(watch.changed().await.unwrap().is_none());
    let mut last = None;
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
            assert!(Some(told.term) > last && told.lease_remaining > Duration::ZERO);
            last = Some(told.term);
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
    let leader = client(&engine).await.election("ended").unwrap();
    let lead = leader.campaign().lease(10 * SECOND).renewal(RenewalPolicy::Manual).await.unwrap();
    let mut watch = leader.observe().poll_interval(SECOND / 10);
    assert_eq!(watch.changed().await.unwrap().unwrap().term, lead.term());
    let start = engine.now();
    assert!(watch.changed().await.unwrap().is_none());
    let led = engine.now() - start; // by the servers' clocks, which are simulated
    assert!(led > 9 * SECOND && led < 11 * SECOND, "{led:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_polls_no_more_often_than_its_interval() {
    let engine = EmbeddedCluster::new();
    let mut watch =
        client(&engine).await.election("looks").unwrap().observe().poll_interval(SECOND);
    assert!(watch.changed().await.unwrap().is_none());
    engine.reset_script_stats();
    assert!(timeout(100 * SECOND, watch.changed()).await.is_err());
    let looks = engine.script_stats().scripts;
    assert!((99..=200).contains(&looks), "{looks} in a hundred seconds");
}

#[tokio::test(start_paused = true)]
async fn watch_without_a_server_returns_unavailable_and_continues() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).standalone().build();
    let leader = client(&engine).await.election("unknown").unwrap();
    let mut watch = leader.observe();
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
    let leader = client(&engine).await.election("lost").unwrap();
    let mut watch = client(&engine).await.election("lost").unwrap().observe();
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
