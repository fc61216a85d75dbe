//! Slots that change their master: key by key, in steps between which a test can act, or at once
//! where the server supports that.

use redis::{Cmd, cmd};

use super::{Cluster, Error, PollLimit, Result};

/// A slot that is moving from one node to another, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMigration {
    pub slot: u16,
    pub from: usize,
    pub to: usize,
}

impl Cluster {
    /// Moves a slot with its keys to another master, and waits until all nodes agree. Does nothing
    /// if the slot is already there.
    pub async fn move_slot(&self, slot: u16, to: usize) -> Result {
        if self.master_of(slot).await? == to {
            return Ok(());
        }
        let step = self.begin_migration(slot, to).await?;
        self.move_keys(step).await?;
        self.finish_migration(step).await
    }

    /// From here on the source answers ASK for keys that it does not have, and the target serves
    /// clients that send ASKING.
    pub async fn begin_migration(&self, slot: u16, to: usize) -> Result<SlotMigration> {
        let from = self.master_of(slot).await?;
        if from == to {
            return Err(Error::new(format!("slot {slot} is at node {to} already")));
        }
        self.set_slot(to, slot, "IMPORTING", from).await?;
        self.set_slot(from, slot, "MIGRATING", to).await?;
        Ok(SlotMigration { slot, from, to })
    }

    /// Moves all keys that the source still has, and returns their number.
    pub async fn move_keys(&self, step: SlotMigration) -> Result<usize> {
        let mut moved = 0;
        loop {
            let list = format!("CLUSTER GETKEYSINSLOT {} 100", step.slot);
            let keys: Vec<Vec<u8>> = self.node(step.from).run_words(&list).await?;
            if keys.is_empty() {
                return Ok(moved);
            }
            self.migrate(step, &keys).await?;
            moved += keys.len();
        }
    }

    /// Moves one key.
    pub async fn move_key(&self, step: SlotMigration, key: impl AsRef<[u8]>) -> Result {
        self.migrate(step, &[key.as_ref().to_vec()]).await
    }

    /// Gives the slot to the target, and waits until all nodes agree. The source refuses if it
    /// still has keys.
    pub async fn finish_migration(&self, step: SlotMigration) -> Result {
        // The target first: if the source were told first and the target lost, no node would have
        // the slot.
        let mut tell = vec![step.to, step.from];
        tell.extend(
            self.masters()
                .await?
                .into_iter()
                .filter(|&number| number != step.to && number != step.from),
        );
        for number in tell {
            self.set_slot(number, step.slot, "NODE", step.to).await?;
        }
        self.wait_for_agreement().await
    }

    /// Moves a range of slots in one piece, where the server supports that
    /// ([`has_atomic_moves`](super::Version::has_atomic_moves)).
    pub async fn migrate_slots_atomically(&self, first: u16, last: u16, to: usize) -> Result {
        let source = self.node(self.master_of(first).await?);
        let id = self.id(to);
        source
            .run_words::<()>(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {id}"))
            .await?;
        let wait_limit = PollLimit::new(format!("slots {first} to {last} to arrive at node {to}"));
        loop {
            match (self.master_of(first).await?, self.master_of(last).await?) {
                masters if masters == (to, to) => return self.wait_for_agreement().await,
                _ => wait_limit.pause(format!("{:?}", move_states(source).await?)).await?,
            }
        }
    }

    async fn set_slot(&self, at: usize, slot: u16, what: &str, node: usize) -> Result {
        self.node(at).run_words(&format!("CLUSTER SETSLOT {slot} {what} {}", self.id(node))).await
    }

    async fn migrate(&self, step: SlotMigration, keys: &[Vec<u8>]) -> Result {
        let target = self.node(step.to);
        let mut command: Cmd = cmd("MIGRATE");
        command
            .arg(target.host())
            .arg(target.tls_port().unwrap_or(target.port()))
            .arg("")
            .arg(0)
            .arg(5_000);
        if let Some(password) = target.password() {
            command.arg("AUTH").arg(password);
        }
        command.arg("KEYS").arg(keys);
        // `NOKEY` is an answer as well: the key was released or has expired in the meantime.
        self.node(step.from).run::<String>(&command).await.map(drop)
    }
}

/// What the source reports about its moves. The answer is only printed.
async fn move_states(source: &super::Server) -> Result<redis::Value> {
    source.run_words("CLUSTER GETSLOTMIGRATIONS").await
}
