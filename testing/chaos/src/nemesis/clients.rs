//! Three workers at once: one is killed (and another one started), one is stopped for longer than
//! its lease, and the runtime of one is blocked for as long.

use std::time::Duration;

use tokio::time::sleep;

use super::ensure;
use crate::history::now;
use crate::process;
use crate::scenario::Scene;
use testkit::{Error, PollLimit, Result};

pub async fn strike(scene: &mut Scene) -> Result {
    let mut living = scene.living();
    scene.random.shuffle(&mut living);
    let [killed, stopped, stalled, ..] = living[..] else {
        return Err(Error::new("it needs three workers"));
    };
    let past = scene.load.lease + Duration::from_millis(500);
    scene.history.read()?;
    let held = [killed, stopped, stalled].map(|worker| held_by(scene, worker));
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
    let wait_limit = PollLimit::new("the runtime to go on");
    while scene.history.stalls(stalled).len() == stalls {
        wait_limit.pause("it is blocked").await?;
        scene.history.read()?;
    }
    let faults = [
        ("client killed", format!("worker {killed} is gone")),
        ("client stopped", format!("worker {stopped} stood stopped for {past:?}")),
        ("client stalled", format!("worker {stalled} says that it was blocked for {past:?}")),
    ];
    for ((what, proof), held) in faults.into_iter().zip(held) {
        scene.fault(what, at, held, proof);
    }
    Ok(())
}

fn held_by(scene: &Scene, worker: usize) -> Vec<usize> {
    let holds = scene.history.holds().filter(|hold| hold.worker == worker);
    let held = holds.filter(|hold| hold.granted.is_some() && hold.ended.is_none());
    held.map(|hold| hold.name).collect()
}
