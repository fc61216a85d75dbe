//! Faults of a cluster and of its users. Each nemesis reads back that its fault has really
//! happened, and fails if it has not.

mod at_once;
mod clients;
pub mod clocks;
mod drain;
mod fail_over;
mod flush;
mod kill;
mod memory;
mod moves;
pub mod partition;
mod pause;
pub mod permission;
mod split_master;
mod staying;
mod unordered;

pub use staying::{ClientCut, Props, StayingFault, Touched};
pub use unordered::Unordered;

use super::scenario::Scene;
use testkit::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nemesis {
    Nothing,
    Moves,
    AtOnce,
    Drain,
    FailOver,
    Kill,
    Pause,
    Partition,
    Clients,
    Memory,
    Flush,
    /// To run this command.
    Permission(&'static str),
    SplitMaster,
    Skew,
    Step,
    /// Struck once, until the end of the run.
    Stays(StayingFault),
    /// Changes the servers without recording it. It tests the harness itself.
    Unordered(Unordered),
}

impl Nemesis {
    /// Strikes, waits until all is well again, and records the fault. If there was nothing to
    /// strike, it is called again.
    pub async fn strike(self, scene: &mut Scene) -> Result {
        match self {
            // `staying::act` strikes those that stay.
            Nemesis::Nothing | Nemesis::Stays(_) => Ok(()),
            Nemesis::Moves => moves::strike(scene).await,
            Nemesis::AtOnce => at_once::strike(scene).await,
            Nemesis::Drain => drain::strike(scene).await,
            Nemesis::FailOver => fail_over::strike(scene).await,
            Nemesis::Kill => kill::strike(scene).await,
            Nemesis::Pause => pause::strike(scene).await,
            Nemesis::Partition => partition::strike(scene).await,
            Nemesis::Clients => clients::strike(scene).await,
            Nemesis::Memory => memory::strike(scene).await,
            Nemesis::Flush => flush::strike(scene).await,
            Nemesis::Permission(command) => permission::strike(scene, command).await,
            Nemesis::Skew => clocks::skew(scene).await,
            Nemesis::Step => clocks::step(scene).await,
            Nemesis::SplitMaster => split_master::strike(scene).await,
            Nemesis::Unordered(what) => unordered::strike(scene, what).await,
        }
    }
}

fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Result {
    if is_so { Ok(()) } else { Err(Error::new(format!("the fault did not happen: {}", what()))) }
}
