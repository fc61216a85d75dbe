//! A master is away until its replica was promoted.

use super::ensure;
use crate::history::now;
use crate::ledger::Change;
use crate::process;
use crate::scenario::Scene;
use testkit::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// `kill -9`. It comes back as a replica.
    Kill,
    /// SIGSTOP; then SIGCONT: it continues as a master until it learns of the other.
    Pause,
}

pub async fn strike(scene: &mut Scene, outage: Outage) -> Result {
    let master = scene.some_master().await?;
    let struck = scene.names_at(master).await?;
    let slot = scene.slot(struck[0]);
    let before = scene.epoch(master).await?;
    let heir = scene.heir(master).await?;
    scene.order(Change::TakesOver { from: master, to: heir });
    if outage == Outage::Kill {
        scene.order(Change::Restarts(master));
    }
    let node = scene.cluster.node(master);
    let process = node.id();
    let state = || process.and_then(process::state);
    let at = now();
    match outage {
        Outage::Kill => {
            node.kill()?;
            let gone = process.is_some() && state().is_none();
            ensure(gone, || format!("process {process:?} is there"))?;
        }
        Outage::Pause => node.freeze()?,
    }
    let stopped = state();
    let promoted = scene.cluster.new_master(slot, master).await?;
    let mut until = now();
    let after = scene.epoch(promoted).await?;
    ensure(promoted != master && after > before, || {
        format!("node {promoted} has the slots at epoch {after}")
    })?;
    match outage {
        Outage::Kill => node.restart().await?,
        Outage::Pause => {
            let still = state();
            ensure(still == Some('T'), || format!("the process is {stopped:?}, then {still:?}"))?;
            node.thaw()?;
        }
    }
    scene.cluster.wait_for_agreement().await?;
    if outage == Outage::Pause || scene.load.replicas > 0 {
        until = now(); // only now somebody can confirm again, and the old master grants no more
    }
    let (name, what) = match outage {
        Outage::Kill => ("kill", format!("process {process:?} of node {master} is gone,")),
        Outage::Pause => ("pause", format!("node {master} stood stopped until")),
    };
    let proof = format!("{what} node {promoted} was promoted, epoch {before} to {after}");
    scene.fault(name, at, struck.clone(), proof);
    scene.excuse(struck, until);
    Ok(())
}
