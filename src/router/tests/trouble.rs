//! Servers that hang, die or cut connections.

use super::*;

#[tokio::test(start_paused = true)]
async fn silence_makes_the_outcome_unknown_and_the_call_is_repeated() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.script("a", [Act::Hang]);
    let not_after = bench.clock.now().after(Duration::from_secs(2));
    let answer = bench
        .router
        .call(
            &Call {
                not_after: Some(not_after),
                ..call("x")
            },
            bench.within(5),
        )
        .await
        .unwrap();
    let told = |line: &String| line.split(' ').nth(5).unwrap().parse::<u64>().unwrap();
    let told: Vec<u64> = bench
        .fakes
        .log("a")
        .iter()
        .filter(|line| line.starts_with("EVALSHA"))
        .map(told)
        .collect();
    assert_eq!(told.len(), 2);
    assert_eq!(answer.loose, Some(told[0]));
    assert_eq!(
        bench.fakes.dials("a"),
        2,
        "nothing was heard on that connection, so it was replaced"
    );
}

#[tokio::test(start_paused = true)]
async fn silence_until_the_deadline_is_told() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.script("a", [Act::Hang]);
    let deadline = bench.clock.now().after(Duration::from_millis(100));
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(matches!(error.reason, Reason::TimedOut(None)), "{error}");
    assert_eq!(error.loose, Some(0));
    assert_eq!(bench.clock.now(), deadline);
    // A short deadline alone is no reason to give the connection up.
    bench.call("x").await.unwrap();
    assert_eq!(bench.fakes.dials("a"), 1);
    // And a call that is late already is not sent.
    let error = bench.router.call(&call("x"), deadline).await.unwrap_err();
    assert!(
        matches!(error.reason, Reason::TimedOut(None)) && error.loose.is_none(),
        "{error}"
    );
    assert_eq!(bench.fakes.count("a", "EVALSHA"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_made_again() {
    let bench = Bench::new(&[ALL]).await;
    for (maybe_sent, loose) in [(true, Some(0)), (false, None)] {
        let start = bench.clock.now();
        bench.fakes.script("a", [Act::Break { maybe_sent }]);
        assert_eq!(bench.call("x").await.unwrap().loose, loose);
        assert!(bench.clock.now().since(start) < Duration::from_millis(5), "at once");
    }
    assert_eq!(bench.fakes.dials("a"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_known_to_be_broken_is_not_used() {
    let bench = Bench::new(&[ALL]).await;
    bench.fakes.cut("a");
    assert_eq!(bench.call("x").await.unwrap().loose, None);
    assert_eq!(bench.fakes.dials("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_dialled_seldom_and_its_replacement_found() {
    let bench = Bench::new(&HALVES).await;
    bench.fakes.cut("a");
    bench.fakes.set_door("a", Door::Refuses);
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let router = bench.router.clone();
            let deadline = bench.within(10);
            tokio::spawn(async move { router.call(&call("k"), deadline).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let dials = bench.fakes.dials("a");
    assert!(dials < 20, "{dials} dials of 50 calls in 4 s");
    bench.fakes.set_slots(&[(0, 16383, "b")]);
    for call in calls {
        let answer = call.await.unwrap().unwrap();
        assert_eq!((answer.address, answer.loose), (address("b"), None));
    }
}

#[tokio::test(start_paused = true)]
async fn one_dial_serves_all_who_wait() {
    let bench = Bench::new(&HALVES).await;
    let calls = (0..20).map(|_| bench.call("x"));
    for answer in futures::future::join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(bench.fakes.dials("b"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_master_that_hangs_is_left_as_soon_as_another_names_the_new_owner() {
    let bench = Bench::new(&HALVES).await;
    bench.call("k").await.unwrap();
    bench.fakes.stop("a", true);
    let fakes = bench.fakes.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(4)).await;
        fakes.set_slots(&[(0, 16383, "b")]);
    });
    let start = bench.clock.now();
    let answer = bench.call("k").await.unwrap();
    let took = bench.clock.now().since(start);
    assert_eq!(answer.address, address("b"));
    assert_eq!(answer.loose, Some(0), "the stopped master may still run it");
    assert!(took < Duration::from_millis(4300), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_to_one_shard_go_on_while_another_hangs() {
    let bench = Bench::new(&HALVES).await;
    bench.call("x").await.unwrap();
    bench.fakes.stop("a", true);
    let stuck = {
        let (router, deadline) = (bench.router.clone(), bench.within(5));
        tokio::spawn(async move { router.call(&call("k"), deadline).await })
    };
    for _ in 0..100 {
        let start = bench.clock.now();
        bench.call("x").await.unwrap();
        assert_eq!(bench.clock.now(), start, "not a moment later");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let error = stuck.await.unwrap().unwrap_err();
    assert!(
        matches!(error.reason, Reason::TimedOut(None)) && error.loose == Some(0),
        "{error}"
    );
}
