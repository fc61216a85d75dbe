//! All servers forget their scripts.

use super::ensure;
use crate::history::now;
use crate::scenario::Scene;
use testkit::Result;

pub async fn strike(scene: &mut Scene) -> Result {
    let at = now();
    let (mut before, mut after) = (0, 0);
    for number in scene.cluster.running() {
        before += scripts(scene, number).await?;
        scene.cluster.node(number).run_words::<()>("SCRIPT FLUSH SYNC").await?;
        after += scripts(scene, number).await?;
    }
    ensure(before > after, || format!("{before} scripts, and {after} after it"))?;
    scene.fault("flush", at, scene.all(), format!("{before} scripts were known, then {after}"));
    Ok(())
}

async fn scripts(scene: &Scene, node: usize) -> Result<u64> {
    let memory = scene.cluster.node(node).info("memory").await?;
    Ok(memory.get("number_of_cached_scripts").and_then(|count| count.parse().ok()).unwrap_or(0))
}
