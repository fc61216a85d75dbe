//! The cost of a fleet, by formulas. A comment on each formula states its basis.
//!
//! The constants are the defaults of the library, and the network delay is that of the simulation.
//! Rates are per second, and of the whole cluster.

use super::simulation::Plan;

/// The pause between two polls at the head of a queue, in s. Each place behind it adds as much.
const POLL: f64 = 0.25;
/// How long a place in the queue lives without a poll, in s. Its waiter polls at least three times
/// in that time.
const WAITER_TTL: f64 = 10.0;
/// A random part shortens the pause before a poll, by a tenth on average.
const POLL_MEAN: f64 = 0.9;
/// The same for a renewal, which is due after a third of the lease.
const RENEWAL_MEAN: f64 = 0.95;
/// The average time between two fetches of the slot map without trouble (15 to 30), in s.
const REFRESH: f64 = 22.5;
/// The number of nodes that a client queries for one fetch.
pub const SAMPLE: f64 = 5.0;
/// The silence after which a connection for subscriptions is probed, in s: 10 s, checked once a
/// second.
const PROBE_AFTER: f64 = 10.5;
/// The average time between two queries for the slot map while a server does not answer (0.1 to
/// 0.2), in s.
const URGENT: f64 = 0.15;
/// The back-off of dials: the first and the longest pause, in s, and the average part of a pause
/// that the client waits.
const DIALS: (f64, f64, f64) = (0.02, 1.0, 0.75);
/// In s.
pub const ROUND_TRIP: f64 = 0.0005;
/// How long the simulation holds an uncontended lock, in s.
const UNCONTENDED_HOLD: f64 = 0.005;

/// A fleet, as numbers.
pub struct Model<'a> {
    pub plan: &'a Plan,
}

impl Model<'_> {
    pub fn masters(&self) -> f64 {
        f64::from(self.plan.masters)
    }

    pub fn clients(&self) -> f64 {
        self.plan.clients as f64
    }

    /// Tasks with contended locks: holders and waiters.
    fn tasks(&self) -> f64 {
        (self.plan.crowds * self.plan.crowd) as f64
    }

    pub fn waiters(&self) -> f64 {
        self.tasks() - self.plan.crowds as f64
    }

    pub fn holders(&self) -> f64 {
        self.clients() * self.plan.held as f64 + self.plan.crowds as f64
    }

    /// Pairs on uncontended locks. Each takes two round trips and the time between them.
    pub fn pairs(&self) -> f64 {
        match self.plan.pairs {
            pairs if pairs > 0.0 => {
                self.clients() / (1.0 / pairs + UNCONTENDED_HOLD + 2.0 * ROUND_TRIP)
            }
            _ => 0.0,
        }
    }

    /// Each guard renews after a third of its lease.
    pub fn renewals(&self) -> f64 {
        let interval = self.plan.lease.as_secs_f64() / 3.0 * RENEWAL_MEAN + ROUND_TRIP;
        self.clients() * self.plan.held as f64 / interval
    }

    /// A contended lock is handed over when a hold ends. The release and the push take one round
    /// trip.
    pub fn hand_overs(&self) -> f64 {
        self.plan.crowds as f64 / (self.plan.hold.as_secs_f64() + ROUND_TRIP)
    }

    /// A task that has released joins the queue again. The others poll, and poll less often further
    /// back.
    pub fn polls(&self) -> f64 {
        let places = self.plan.crowd.saturating_sub(1);
        let queue: f64 = (1..=places)
            .map(|place| {
                let interval = (POLL * place as f64).min(WAITER_TTL / 3.0);
                1.0 / (interval * POLL_MEAN + ROUND_TRIP)
            })
            .sum();
        self.plan.crowds as f64 * queue
    }

    /// Queries for the slot map, at all nodes.
    pub fn maps(&self) -> f64 {
        self.clients() * SAMPLE / REFRESH
    }

    /// The number of one client's locks.
    fn locks_per_client(&self) -> f64 {
        let names = if self.plan.pairs > 0.0 { self.plan.names } else { 0 };
        (self.plan.held + names) as f64 + self.tasks() / self.clients()
    }

    /// The number of masters that have some of `locks` random locks.
    fn masters_touched(&self, locks: f64) -> f64 {
        self.masters() * (1.0 - (1.0 - 1.0 / self.masters()).powf(locks))
    }

    /// The connections of one client for commands, and for subscriptions.
    pub fn connections(&self) -> (f64, f64) {
        let commands = self.masters_touched(self.locks_per_client());
        // Nodes that the client queries for the map, and that serve none of its locks.
        let others = SAMPLE.min(2.0 * self.masters()) * (1.0 - commands / self.masters());
        (commands + others, self.masters_touched(self.tasks() / self.clients()))
    }

    /// One channel for each client and each slot with a waiter.
    pub fn channels(&self) -> f64 {
        self.tasks()
    }

    /// The client probes a connection for subscriptions after a silence. A grant for its tasks ends
    /// the silence.
    pub fn probes(&self) -> f64 {
        let links = self.connections().1;
        let grants = self.plan.crowd as f64 * self.plan.hold.as_secs_f64();
        let between = grants * links / (self.tasks() / self.clients()).max(links);
        self.clients() * links * (between / PROBE_AFTER).floor() / between
    }

    /// Each fetch of the map queries a seed, even one that the client never dialled. In the
    /// simulation all servers are seeds.
    pub fn seeds(&self) -> f64 {
        let servers = 2.0 * self.masters();
        self.clients() / REFRESH * (1.0 - self.connections().0 / servers)
    }

    /// The clients that call a master while it is down.
    fn callers(&self, outage: f64) -> f64 {
        let calls = 2.0 * self.pairs() + self.renewals() + self.polls();
        let each = calls / self.clients() / self.masters();
        self.clients() * (1.0 - (-each * outage).exp())
    }

    /// Queries for the slot map from the death of a master until its replica serves. The clients
    /// that call the master begin at random times.
    pub fn maps_in_outage(&self, outage: f64) -> f64 {
        self.callers(outage) * (outage / 2.0 / URGENT + SAMPLE)
    }

    /// Clients that eventually connect to the new master.
    pub fn newcomers(&self) -> f64 {
        self.clients() * self.masters_touched(self.locks_per_client()) / self.masters()
    }

    /// Dials to the dead master, and then to its successor.
    pub fn dials_in_failover(&self, outage: f64) -> f64 {
        let attempts = |until: f64| {
            let (first, most, mean) = DIALS;
            let (mut at, mut pause, mut count) = (0.0, first, 0.0);
            while at < until {
                count += 1.0;
                at += pause * mean;
                pause = (2.0 * pause).min(most);
            }
            count
        };
        let links = self.tasks() / self.masters();
        self.callers(outage) * attempts(outage / 2.0)
            + links * (attempts(outage) + 1.0)
            + self.newcomers()
    }

    /// Subscriptions that clients renew after a failover.
    pub fn subscriptions_in_failover(&self) -> f64 {
        self.channels() / self.masters()
    }

    /// Slots move at a steady pace, and each fetch of the map corrects all earlier moves. So the
    /// share of slots for which a client's map is wrong grows with the age of the map, until a call
    /// hits one of them. The renewals of one client are simultaneous, and cause one fetch together.
    /// The release after an acquire hits none, nor does the next poll.
    pub fn moved(&self, slots: f64, length: f64) -> Moved {
        const STEP: f64 = 0.01;
        let one = |all: f64| all / self.clients();
        let (single, held) = (one(self.pairs() + self.hand_overs()), self.plan.held as f64);
        let rounds = one(self.renewals()) / held.max(1.0);
        let (mut fresh, mut age, mut calls) = (1.0, 0.0, 0.0);
        let (mut mean, mut square) = (0.0, 0.0);
        while fresh > 1e-6 {
            let wrong = (slots / length * age / 16_384.0).min(1.0);
            let met = single * wrong + rounds * (1.0 - (1.0 - wrong).powf(held));
            calls += fresh * STEP * (single + rounds * held) * wrong;
            // A regular fetch corrects the map as well.
            let lost = fresh * (1.0 - (-(met + 1.0 / REFRESH) * STEP).exp());
            mean += fresh * STEP;
            square += 2.0 * age * fresh * STEP;
            (fresh, age) = (fresh - lost, age + STEP);
        }
        // The first map is new when the first slot moves, which matters if few fetches follow.
        let ends = length / mean + (square / mean / mean - 2.0) / 2.0;
        let fetches = self.clients() * (ends - length / REFRESH).max(0.0);
        Moved { calls: self.clients() * calls * ends.max(0.0), fetches }
    }

    /// After a move, a client calls another master, to which it may have no connection yet. Each
    /// fetch of the map also dials a seed.
    pub fn dials_in_resharding(&self, slots: f64, fetches: f64) -> f64 {
        let connected = self.connections().0;
        let locks = self.clients() * self.locks_per_client() * slots / 16_384.0;
        locks * (1.0 - connected / self.masters()).max(0.0)
            + fetches * (1.0 - connected / self.masters() / 2.0)
    }

    /// Clients renew the subscription of each channel whose slot moves.
    pub fn subscriptions_in_resharding(&self, slots: f64) -> f64 {
        self.channels() * slots / 16_384.0
    }
}

/// The effect of moving slots on clients.
pub struct Moved {
    /// Calls that MOVED answers.
    pub calls: f64,
    /// The fetches of the slot map that they cause, each from several nodes.
    pub fetches: f64,
}
