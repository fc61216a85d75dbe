//! Two masters name each other as the master of a slot: an acquire there must end in an error, not
//! in a loop.

use std::time::Duration;

use rwlease::{Client, ErrorKind, Slot};

use super::ensure;
use crate::history::now;
use crate::scenario::Scene;
use testkit::{ConnectBuilder, Error, PollLimit, Result, error_chain};

/// The timeout of a request, and the time that it may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(10);

pub async fn strike(scene: &mut Scene) -> Result {
    let name = format!("odd{}", scene.random.u64(..));
    let slot = Slot::of(format!("rwlease:{name}")).get();
    let master = scene.cluster.master_of(slot).await?;
    let count = format!("CLUSTER COUNTKEYSINSLOT {slot}");
    let is_used = scene.cluster.node(master).run_words::<u64>(&count).await? > 0;
    // A master does not give away a slot that has keys.
    if is_used || (0..scene.names.len()).any(|number| scene.slot(number) == slot) {
        return Ok(());
    }
    let masters = scene.cluster.masters().await?;
    let others = masters.into_iter().filter(|&other| other != master);
    let other = scene.random.choice(others.collect::<Vec<_>>());
    let other = other.ok_or_else(|| Error::new("there is one master only"))?;
    let locks = Client::builder().connect_to(&scene.cluster.urls()).await?;
    let lock = locks.rwlock(&name)?;
    let assign = |to: usize| format!("CLUSTER SETSLOT {slot} NODE {}", scene.cluster.id(to));

    let at = now();
    // No node claims the slot from here on, so no node corrects it.
    scene.cluster.node(master).run_words::<()>(&assign(other)).await?;
    let mut proof = String::new();
    for (at, named) in [(master, other), (other, master)] {
        let said = scene.cluster.node(at).run_words::<()>(&format!("GET rwlease:{name}")).await;
        let said = said.err().map(|error| error.to_string()).unwrap_or_default();
        let address = scene.cluster.node(named).address();
        ensure(said.contains(&address), || format!("node {at} says {said}"))?;
        proof += &format!("node {at} names node {named}; ");
    }
    let outcome = lock.write().timeout(TIMEOUT).await;
    let took = Duration::from_nanos(now() - at);
    match outcome {
        // It counts its redirects. A request that followed them until its timeout says so.
        Err(error)
            if error.kind() == ErrorKind::Unavailable
                && took < LIMIT
                && error_chain(&error).contains("redirects") =>
        {
            proof += &error_chain(&error);
        }
        other => scene
            .wrong
            .push(format!("two masters that name each other ended in {other:?} after {took:?}")),
    }
    for number in [master, other] {
        scene.cluster.node(number).run_words::<()>(&assign(master)).await?;
    }
    let wait_limit = PollLimit::new("the two to agree");
    let write = || async { Ok(lock.write().timeout(TIMEOUT).await?) };
    let _ = wait_limit.until_ok(write).await?.release().await?;
    scene.cluster.wait_for_agreement().await?;
    scene.fault("split master", at, Vec::new(), proof);
    Ok(())
}
