//! A small fleet of the bench `scale`. The model of `docs/scale.md` bounds the calls of its
//! clients, even in an ordered failover and while slots move.

#[path = "../../benches/scale/simulation/mod.rs"]
mod simulation;

use std::time::Duration;

use simulation::{CountedMessage, Outcome, Plan, ServerCounts, Simulation};

const CLIENTS: u64 = 50;
const HELD: u64 = 8;
const CROWDS: u64 = 20;
const CROWD: u64 = 5;
/// The nodes that a client queries for one fetch of the slot map.
const SAMPLE: u64 = 5;
/// The locks of a client: held ones, those of its pairs, and contended ones.
const LOCKS: u64 = HELD + NAMES + CROWDS * CROWD / CLIENTS;
const NAMES: u64 = 10;
/// Scripts that the fleet uses.
const SCRIPTS: u64 = 3;
const LENGTH: Duration = Duration::from_secs(30);

fn plan() -> Plan {
    Plan {
        seed: 23,
        masters: 10,
        clients: CLIENTS as usize,
        held: HELD as usize,
        pairs: 0.5,
        names: NAMES as usize,
        crowds: CROWDS as usize,
        crowd: CROWD as usize,
        hold: Duration::from_secs(2),
        lease: Duration::from_secs(30),
    }
}

/// Lets time pass. Returns the counts and the results of the locks.
async fn pass(simulation: &Simulation, length: Duration) -> (ServerCounts, Outcome) {
    simulation.run(length).await;
    (simulation.take_counts(), simulation.take_outcome())
}

fn assert_safe(simulation: &Simulation, outcome: &Outcome) {
    assert_eq!((outcome.overlaps, outcome.lost, outcome.failed), (0, 0, 0), "{outcome:?}");
    assert_eq!(simulation.held() as u64, CLIENTS * HELD);
}

#[test]
fn fleet_of_clients_sends_no_more_commands_than_the_model() {
    simulation::runtime().block_on(async {
        let simulation = Simulation::start(&plan()).await;
        let started = pass(&simulation, LENGTH).await.0;
        // Each client has at most one connection to each server, and one more for subscriptions to
        // each master.
        assert!(
            started.all(CountedMessage::Time) <= CLIENTS * 20,
            "{}",
            started.all(CountedMessage::Time)
        );

        let (usual, outcome) = pass(&simulation, LENGTH).await;
        assert_safe(&simulation, &outcome);
        // Renewals are due after a third of a lease of 30 s, less at most a tenth of it.
        let renewals = usual.all(CountedMessage::Renew);
        assert!((CLIENTS * HELD * 3..=CLIENTS * HELD * 4).contains(&renewals), "{renewals}");
        // A fetch is due every 15 to 30 s.
        let maps = usual.all(CountedMessage::Map);
        assert!((CLIENTS * SAMPLE..=CLIENTS * SAMPLE * 2).contains(&maps), "{maps}");
        assert_eq!(
            [CountedMessage::Moved, CountedMessage::Ask, CountedMessage::Error]
                .map(|it| usual.all(it)),
            [0; 3]
        );

        simulation.order_failover(0).await;
        let (failover, outcome) = pass(&simulation, LENGTH).await;
        assert_safe(&simulation, &outcome);
        assert_bounded(&failover, LENGTH);
        // One call of a client sends the text of a script, and the others wait for it.
        let unknown = failover.all(CountedMessage::NoScript);
        assert!((1..=CLIENTS * SCRIPTS).contains(&unknown), "{unknown}");

        let (length, _) = simulation.reshard(1_638).await;
        let (moves, outcome) = pass(&simulation, LENGTH).await;
        assert_safe(&simulation, &outcome);
        assert_bounded(&moves, length + LENGTH);
        // Each lock moves at most once, with a tenth of the slots.
        let moved = moves.all(CountedMessage::Moved);
        assert!((1..=CLIENTS * LOCKS / 5).contains(&moved), "{moved}");
    });
}

/// A client fetches the slot map every 15 s at most, and once for each call and each subscription
/// that meets a moved slot. It renews each subscription at most once, with one query, and probes it
/// after each 10 s of silence.
fn assert_bounded(sent: &ServerCounts, length: Duration) {
    let rounds = |seconds: u64| length.as_secs() / seconds + 1;
    let channels = CROWDS * CROWD;
    let found = sent.all(CountedMessage::Moved) + channels;
    let maps = sent.all(CountedMessage::Map);
    assert!(maps <= (CLIENTS * rounds(15) + found) * SAMPLE, "{maps} maps, {found} found");
    let subscribed = sent.all(CountedMessage::Subscribe);
    assert!(subscribed <= channels * (2 + rounds(10)), "{subscribed}");
    assert_eq!(sent.all(CountedMessage::Error), 0);
}
