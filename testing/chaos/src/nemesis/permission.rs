//! The user of the workers loses the right to a command that the scripts need, for a while, at all
//! nodes.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::sleep;

use super::ensure;
use crate::history::now;
use crate::scenario::Scene;
use testkit::{Cluster, Result};

const USER: &str = "worker";
const PASSWORD: &str = "works";
const WHILE: Duration = Duration::from_millis(500);

/// Gives the workers a user of their own, so that this process keeps its rights. Returns their
/// addresses.
pub async fn prepare(cluster: &Cluster) -> Result<Vec<String>> {
    for node in cluster.nodes() {
        node.run_words::<()>(&format!("ACL SETUSER {USER} on >{PASSWORD} ~* &* +@all")).await?;
    }
    let url = |address: String| format!("redis://{USER}:{PASSWORD}@{address}");
    Ok(cluster.nodes().iter().map(|node| url(node.address())).collect())
}

pub async fn strike(scene: &mut Scene, command: &str) -> Result {
    for number in scene.cluster.running() {
        scene.cluster.node(number).run_words::<()>("ACL LOG RESET").await?;
    }
    let at = now();
    set(scene, '-', command).await?;
    sleep(WHILE).await;
    set(scene, '+', command).await?;
    let mut noted = 0;
    for number in scene.cluster.running() {
        let log: Vec<HashMap<String, redis::Value>> =
            scene.cluster.node(number).run_words("ACL LOG").await?;
        noted += log.iter().filter(|entry| tells_of(entry, command)).count();
    }
    ensure(noted > 0, || "no server has refused the command".into())?;
    scene.history.read()?;
    let refused = scene.history.recent(at).filter(|hold| hold.failed.is_some()).count();
    // Without a message, a waiter polls.
    ensure(refused > 0 || command == "spublish", || "nobody was refused".into())?;
    scene.fault(
        "permission",
        at,
        scene.all(),
        format!(
            "every node confirmed it, {noted} kinds of refusals are in their logs, {refused} requests were refused"
        ),
    );
    if command != "spublish" {
        scene.excuse(scene.all(), now());
    }
    Ok(())
}

/// Whether an entry of a server's log says that the workers' user was refused the command.
fn tells_of(entry: &HashMap<String, redis::Value>, command: &str) -> bool {
    let says = |field: &str, word: &str| {
        let said =
            entry.get(field).and_then(|said| redis::from_redis_value_ref::<String>(said).ok());
        said.is_some_and(|said| said == word)
    };
    says("object", command) && says("username", USER)
}

/// Changes the rights at every node, and reads them back.
async fn set(scene: &Scene, sign: char, command: &str) -> Result {
    for number in scene.cluster.running() {
        let node = scene.cluster.node(number);
        node.run_words::<()>(&format!("ACL SETUSER {USER} {sign}{command}")).await?;
        let users: Vec<String> = node.run_words("ACL LIST").await?;
        let user = users.into_iter().find(|user| user.starts_with(&format!("user {USER} ")));
        let has = !user.as_deref().unwrap_or_default().contains(&format!("-{command}"));
        ensure(has == (sign == '+'), || format!("the user is {user:?}"))?;
    }
    Ok(())
}
