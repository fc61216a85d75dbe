//! The parameters of one run. The seed determines all of them, and a plan can be made smaller.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;
use rwlease::embedded::WaitSemantics;

/// Makes the kinds of faults, with their names in the counts.
macro_rules! faults {
    ($($(#[$doc:meta])+ $fault:ident: $name:literal;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[$doc])+ $fault,)+
        }

        impl Fault {
            pub const ALL: &[Fault] = &[$(Fault::$fault),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Fault::$fault => $name,)+
                }
            }
        }
    };
}

faults! {
    /// A request is lost, and its connection with it.
    LoseRequest: "request lost";
    /// A request is carried out, but its reply is lost, and the connection with it.
    LoseReply: "reply lost";
    /// A message takes longer than its sender waits for the reply, sometimes longer than a lease.
    Delay: "message delayed";
    /// A request is carried out twice.
    Double: "request doubled";
    /// A push or another notice is lost, and the connection with it.
    LosePush: "push lost";
    /// The connections of a client to a server are cut.
    Cut: "connection cut";
    /// A client is paused for a while.
    Pause: "client paused";
    /// A client stops forever.
    Crash: "client crashed";
    /// A caller drops its request.
    Cancel: "request cancelled";
    /// A guard is dropped and not released.
    Drop: "guard dropped";
    /// All connections of a server break.
    KillConnections: "connections killed";
    /// A slot moves to another master.
    Move: "slot moved";
    /// A server forgets its scripts.
    FlushScripts: "scripts flushed";
    /// A server's memory is full for a while.
    FullMemory: "memory full";
    /// A server reports for a while that the cluster is down.
    ClusterDown: "cluster down";
    /// A server is frozen for a while.
    Freeze: "server frozen";
    /// A server is killed, and started again with its data.
    Restart: "server restarted";
    /// A replica replaces a master, with all its writes.
    Failover: "failover";
    /// A master dies, and the replica that replaces it lacks the last writes.
    LossyFailover: "failover with lost writes";
    /// A replica replaces a master that continues to serve without knowing it.
    TwoMasters: "two masters";
    /// A master's replica receives nothing for a while.
    Lag: "replica lagged";
    /// A master dies after its replica has received nothing for a while, and that replica replaces
    /// it.
    LaggingFailover: "failover to a replica that lagged";
    /// A server's clock is set forward or back, by up to a minute.
    ClockStep: "clock set";
    /// The servers' clocks differ by seconds.
    Skew: "clocks seconds apart";
    /// A server dies, and a server of another cluster gets its address for a while.
    Stranger: "address of a stranger";
}

impl Fault {
    /// Whether it breaks an assumption of exclusion. Locks that it affects are judged by their
    /// tokens alone.
    pub fn is_outside_assumptions(self) -> bool {
        matches!(
            self,
            Fault::LossyFailover
                | Fault::TwoMasters
                | Fault::LaggingFailover
                | Fault::ClockStep
                | Fault::Skew
        )
    }

    /// Whether each call still runs at once and gets its answer.
    pub fn is_peaceful(self) -> bool {
        matches!(self, Fault::LosePush | Fault::Cancel | Fault::Drop | Fault::FlushScripts)
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub faults: BTreeSet<Fault>,
    pub clients: usize,
    /// Users of each client.
    pub users: usize,
    pub locks: usize,
    /// How long faults keep happening.
    pub length: Duration,
    /// The most by which a server's clock differs from the true time, without `Fault::Skew`.
    pub small_skew_ms: i64,
    /// The largest drift of a client's clock.
    pub drift_ppm: i32,
    /// The margin by which clients rely less long on a lease.
    pub margin: Duration,
    /// The claim window of pushed grants.
    pub window: Duration,
    /// The client's default lease.
    pub lease: Duration,
    /// The poll interval of a waiter, and its time to live in the queue without a poll.
    pub poll_interval: Duration,
    pub waiter_ttl: Duration,
    /// The most waiters in a queue.
    pub max_queue_len: u64,
    /// Whether masters often die while their replicas lag.
    pub is_about_replicas: bool,
    /// The share of requests that a replica must confirm.
    pub replicated: f64,
    /// The share of users that cache locks.
    pub caching: f64,
    /// The writes that the servers' `WAIT` covers.
    pub wait_covers: WaitSemantics,
    /// Judges as if no assumption had been broken.
    pub is_strict: bool,
    /// Its users acquire locks on most of three members, and only these are judged.
    pub is_quorum: bool,
    /// Scripts in place of the built-in ones.
    pub scripts: Option<PathBuf>,
    /// Keeps the whole history.
    pub tells_all: bool,
    /// Judges only the rules whose names begin with this.
    pub only: &'static str,
}

/// The shortest and the longest lease that users request.
pub const LEASES_MS: std::ops::Range<u64> = 600..2500;

/// The number of the semaphore among the locks.
pub const SEMAPHORE: usize = 1_000;

/// Small differences between a server's clock and the true time.
const SMALL_SKEWS_MS: std::ops::RangeInclusive<i64> = 0..=100;
const LARGE_SKEW_MS: i64 = 4000;

/// The least spare margin beyond the difference between two clocks: the client's drift during the
/// longest lease.
const LEAST_SPARE_MS: i64 = 1;

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed);
        // A few kinds of faults at a time find more than all at once. Some plans have all of them.
        let density = [0.2, 0.4, 0.7, 1.0][rng.usize(0..4)];
        let may_leave_assumptions = rng.u8(0..3) == 0;
        let faults: BTreeSet<Fault> = Fault::ALL
            .iter()
            .copied()
            .filter(|fault| {
                *fault != Fault::Stranger // drawn last
                    && rng.f64() < density
                    && (may_leave_assumptions || !fault.is_outside_assumptions())
            })
            .collect();
        let is_quorum = seed.is_multiple_of(16);
        let faults: BTreeSet<Fault> = faults
            .into_iter()
            .filter(|fault| !is_quorum || !fault.is_outside_assumptions())
            .collect();
        let is_about_replicas = seed % 8 == 5;
        let faults = match is_about_replicas {
            true => about_replicas(faults),
            false => faults,
        };
        let faults = match is_about_refusals(seed) {
            true => faults.into_iter().filter(|fault| fault.is_peaceful()).collect(),
            false => faults,
        };
        let small_skew_ms = rng.i64(SMALL_SKEWS_MS);
        // Half of the plans have no more margin than they need.
        let spare_ms = LEAST_SPARE_MS + [0, 0, 20, 90][rng.usize(0..4)];
        let poll_interval = Duration::from_millis(rng.u64(100..300));
        let mut plan = Plan {
            seed,
            is_quorum,
            clients: rng.usize(2..6),
            users: rng.usize(1..4),
            locks: rng.usize(1..5),
            length: Duration::from_millis(rng.u64(4_000..20_000)),
            small_skew_ms,
            drift_ppm: 300,
            margin: Duration::from_millis((2 * small_skew_ms + spare_ms).unsigned_abs()),
            window: Duration::from_millis(rng.u64(250..1_500)),
            lease: Duration::from_millis(rng.u64(1_000..3_000)),
            poll_interval,
            waiter_ttl: poll_interval.mul_f64(3.0 + 17.0 * rng.f64()),
            is_strict: false,
            scripts: None,
            tells_all: false,
            only: "",
            max_queue_len: if rng.u8(0..4) == 0 { 12 } else { 10_000 },
            is_about_replicas,
            replicated: match is_about_replicas {
                true => [0.5, 1.0][rng.usize(0..2)],
                false => [0.1, 0.1, 0.5][rng.usize(0..3)],
            },
            caching: [0.0, 0.5, 1.0][rng.usize(0..if is_about_refusals(seed) { 1 } else { 3 })],
            wait_covers: [WaitSemantics::AllWrites, WaitSemantics::OwnWrites][rng.usize(0..2)],
            faults,
        };
        if rng.u8(0..4) == 0 && !is_about_refusals(seed) {
            plan.faults.insert(Fault::Stranger);
        }
        plan
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// The numbers of the locks, and the semaphore's.
    pub fn all(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.locks).chain([SEMAPHORE])
    }

    /// The lower and the upper limit of the semaphore. In most runs they are equal, so that one
    /// excess permit is noticed.
    pub fn limits(&self) -> [u32; 2] {
        if self.seed.is_multiple_of(3) { [3, 4] } else { [3, 3] }
    }

    /// Whether no call is lost, late or in doubt, no client pauses, and no write is lost. Then a
    /// released lock is free.
    pub fn is_peaceful(&self) -> bool {
        self.faults.iter().all(|fault| fault.is_peaceful())
    }

    /// The most by which a server's clock differs from the true time.
    pub fn skew_ms(&self) -> i64 {
        match self.has(Fault::Skew) {
            true => LARGE_SKEW_MS,
            false => self.small_skew_ms,
        }
    }

    /// Whether two servers' clocks may differ by more than the margin.
    pub fn is_out_of_time(&self) -> bool {
        self.has(Fault::Skew) || self.has(Fault::ClockStep)
    }
}

/// Whether a run judges refused tries. Only if no client caches and no call is lost is it certain
/// which holders can have blocked them.
fn is_about_refusals(seed: u64) -> bool {
    seed % 16 == 9
}

/// Faults under which the leases that a replica has confirmed can be judged: no clocks that break
/// the assumptions, replicas that lag and take over, and calls that are sent again on another
/// connection.
fn about_replicas(faults: BTreeSet<Fault>) -> BTreeSet<Fault> {
    let mut faults = faults;
    faults.retain(|fault| !matches!(fault, Fault::ClockStep | Fault::Skew));
    faults.extend([Fault::Lag, Fault::LaggingFailover, Fault::LoseReply]);
    faults
}
