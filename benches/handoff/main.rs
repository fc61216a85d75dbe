//! The time from one holder's release to the next holder's turn, and the throughput with many
//! waiters, on a cluster of six nodes.
//!
//! `cargo bench -p rwlease-bench --bench handoff` runs all contenders in turn, round by round, so
//! that a disturbance of the machine affects all of them. The results are the ratios within one
//! run. `-- --rounds N` sets the rounds, `-- --alone` leaves out the locks of others, and `--
//! --compose` uses a cluster of containers. The bench exits with 3 if a goal is missed.

mod push;
mod report;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::{BenchCluster, OtherLibraries, ReadPercent, RwleaseLock, has_option, number_option};
use load::{crowd, hand_offs};
use push::PushOnly;
use report::{Report, Row};
use rwlease::Client;
use testkit::Result;

const LOCK: &str = "{handoff}ours";
const CHANNEL: &str = "{handoff}push";
const PEERS: [&str; 2] = ["rslock", "rds_lock"];
const PEERS_KEY: &str = "{handoff}theirs";

/// The hand-offs of a round, for ours and the floor. A peer takes a thousand times as long for one.
const HAND_OFFS: usize = 200;
const HAND_OFFS_OF_PEERS: usize = 15;

const TASKS: usize = 8;
const WRITES: usize = 500;
const WRITES_OF_PEERS: usize = 10;

/// The time before the release: a waiter that gets a push only has to be in the queue by then.
fn queued() -> Duration {
    Duration::from_micros(fastrand::u64(2_000..4_000))
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let rounds = number_option("--rounds", 5).max(1) as usize;
    let cluster = BenchCluster::start().await?;
    println!("{}, {}, {rounds} rounds.\n", cluster.version(), cluster.kind());
    let slot = cluster.slot_of(LOCK).await?;
    let master = cluster.node(cluster.master_of(slot).await?).url();

    let both = [Client::connect([&master]).await?, Client::connect([&master]).await?];
    let [first, second] = [both[0].rwlock(LOCK)?, both[1].rwlock(LOCK)?];
    let ours = [RwleaseLock(first, ReadPercent(0)), RwleaseLock(second, ReadPercent(0))];
    let mut push = PushOnly::connect(&master, CHANNEL).await?;
    let mut peers = match has_option("--alone") {
        true => None,
        false => Some(OtherLibraries::start(&master, PEERS_KEY).await?),
    };

    let mut report = Report::default();
    for round in 0..=rounds {
        let mut one = Report::default();
        for _ in 0..HAND_OFFS {
            let sent = Instant::now();
            push.ping().await;
            one.round_trips.push(sent.elapsed());
        }
        one.floor = hand_offs([push.clone(), push.clone()], HAND_OFFS, queued).await;
        let mut row = Row::new("rwlease");
        row.hand_offs = hand_offs(ours.clone(), HAND_OFFS, queued).await;
        row.crowd = crowd(&ours[0], TASKS, WRITES / rounds).await;
        one.rows.push(row);
        if let Some(peers) = &mut peers {
            for peer in PEERS {
                let mut row = Row::new(peer);
                row.hand_offs = peers.hand_offs(peer, HAND_OFFS_OF_PEERS).await?;
                row.crowd = peers.crowd(peer, TASKS, WRITES_OF_PEERS).await?;
                one.rows.push(row);
            }
        }
        // The first round only warms up.
        if round > 0 {
            eprintln!("round {round} of {rounds}: {}", one.summary());
            report.add(one);
        }
    }
    print!("{report}");
    Ok(report.goals().exit_code())
}
