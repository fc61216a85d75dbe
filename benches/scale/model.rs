//! The rates and numbers of a fleet, by formulas. A comment on each formula states its basis.
//!
//! The constants are the defaults of the library, and the load of the fleet in `docs/scale.md`.
//! Times are in seconds. Rates are per second, and of the whole cluster.

pub const CLIENTS: f64 = 100_000.0;
/// Locks that each client holds all the time.
pub const HELD: f64 = 20.0;
/// Uncontended pairs that each client makes per second, and the number of their locks.
const PAIRS: f64 = 2.0;
pub const NAMES: f64 = 50.0;
/// Contended locks, and the tasks that contend for each of them: one holds it, the others wait.
const CROWDS: f64 = CLIENTS / 5.0;
const CROWD: f64 = 10.0;
const TASKS: f64 = CROWDS * CROWD;
const HOLD: f64 = 2.0;
const LEASE: f64 = 30.0;

/// The pause between two polls at the head of a queue. Each place behind it adds as much.
const POLL: f64 = 0.25;
/// How long a place in the queue lives without a poll. Its waiter polls at least three times in
/// that time.
const WAITER_TTL: f64 = 10.0;
/// A random part shortens the pause before a poll, by a tenth on average.
const POLL_MEAN: f64 = 0.9;
/// The same for a renewal, which is due after a third of the lease.
const RENEWAL_MEAN: f64 = 0.95;
/// The average time between two fetches of the slot map without trouble (15 to 30).
const REFRESH: f64 = 22.5;
/// The number of nodes that a client queries for one fetch.
pub const SAMPLE: f64 = 5.0;
/// The average time between two queries for the slot map while a server does not answer (0.1 to
/// 0.2).
const URGENT: f64 = 0.15;
const ROUND_TRIP: f64 = 0.0005;
const UNCONTENDED_HOLD: f64 = 0.005;
const SLOTS: f64 = 16_384.0;

/// The fleet on a cluster of so many masters, with a replica each.
pub struct Model {
    pub masters: f64,
}

impl Model {
    /// Each pair takes two round trips and the time between them.
    pub fn pairs(&self) -> f64 {
        CLIENTS / (1.0 / PAIRS + UNCONTENDED_HOLD + 2.0 * ROUND_TRIP)
    }

    /// Each guard renews after a third of its lease.
    pub fn renewals(&self) -> f64 {
        CLIENTS * HELD / (LEASE / 3.0 * RENEWAL_MEAN + ROUND_TRIP)
    }

    /// A contended lock is handed over when a hold ends. The release and the push take one round
    /// trip.
    pub fn hand_overs(&self) -> f64 {
        CROWDS / (HOLD + ROUND_TRIP)
    }

    /// A task that has released joins the queue again. The others poll, and poll less often further
    /// back.
    pub fn polls(&self) -> f64 {
        let interval = |place: f64| (POLL * place).min(WAITER_TTL / 3.0) * POLL_MEAN + ROUND_TRIP;
        let queue: f64 = (1..CROWD as u32).map(|place| 1.0 / interval(f64::from(place))).sum();
        CROWDS * queue
    }

    /// Queries for the slot map, at all nodes.
    pub fn maps(&self) -> f64 {
        CLIENTS * SAMPLE / REFRESH
    }

    pub fn holders(&self) -> f64 {
        CLIENTS * HELD + CROWDS
    }

    pub fn waiters(&self) -> f64 {
        TASKS - CROWDS
    }

    /// One channel for each client and each slot with a waiter.
    pub fn channels(&self) -> f64 {
        TASKS
    }

    /// The number of masters that have some of `locks` random locks.
    fn masters_touched(&self, locks: f64) -> f64 {
        self.masters * (1.0 - (1.0 - 1.0 / self.masters).powf(locks))
    }

    /// The masters that have some lock of one client.
    fn masters_of_client(&self) -> f64 {
        self.masters_touched(HELD + NAMES + TASKS / CLIENTS)
    }

    /// The connections of one client for commands, and for subscriptions.
    pub fn connections(&self) -> (f64, f64) {
        let commands = self.masters_of_client();
        // Nodes that the client queries for the map, and that serve none of its locks.
        let others = SAMPLE.min(2.0 * self.masters) * (1.0 - commands / self.masters);
        (commands + others, self.masters_touched(TASKS / CLIENTS))
    }

    /// Queries for the slot map from the death of a master until its replica serves. Clients that
    /// call the master begin at random times.
    pub fn maps_in_outage(&self, outage: f64) -> f64 {
        let calls = (2.0 * self.pairs() + self.renewals() + self.polls()) / CLIENTS / self.masters;
        let callers = CLIENTS * (1.0 - (-calls * outage).exp());
        callers * (outage / 2.0 / URGENT + SAMPLE)
    }

    /// Clients that eventually connect to the new master.
    pub fn newcomers(&self) -> f64 {
        CLIENTS * self.masters_of_client() / self.masters
    }

    /// Slots move at a steady pace, and each fetch of the map corrects all earlier moves. So the
    /// share of slots for which a client's map is wrong grows with the age of the map, until a call
    /// hits one of them. The renewals of one client are simultaneous, and cause one fetch together.
    /// The release after an acquire hits none, nor does the next poll.
    pub fn moved(&self, slots: f64, length: f64) -> Moved {
        const STEP: f64 = 0.01;
        let single = (self.pairs() + self.hand_overs()) / CLIENTS;
        let rounds = self.renewals() / CLIENTS / HELD;
        let (mut fresh, mut age, mut calls) = (1.0, 0.0, 0.0);
        let (mut mean, mut square) = (0.0, 0.0);
        while fresh > 1e-6 {
            let wrong = (slots / length * age / SLOTS).min(1.0);
            let met = single * wrong + rounds * (1.0 - (1.0 - wrong).powf(HELD));
            calls += fresh * STEP * (single + rounds * HELD) * wrong;
            // A regular fetch corrects the map as well.
            let lost = fresh * (1.0 - (-(met + 1.0 / REFRESH) * STEP).exp());
            mean += fresh * STEP;
            square += 2.0 * age * fresh * STEP;
            (fresh, age) = (fresh - lost, age + STEP);
        }
        // The first map is new when the first slot moves, which matters if few fetches follow.
        let ends = length / mean + (square / mean / mean - 2.0) / 2.0;
        let fetches = CLIENTS * (ends - length / REFRESH).max(0.0);
        Moved { calls: CLIENTS * calls * ends.max(0.0), fetches }
    }

    /// Clients renew the subscription of each channel whose slot moves.
    pub fn subscriptions_in_resharding(&self, slots: f64) -> f64 {
        self.channels() * slots / SLOTS
    }
}

/// The effect of moving slots on clients.
pub struct Moved {
    /// Calls that MOVED answers.
    pub calls: f64,
    /// The fetches of the slot map that they cause, each from several nodes.
    pub fetches: f64,
}
