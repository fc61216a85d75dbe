//! Slots that change their master key by key, in steps between which a test can act.

use redis::{Cmd, cmd, pipe};

use super::{Cluster, ClusterNodes, Error, Result};

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
        let step = SlotMigration { slot, from, to };
        self.set_importing(step).await?;
        self.set_migrating(step).await?;
        Ok(step)
    }

    /// The first step: the target serves clients that send ASKING.
    pub async fn set_importing(&self, step: SlotMigration) -> Result {
        self.set_slot(step.to, step.slot, "IMPORTING", step.from).await
    }

    /// The second step: the source answers ASK for keys that it does not have.
    pub async fn set_migrating(&self, step: SlotMigration) -> Result {
        self.set_slot(step.from, step.slot, "MIGRATING", step.to).await
    }

    /// Tells a node that the target has the slot.
    pub async fn assign_slot(&self, at: usize, step: SlotMigration) -> Result {
        self.set_slot(at, step.slot, "NODE", step.to).await
    }

    /// Ends the migration at a node, without a change of the slot's master.
    pub async fn set_stable(&self, at: usize, step: SlotMigration) -> Result {
        self.node(at).run_words(&format!("CLUSTER SETSLOT {} STABLE", step.slot)).await
    }

    /// The migrations of slots that a node reports of itself: `[slot->-id]` and `[slot-<-id]`.
    pub async fn moving_at(&self, number: usize) -> Result<Vec<String>> {
        let view = ClusterNodes::of(self.node(number)).await?;
        Ok(view.0.get(self.id(number)).map(|entry| entry.moving.clone()).unwrap_or_default())
    }

    /// Moves all keys that the source still has, and returns their number. A key that the target
    /// has as well is an error.
    pub async fn move_keys(&self, step: SlotMigration) -> Result<usize> {
        self.move_all(step, None).await
    }

    /// The same, but the source's keys replace those of the target: for the repair of a slot that
    /// two nodes served.
    pub async fn replace_keys(&self, step: SlotMigration) -> Result<usize> {
        self.move_all(step, Some("REPLACE")).await
    }

    /// Moves the keys of a move that was cancelled from its target back to its source, and deletes
    /// those that the source has again. Returns the numbers of both.
    pub async fn move_keys_back(&self, step: SlotMigration) -> Result<(usize, usize)> {
        let back = SlotMigration { from: step.to, to: step.from, ..step };
        let (mut moved, mut deleted) = (0, 0);
        loop {
            let keys = self.keys_in_slot(back.from, step.slot).await?;
            let Some(key) = keys.first() else { return Ok((moved, deleted)) };
            match self.move_key(back, key).await {
                Ok(()) => moved += 1,
                Err(error) if error.to_string().contains("BUSYKEY") => {
                    let mut target = self.node(back.from).connect().await?;
                    let mut delete = pipe();
                    delete.cmd("ASKING").ignore().cmd("UNLINK").arg(key).ignore();
                    delete.query_async::<()>(&mut target).await?;
                    deleted += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn move_all(&self, step: SlotMigration, how: Option<&str>) -> Result<usize> {
        let mut moved = 0;
        loop {
            let keys = self.keys_in_slot(step.from, step.slot).await?;
            if keys.is_empty() {
                return Ok(moved);
            }
            self.migrate(step, &keys, how).await?;
            moved += keys.len();
        }
    }

    /// Moves one key.
    pub async fn move_key(&self, step: SlotMigration, key: impl AsRef<[u8]>) -> Result {
        self.migrate(step, &[key.as_ref().to_vec()], None).await
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
            self.assign_slot(number, step).await?;
        }
        self.wait_for_agreement().await
    }

    /// Some of the keys that a node has in a slot.
    async fn keys_in_slot(&self, at: usize, slot: u16) -> Result<Vec<Vec<u8>>> {
        self.node(at).run_words(&format!("CLUSTER GETKEYSINSLOT {slot} 100")).await
    }

    async fn set_slot(&self, at: usize, slot: u16, what: &str, node: usize) -> Result {
        self.node(at).run_words(&format!("CLUSTER SETSLOT {slot} {what} {}", self.id(node))).await
    }

    async fn migrate(&self, step: SlotMigration, keys: &[Vec<u8>], how: Option<&str>) -> Result {
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
        command.arg(how).arg("KEYS").arg(keys);
        // `NOKEY` is an answer as well: the key was released or has expired in the meantime.
        self.node(step.from).run::<String>(&command).await.map(drop)
    }
}
