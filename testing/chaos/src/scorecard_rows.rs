//! The rows of the scorecard: the fault, the load, the least number of faults, and the promises.

use std::time::Duration;

use super::nemesis::restart::{Log, LogEnd};
use super::nemesis::{Cause, ClientCut, Nemesis, Side, StayingFault};
use super::scenario::Load;

#[derive(Clone, Debug)]
pub struct Row {
    pub name: &'static str,
    pub title: &'static str,
    pub nemesis: Nemesis,
    /// The faults of a full run, for each variant: 300 if a fault takes less than ten seconds, so
    /// that a row without overlaps shows a rate of at most one in a hundred. Without faults: the
    /// acquisitions of all variants.
    pub least: usize,
    /// The same for a short run that only shows that the row works.
    pub smoke: usize,
    pub node_timeout: u32,
    pub variants: Vec<Variant>,
}

#[derive(Clone, Debug)]
pub struct Variant {
    pub name: &'static str,
    pub load: Load,
    pub promises: &'static [Promise],
}

/// A promise beside those of every row: no stale write accepted, no update lost, nothing stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// This includes the order of all tokens.
    NoOverlap,
    /// The tokens of plain handles are in order.
    TokensRise,
    /// Permits are given first in, first out.
    InTurn,
    /// No lease ended before its holder released it.
    NoLoss,
    /// No acknowledged grant or renewal is lost.
    NothingVanished,
    NoError,
    /// No errors other than these.
    OnlyErrors(&'static [&'static str]),
    /// Every release had a certain outcome.
    ReleaseWorks,
    /// A holder was told of its loss before a rival was granted.
    ToldInTime,
}

use Promise::*;

/// The promises while servers change without loss.
const UNSEEN: &[Promise] = &[NoOverlap, InTurn, NoLoss, NothingVanished, NoError, ReleaseWorks];

/// The promises of failovers in agreement with the master.
const FAILED_OVER: &[Promise] = &[NoOverlap, InTurn, NoLoss, NothingVanished];

/// The promises when a replica has confirmed each grant and each renewal.
const CONFIRMED: &[Promise] = &[NoOverlap, NothingVanished];

/// The promises while a master is out of reach, or cannot confirm, for longer than a lease.
const UNREACHED: &[Promise] =
    &[NoOverlap, NothingVanished, OnlyErrors(&["Unavailable", "TimedOut"])];

/// Failovers without confirmation promise nothing of holders: what they break is counted.
const COUNTED: &[Promise] = &[TokensRise];

/// Two servers have a lock at the same time, and each gives out tokens of its own.
const TWO_HASHES: &[Promise] = &[];

/// The servers' default: no pause of a busy machine causes a failover.
const LONG: u32 = 15_000;

/// For failovers by order: a replica accepts no second order for four times as long.
const ORDERED: u32 = 3_000;

impl Row {
    /// What many rows have alike.
    fn usual() -> Row {
        Row {
            name: "",
            title: "",
            nemesis: Nemesis::Nothing,
            least: 300,
            smoke: 1,
            node_timeout: LONG,
            variants: vec![both(false, usual(0), UNSEEN)],
        }
    }
}

pub fn rows() -> Vec<Row> {
    vec![
        Row {
            name: "steady",
            title: "no fault",
            nemesis: Nemesis::Nothing,
            least: 1_000_000,
            smoke: 2_000,
            variants: vec![
                steady("1 lock, 90 % reads", 1, 90, 0),
                steady("1 lock, 50 % reads", 1, 50, 0),
                steady("100 locks, 90 % reads", 100, 90, 0),
                steady("100 locks, 50 % reads", 100, 50, 0),
                steady("10,000 locks, 90 % reads", 10_000, 90, 0),
                steady("10,000 locks, 50 % reads", 10_000, 50, 0),
                steady("100 locks, 90 % reads, cached", 100, 90, 8),
                steady("100 locks, 50 % reads, cached", 100, 50, 8),
                Variant {
                    name: "3 semaphores",
                    load: Load { tasks: 0, semaphores: 3, ..steady("", 1, 50, 0).load },
                    promises: UNSEEN,
                },
            ],
            ..Row::usual()
        },
        Row {
            name: "moves",
            title: "a slot moves key by key, and all nodes agree before the next move",
            nemesis: Nemesis::Moves,
            least: 2_000,
            smoke: 30,
            variants: vec![
                both(false, usual(0), UNSEEN),
                Variant { name: "semaphores", load: semaphores(0), promises: UNSEEN },
            ],
            ..Row::usual()
        },
        Row {
            name: "atomic",
            title: "a slot moves in one piece",
            nemesis: Nemesis::AtOnce,
            least: 500,
            smoke: 10,
            ..Row::usual()
        },
        Row {
            name: "drain",
            title: "a node joins and takes over a whole shard, and the shard's old node leaves",
            nemesis: Nemesis::Drain,
            least: 10,
            ..Row::usual()
        },
        Row {
            name: "failover",
            title: "a replica takes over by order",
            nemesis: Nemesis::FailOver,
            least: 300,
            smoke: 2,
            node_timeout: ORDERED,
            variants: vec![both(false, usual(0), FAILED_OVER)],
        },
        moved_and_failed_over(
            "move-failover-source",
            "a slot moves key by key, and the source's replica takes over by order, which knows of the move",
            Nemesis::MoveFailover(Some(Side::Source), Cause::Order),
            FAILED_OVER,
        ),
        moved_and_failed_over(
            "move-failover-target",
            "a slot moves key by key, and the target's replica takes over by order",
            Nemesis::MoveFailover(Some(Side::Target), Cause::Order),
            FAILED_OVER,
        ),
        moved_and_failed_over(
            "forgotten-move",
            "a slot moves key by key, and the source's replica takes over by order, which does not know of the move",
            Nemesis::ForgottenMove,
            TWO_HASHES,
        ),
        moved_and_failed_over(
            "atomic-failover",
            "a slot moves in one piece, and a replica of the source or the target takes over by order",
            Nemesis::AtomicFailover(None, Cause::Order),
            FAILED_OVER,
        ),
        Row {
            name: "move-kill",
            title: "a slot moves key by key, and the source or the target is killed (`kill -9`)",
            nemesis: Nemesis::MoveFailover(None, Cause::Kill),
            least: 50,
            smoke: 1,
            node_timeout: 1_000,
            variants: vec![both(true, usual(1), COUNTED)],
        },
        Row {
            name: "atomic-kill",
            title: "a slot moves in one piece, and the source or the target is killed (`kill -9`)",
            nemesis: Nemesis::AtomicFailover(None, Cause::Kill),
            least: 50,
            smoke: 1,
            node_timeout: 1_000,
            variants: vec![both(true, usual(1), COUNTED)],
        },
        Row {
            name: "cancelled-move",
            title: "a slot's keys move, and move back",
            nemesis: Nemesis::CancelledMove,
            least: 100,
            smoke: 3,
            variants: vec![both(false, usual(0), TWO_HASHES)],
            ..Row::usual()
        },
        Row {
            name: "cancelled-atomic-move",
            title: "a slot's move in one piece is cancelled while its keys are copied",
            nemesis: Nemesis::CancelledAtomicMove,
            least: 100,
            smoke: 3,
            ..Row::usual()
        },
        Row {
            name: "kill",
            title: "`kill -9` of a master",
            nemesis: Nemesis::Kill,
            least: 300,
            smoke: 1,
            node_timeout: 1_000,
            variants: vec![
                both(true, usual(1), CONFIRMED),
                on_disk(),
                Variant {
                    name: "replicas(1), semaphores",
                    load: semaphores(1),
                    promises: CONFIRMED,
                },
                unconfirmed(usual(0)),
            ],
        },
        Row {
            name: "restart",
            title: "`kill -9` of a master, and the same master back before a replica takes over",
            nemesis: Nemesis::Restart,
            least: 50,
            smoke: 1,
            variants: restarts(),
            ..Row::usual()
        },
        Row {
            name: "pause",
            title: "a master stops until a replica takes over, and goes on",
            nemesis: Nemesis::Pause,
            least: 300,
            smoke: 1,
            node_timeout: 1_000,
            variants: vec![both(true, usual(1), CONFIRMED), on_disk(), unconfirmed(usual(0))],
        },
        Row {
            name: "partition",
            title: "a partition cuts off a master and the clients beside it, and ends",
            nemesis: Nemesis::Partition,
            least: 300,
            smoke: 1,
            node_timeout: 1_000,
            variants: vec![
                both(true, brief(1), &[NoOverlap, NothingVanished, ToldInTime]),
                unconfirmed(brief(0)),
            ],
        },
        Row {
            name: "clients",
            title: "clients are killed, stopped, or their runtime stalls",
            nemesis: Nemesis::Clients,
            least: 500,
            smoke: 6,
            variants: vec![Variant {
                name: "",
                load: Load {
                    workers: 5,
                    tasks: 4,
                    lease: Duration::from_secs(1),
                    claim: Duration::from_secs(1),
                    keep: Duration::from_millis(500),
                    ..usual(0)
                },
                promises: &[NoOverlap, NothingVanished],
            }],
            ..Row::usual()
        },
        Row {
            name: "memory",
            title: "the masters' memory is full for half a second",
            nemesis: Nemesis::Memory,
            variants: vec![Variant {
                name: "",
                load: usual(0),
                promises: &[
                    NoOverlap,
                    NoLoss,
                    NothingVanished,
                    ReleaseWorks,
                    OnlyErrors(&["Rejected"]),
                ],
            }],
            ..Row::usual()
        },
        Row {
            name: "flush",
            title: "all servers forget their scripts",
            nemesis: Nemesis::Flush,
            smoke: 2,
            ..Row::usual()
        },
        Row {
            name: "permission-publish",
            title: "clients may not notify waiters (`SPUBLISH`) for half a second",
            nemesis: Nemesis::Permission("spublish"),
            ..Row::usual()
        },
        Row {
            name: "permission-set",
            title: "clients may not change a lock (`HSET`) for half a second",
            nemesis: Nemesis::Permission("hset"),
            // A release that hands the lock over needs the right too. If it is refused, the client
            // tries again, or the lease ends.
            variants: vec![both(
                false,
                usual(0),
                &[NoOverlap, NoLoss, NothingVanished, OnlyErrors(&["Rejected"])],
            )],
            ..Row::usual()
        },
        Row {
            name: "split-master",
            title: "two masters name each other as a slot's master",
            nemesis: Nemesis::SplitMaster,
            ..Row::usual()
        },
        Row {
            name: "skew",
            title: "servers' clocks differ by up to 400 ms while a slot moves and a replica takes over",
            nemesis: Nemesis::Skew,
            least: 300,
            smoke: 1,
            node_timeout: ORDERED,
            variants: vec![both(false, usual(0), &[NoOverlap, InTurn, NoLoss, NothingVanished])],
        },
        Row {
            name: "step",
            title: "a server's clock jumps by 4 to 9 s, and back",
            nemesis: Nemesis::Step,
            least: 50, // it promises nothing of holders
            smoke: 1,
            node_timeout: 2_000,
            variants: vec![both(false, usual(0), COUNTED)],
        },
        Row {
            node_timeout: ORDERED,
            ..stays(
                "cut-nodes",
                "all the time, a master cannot send to another one",
                StayingFault::CutNodes,
                both(false, staying(0), UNSEEN),
            )
        },
        stays(
            "cut-client",
            "all the time, a client and a master hear nothing of each other",
            StayingFault::CutClient(ClientCut::Both),
            both(false, staying(0), UNREACHED),
        ),
        stays(
            "deaf-client",
            "all the time, a client gets no reply of a master, which carries its calls out",
            StayingFault::CutClient(ClientCut::Replies),
            both(false, staying(0), UNREACHED),
        ),
        stays(
            "refused-client",
            "all the time, the connections of a client to a master end at once",
            StayingFault::CutClient(ClientCut::Refused),
            both(false, staying(0), UNREACHED),
        ),
        stays(
            "lag",
            "all the time, the replica of a master is stopped",
            StayingFault::Lag,
            both(true, staying(1), UNREACHED),
        ),
        stays(
            "clock",
            "all the time, a server's clock is 300 ms ahead",
            StayingFault::Clock,
            both(false, Load { lease: usual(0).lease, ..staying(0) }, UNSEEN),
        ),
        stays(
            "disk",
            "all the time, the disk of a master is full (`MISCONF`)",
            StayingFault::FullDisk,
            both(false, staying(0), &[NoOverlap, NothingVanished, OnlyErrors(&["Rejected"])]),
        ),
    ]
}

fn moved_and_failed_over(
    name: &'static str,
    title: &'static str,
    nemesis: Nemesis,
    promises: &'static [Promise],
) -> Row {
    Row {
        name,
        title,
        nemesis,
        least: 100,
        smoke: 2,
        node_timeout: ORDERED,
        variants: vec![both(false, usual(0), promises)],
    }
}

/// A row of a fault that stays. It counts the times that the fault was read back, every three
/// seconds. `staying::judge` checks what is promised of the locks that it does not touch.
fn stays(name: &'static str, title: &'static str, fault: StayingFault, variant: Variant) -> Row {
    Row {
        name,
        title,
        nemesis: Nemesis::Stays(fault),
        least: 200,
        smoke: 3,
        variants: vec![variant],
        ..Row::usual()
    }
}

/// Four processes: short holds on every shard, a third of them by cached handles; long holds, which
/// leaders renew; and a semaphore on every shard.
fn usual(replicas: u32) -> Load {
    Load {
        workers: 4,
        tasks: 6,
        cached: 2,
        names: 30,
        by_shard: true,
        keepers: 6,
        semaphores: 3,
        reads_percent: 50,
        replicas,
        fsync: false,
        log: Log::None,
        log_end: LogEnd::Whole,
        lease: Duration::from_secs(12),
        claim: Duration::from_secs(10),
        hold: Duration::from_millis(30),
        keep: Duration::from_secs(6),
        timeout: Duration::from_secs(60),
        call_timeout: Duration::from_secs(30),
        pause: Duration::from_millis(20),
    }
}

/// Leases that a partition may outlast, and holds that outlast the lease: without renewal, they end
/// in a loss.
fn brief(replicas: u32) -> Load {
    Load {
        lease: Duration::from_secs(5),
        keep: Duration::from_secs(10),
        claim: Duration::from_secs(2),
        ..usual(replicas)
    }
}

/// Leases that a fault which stays outlasts. Requests end soon, and a client does not repeat those
/// that fail all the time without a pause. Holds are long, so that the rate depends on them more
/// than on the processors.
fn staying(replicas: u32) -> Load {
    Load {
        lease: Duration::from_secs(4),
        claim: Duration::from_secs(1),
        hold: Duration::from_millis(100),
        keep: Duration::from_secs(1),
        timeout: Duration::from_secs(7),
        call_timeout: Duration::from_secs(7),
        pause: Duration::from_millis(200),
        ..usual(replicas)
    }
}

fn steady(name: &'static str, names: usize, reads_percent: u8, cached: usize) -> Variant {
    Variant {
        name,
        load: Load {
            names,
            reads_percent,
            workers: 3,
            tasks: 8,
            cached,
            by_shard: false,
            keepers: 0,
            semaphores: 0,
            hold: Duration::ZERO,
            keep: Duration::ZERO,
            ..usual(0)
        },
        promises: UNSEEN,
    }
}

/// Mostly permits. The few locks show that every shard works.
fn semaphores(replicas: u32) -> Load {
    Load { tasks: 3, cached: 0, names: 3, keepers: 0, semaphores: 12, ..usual(replicas) }
}

/// For servers that have `WAITAOF`.
fn on_disk() -> Variant {
    let load = Load { fsync: true, log: Log::Always, ..usual(1) };
    Variant { name: "replicas(1), fsync", load, promises: CONFIRMED }
}

/// By what the log of a master has, and where it ends when the master starts again.
fn restarts() -> Vec<Variant> {
    let variant = |name, load, (log, log_end), promises| Variant {
        name,
        load: Load { log, log_end, ..load },
        promises,
    };
    let cut = (Log::EverySec, LogEnd::OnDisk);
    let on_disk = Load { fsync: true, ..usual(0) };
    vec![
        variant("always", usual(0), (Log::Always, LogEnd::Whole), CONFIRMED),
        variant("always, half a command", usual(0), (Log::Always, LogEnd::HalfCommand), CONFIRMED),
        variant("everysec, power failure, fsync", on_disk, cut, CONFIRMED),
        variant("everysec", usual(0), (Log::EverySec, LogEnd::Whole), COUNTED),
        variant("everysec, power failure", usual(0), cut, COUNTED),
        variant("everysec, power failure, replicas(1)", usual(1), cut, COUNTED),
        variant("no log", usual(0), (Log::None, LogEnd::Whole), COUNTED),
        variant("no log, replicas(1)", usual(1), (Log::None, LogEnd::Whole), COUNTED),
    ]
}

fn unconfirmed(load: Load) -> Variant {
    Variant { name: "unconfirmed", load, promises: COUNTED }
}

fn both(confirmed: bool, load: Load, promises: &'static [Promise]) -> Variant {
    Variant { name: if confirmed { "replicas(1)" } else { "" }, load, promises }
}
