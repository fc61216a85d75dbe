//! Faults of a cluster and of its users. Each nemesis reads back that its fault has really
//! happened, and fails if it has not.

mod at_once;
mod atomic_failover;
mod bulk;
mod cancelled_moves;
mod clients;
pub mod clocks;
mod drain;
mod fail_over;
mod flush;
mod memory;
mod move_failover;
mod moves;
mod outage;
pub mod partition;
pub mod permission;
pub mod restart;
mod split_master;
mod staying;
mod takeover;
mod unordered;

pub use staying::{ClientCut, Props, StayingFault, Touched};
pub use takeover::{Cause, Side};
pub use unordered::Unordered;

use super::scenario::Scene;
use outage::Outage;
use testkit::{Error, Result, Version};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nemesis {
    Nothing,
    Moves,
    AtOnce,
    Drain,
    FailOver,
    /// A slot moves key by key, and a replica of one side takes over; without a name, of any side.
    MoveFailover(Option<Side>, Cause),
    /// The same of the source, on servers whose replicas do not know of such moves.
    ForgottenMove,
    /// A slot moves in one piece, and a replica takes over.
    AtomicFailover(Option<Side>, Cause),
    /// The keys of a slot are moved and moved back.
    CancelledMove,
    CancelledAtomicMove,
    Kill,
    Restart,
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
            Nemesis::MoveFailover(side, cause) => move_failover::strike(scene, side, cause).await,
            Nemesis::ForgottenMove => {
                move_failover::strike(scene, Some(Side::Source), Cause::Order).await
            }
            Nemesis::AtomicFailover(side, cause) => {
                atomic_failover::strike(scene, side, cause).await
            }
            Nemesis::CancelledMove => cancelled_moves::by_key(scene).await,
            Nemesis::CancelledAtomicMove => cancelled_moves::atomic(scene).await,
            Nemesis::Kill => outage::strike(scene, Outage::Kill).await,
            Nemesis::Restart => restart::strike(scene).await,
            Nemesis::Pause => outage::strike(scene, Outage::Pause).await,
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

    /// Whether slots move in one piece.
    pub fn moves_at_once(self) -> bool {
        matches!(self, Nemesis::AtOnce | Nemesis::AtomicFailover(..) | Nemesis::CancelledAtomicMove)
    }

    /// Whether it kills a master of a slot that moves.
    pub fn kills_while_slots_move(self) -> bool {
        matches!(
            self,
            Nemesis::MoveFailover(_, Cause::Kill) | Nemesis::AtomicFailover(_, Cause::Kill)
        )
    }

    /// Whether a server of this version has what the nemesis needs.
    pub fn runs_on(self, version: &Version) -> bool {
        match self {
            _ if self.moves_at_once() => version.has_atomic_moves(),
            Nemesis::MoveFailover(Some(Side::Source), _) => version.replicates_moves(),
            Nemesis::ForgottenMove => !version.replicates_moves(),
            _ => true,
        }
    }
}

fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Result {
    if is_so { Ok(()) } else { Err(Error::new(format!("the fault did not happen: {}", what()))) }
}
