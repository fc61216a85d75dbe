//! Sentinels of another deployment: what they report is not believed.

use super::*;
use crate::router::tests::events::{Events, LockProbe};

/// A sentinel of another deployment, with the same name for its master and a higher epoch.
fn of_another() -> FakeSentinel {
    FakeSentinel { id: Some("z"), peers: &[], ..knows(99, "z") }
}

fn with_another() -> FakeCluster {
    let fakes = servers();
    fakes.set_standalone("z");
    fakes.set_sentinel("z1", FakeSentinel { peers: &[], ..knows(99, "z") });
    fakes
}

#[tokio::test(start_paused = true)]
async fn connect_by_sentinels_of_two_deployments_is_invalid_and_names_both() {
    for seeds in [["s1", "z1"], ["z1", "s1"]] {
        for (slow, takes) in [("s1", 0), ("s1", 80), ("z1", 80)] {
            let fakes = with_another();
            let takes = Duration::from_millis(takes);
            let own = if slow == "s1" { knows(1, "a") } else { of_another() };
            let own = FakeSentinel { takes, id: None, ..own };
            fakes.set_sentinel(slow, own);
            let error = connect_by(&fakes, &seeds).await.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
            let why = error.to_string();
            assert!(["z1:1", "z:1", "a:1"].iter().all(|it| why.contains(it)), "{why}");
        }
    }
}

/// The sentinels know it by its address, so it is one of theirs.
#[tokio::test(start_paused = true)]
async fn connect_waits_for_no_sentinel_that_the_others_list() {
    let fakes = servers();
    fakes.set_dial_behavior("s3", DialBehavior::Hang);
    let clock = TestClock::start();
    connect_by(&fakes, &SENTINELS).await.unwrap();
    let took = clock.now().saturating_duration_since(LocalInstant::default());
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_of_another_deployment_at_a_learned_address_is_not_believed() {
    let watched = watched_by(with_another()).await;
    watched.fakes.set_sentinel("s3", of_another());
    for named in [&["s1"][..], &["s1", "s2"]] {
        // One that connects now, and one that knew the former sentinel.
        let newcomer = connect_by(&watched.fakes, named).await.unwrap();
        assert_eq!(newcomer.masters(), [address("a")]);
        watched.fakes.set_sentinel("s3", knows(1, "a"));
        let router = connect_by(&watched.fakes, named).await.unwrap();
        watched.fakes.set_sentinel("s3", of_another());
        for _ in 0..3 {
            router.topology.refresh(RefreshSource::Several).await;
        }
        assert_eq!(router.masters(), [address("a")]);
    }
    assert_eq!(watched.fakes.count("z", "EVAL"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_of_another_deployment_at_a_named_address_is_not_believed() {
    let (events, _recording) = Events::record();
    let watched = watched_by(with_another()).await;
    watched.fakes.set_sentinel("s3", of_another());
    for _ in 0..3 {
        watched.router.topology.refresh(RefreshSource::Several).await;
    }
    watched.call_within("k", 1).await.unwrap();
    // Nor if it is the only one that answers.
    for sentinel in ["s1", "s2"] {
        watched.fakes.refuse(sentinel);
    }
    watched.router.topology.refresh(RefreshSource::Several).await;
    watched.call_within("k", 1).await.unwrap();
    assert_eq!(watched.calls(), (2, 0));
    let unexpected = events.of("rwlease.unexpected_server");
    assert!(unexpected.iter().all(|it| it.contains("server=s3:1 outcome=\"other_sentinel\"")));
    assert!(!unexpected.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_lock_is_held_at_the_events_of_sentinels() {
    let watched = watched_by(with_another()).await;
    let (probe, _probing) = LockProbe::install(&watched.router);
    watched.fakes.set_sentinel("s3", of_another());
    watched.fakes.set_replica("b", false);
    for known in [knows(2, "b"), knows(1, "a")] {
        for sentinel in ["s1", "s2"] {
            watched.fakes.set_sentinel(sentinel, known);
        }
        watched.router.topology.refresh(RefreshSource::Several).await;
    }
    probe.assert_free_at(&["rwlease.unexpected_server", "rwlease.master", "rwlease.refresh"]);
}
