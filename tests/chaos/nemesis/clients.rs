//! Three workers at once: one is killed (and another one started), one stopped for longer than its lease, one has its runtime blocked for as long.

use std::time::Duration;

use tokio::time::sleep;

use super::ensure;
use crate::chaos::history::now;
use crate::chaos::process;
use crate::chaos::scene::Scene;
use crate::support::{Error, Patience, Result};

pub async fn strike(scene: &mut Scene) -> Result {
    let mut living = scene.living();
    scene.random.shuffle(&mut living);
    let [killed, stopped, stalled, ..] = living[..] else {
        return Err(Error::new("it needs three workers"));
    };
    let past = scene.load.lease + Duration::from_millis(500);
    let all: Vec<usize> = (0..scene.names.len()).collect();
    let (stalls, at) = (scene.history.stalls(stalled).len(), now());
    scene.workers[stopped].freeze()?;
    scene.workers[stalled].stall(past)?;
    scene.workers[killed].kill()?;
    scene.history.killed(killed, now());
    scene.add_worker(&[])?;
    sleep(past).await;
    let state_of = |worker: usize| process::state(scene.workers[worker].id());
    let (state, gone) = (state_of(stopped), state_of(killed).is_none());
    ensure(state == Some('T'), || format!("worker {stopped} is {state:?}"))?;
    ensure(gone, || format!("worker {killed} is there"))?;
    scene.workers[stopped].thaw()?;
    let patience = Patience::new("the runtime to go on");
    while scene.history.stalls(stalled).len() == stalls {
        patience.pause("it is blocked").await?;
        scene.history.read()?;
    }
    scene.fault("client killed", at, all.clone(), format!("worker {killed} is gone"));
    scene.fault(
        "client stopped",
        at,
        all.clone(),
        format!("worker {stopped} stood stopped for {past:?}"),
    );
    scene.fault(
        "client stalled",
        at,
        all,
        format!("worker {stalled} says that it was blocked for {past:?}"),
    );
    Ok(())
}
