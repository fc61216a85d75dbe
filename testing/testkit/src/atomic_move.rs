//! Slots that change their master in one piece, where the server supports that
//! ([`has_atomic_moves`](super::Version::has_atomic_moves)). Valkey wants the order at the source,
//! Redis at the target.

use redis::{Value, from_redis_value_ref};

use super::{Cluster, PollLimit, Result, Server};

/// The states in which a move has ended.
const ENDED: [&str; 5] = ["completed", "success", "failed", "canceled", "cancelled"];

/// A move of a range of slots, by the numbers of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicMove {
    pub first: u16,
    pub last: u16,
    pub from: usize,
    pub to: usize,
}

impl Cluster {
    /// Moves a range of slots, and waits until all nodes agree.
    pub async fn migrate_slots_atomically(&self, first: u16, last: u16, to: usize) -> Result {
        let step = self.begin_atomic_move(first, last, to).await?;
        let wait_limit = PollLimit::new(format!("slots {first} to {last} to arrive at node {to}"));
        loop {
            match (self.master_of(first).await?, self.master_of(last).await?) {
                masters if masters == (to, to) => return self.wait_for_agreement().await,
                _ => wait_limit.pause(format!("{:?}", self.atomic_moves(step).await?)).await?,
            }
        }
    }

    /// Orders a move, and does not wait for it.
    pub async fn begin_atomic_move(&self, first: u16, last: u16, to: usize) -> Result<AtomicMove> {
        let from = self.master_of(first).await?;
        let step = AtomicMove { first, last, from, to };
        let command = match self.is_valkey() {
            true => {
                format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {}", self.id(to))
            }
            false => format!("CLUSTER MIGRATION IMPORT {first} {last}"),
        };
        self.orderer(step).run_words::<Value>(&command).await?;
        Ok(step)
    }

    /// Cancels all moves of the node that was told to move.
    pub async fn cancel_atomic_moves(&self, step: AtomicMove) -> Result {
        let command = match self.is_valkey() {
            true => "CLUSTER CANCELSLOTMIGRATIONS",
            false => "CLUSTER MIGRATION CANCEL ALL",
        };
        self.orderer(step).run_words::<Value>(command).await.map(drop)
    }

    /// The states of the moves that each of both nodes reports, the last one first.
    pub async fn atomic_moves(&self, step: AtomicMove) -> Result<[Vec<String>; 2]> {
        let states = async |number: usize| {
            let moves = self.moves_at(number).await?;
            Ok::<_, super::Error>(moves.into_iter().map(|(_, state)| state).collect())
        };
        Ok([states(step.from).await?, states(step.to).await?])
    }

    /// Whether no node has an unfinished move. Redis begins an import that failed again after a
    /// second, from the slot's master of then.
    pub async fn has_no_atomic_move(&self) -> Result<bool> {
        let begins_again = |operation: &str, state: &str| {
            !self.is_valkey() && operation == "import" && state == "failed"
        };
        for number in self.running() {
            for (operation, state) in self.moves_at(number).await? {
                if !ENDED.contains(&state.as_str()) || begins_again(&operation, &state) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The operation and the state of each move that a node reports.
    async fn moves_at(&self, number: usize) -> Result<Vec<(String, String)>> {
        let command = match self.is_valkey() {
            true => "CLUSTER GETSLOTMIGRATIONS",
            false => "CLUSTER MIGRATION STATUS ALL",
        };
        // After a failover a replica loads its master's data.
        let limit = PollLimit::new(format!("node {number} to have its data"));
        let told: Vec<Value> = loop {
            match self.node(number).run_words(command).await {
                Err(error) if error.to_string().contains("BusyLoading") => {
                    limit.pause(error).await?;
                }
                told => break told?,
            }
        };
        Ok(told
            .iter()
            .filter_map(|told| Some((field(told, "operation")?, field(told, "state")?)))
            .collect())
    }

    /// The node that is told to move.
    fn orderer(&self, step: AtomicMove) -> &Server {
        self.node(if self.is_valkey() { step.from } else { step.to })
    }

    fn is_valkey(&self) -> bool {
        self.version().name == "Valkey"
    }
}

fn field(told: &Value, name: &str) -> Option<String> {
    let fields: Vec<(String, Value)> = from_redis_value_ref(told).ok()?;
    let (_, value) = fields.into_iter().find(|(has, _)| has == name)?;
    from_redis_value_ref(&value).ok()
}
