//! The user of the workers loses the right to a command that the scripts need, for a while, at all nodes.

use std::time::Duration;

use tokio::time::sleep;

use super::ensure;
use crate::chaos::history::now;
use crate::chaos::scene::Scene;
use crate::support::{Cluster, Result};

const USER: &str = "worker";
const PASSWORD: &str = "works";
const WHILE: Duration = Duration::from_millis(500);

/// The workers have a user of their own, so that it is not this process that loses the right; their addresses.
pub async fn prepare(cluster: &Cluster) -> Result<Vec<String>> {
    for node in cluster.nodes() {
        node.say::<()>(&format!("ACL SETUSER {USER} on >{PASSWORD} ~* &* +@all"))
            .await?;
    }
    let url = |address: String| format!("redis://{USER}:{PASSWORD}@{address}");
    Ok(cluster.nodes().iter().map(|node| url(node.address())).collect())
}

pub async fn strike(scene: &mut Scene, command: &str) -> Result {
    let at = now();
    set(scene, '-', command).await?;
    sleep(WHILE).await;
    set(scene, '+', command).await?;
    scene.history.read()?;
    let refused = scene.history.recent(at).filter(|hold| hold.failed.is_some()).count();
    // Without a message a waiter looks by itself.
    ensure(refused > 0 || command == "spublish", || "nobody was refused".into())?;
    let all = (0..scene.names.len()).collect();
    scene.fault(
        "permission",
        at,
        all,
        format!("every node confirmed it, {refused} requests were refused"),
    );
    Ok(())
}

/// Changes the rights at every node, and reads them back.
async fn set(scene: &Scene, sign: char, command: &str) -> Result {
    for number in scene.cluster.running() {
        let node = scene.cluster.node(number);
        node.say::<()>(&format!("ACL SETUSER {USER} {sign}{command}")).await?;
        let users: Vec<String> = node.say("ACL LIST").await?;
        let user = users
            .into_iter()
            .find(|user| user.starts_with(&format!("user {USER} ")));
        let has = !user.as_deref().unwrap_or_default().contains(&format!("-{command}"));
        ensure(has == (sign == '+'), || format!("the user is {user:?}"))?;
    }
    Ok(())
}
