//! The limit of the servers: bare, pipelined `SET`s by the servers' own tool. No lock can reach it,
//! because the second command of a pair waits for the answer to the first.

use std::time::Duration;

use tokio::process::Command;

use common::BenchCluster;
use load::LoadRun;

use crate::contenders::Contender;
use testkit::{Error, Result};

const LIMIT: &str = "redis-benchmark";

const PIPELINE: usize = 16;
/// The numbers of connections to try. The bench uses the best one.
const CONNECTIONS: [usize; 3] = [16, 64, 256];
/// The number of commands of a trial.
const TRIAL: usize = 200_000;
/// A shorter run is mostly start-up.
const SHORTEST: Duration = Duration::from_millis(250);

#[derive(Clone, Copy)]
pub struct ServerLimit {
    port: u16,
    connections: usize,
    per_second: f64,
}

impl ServerLimit {
    /// Fails if the tool is missing.
    pub async fn find(target: &BenchCluster) -> Result<ServerLimit> {
        let port = target.node(0).port();
        let mut best = ServerLimit { port, connections: 0, per_second: 0.0 };
        for connections in CONNECTIONS {
            let per_second = sets(port, connections, TRIAL).await?;
            if per_second > best.per_second {
                best = ServerLimit { port, connections, per_second };
            }
        }
        Ok(best)
    }

    pub fn describe(&self) -> String {
        let tried = CONNECTIONS.map(|count| count.to_string()).join(", ");
        format!(
            "`{LIMIT} --cluster -t set -P {PIPELINE} -c {}`, the best of {tried} connections",
            self.connections
        )
    }

    /// The limit takes turns like the others, at any number of tasks.
    pub fn contender(self) -> Contender {
        Contender::new(LIMIT, move |work| async move {
            let count = (self.per_second * work.time.max(SHORTEST).as_secs_f64()) as usize;
            let per_second = sets(self.port, self.connections, count).await.expect("no limit");
            LoadRun {
                elapsed: Duration::from_secs_f64(count as f64 / per_second),
                untimed: count / 2,
                ..LoadRun::default()
            }
        })
    }
}

/// Measures the `SET`s per second.
async fn sets(port: u16, connections: usize, count: usize) -> Result<f64> {
    let words = format!(
        "--cluster -p {port} -t set -c {connections} -P {PIPELINE} -n {count} -r 100000 --csv"
    );
    let output = Command::new(LIMIT).args(words.split(' ')).output().await;
    let output = output.map_err(|error| Error::new(format!("{LIMIT}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rate = said
        .lines()
        .find_map(|line| line.strip_prefix("\"SET\",\"")?.split('"').next()?.parse().ok());
    rate.ok_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        Error::new(format!("{LIMIT}: {}, {said}{complaint}", output.status))
    })
}
