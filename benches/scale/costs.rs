//! The tables of the page: the model's figures for large fleets.

use std::time::Duration;

use super::grouped;
use super::inputs::{Inputs, SIZES};
use super::model::{Model, SAMPLE};
use super::simulation::Plan;
use super::table::Table;

/// The largest fleet on the page.
pub const CLIENTS: usize = 100_000;
/// From the death of a master until its replica serves.
pub const OUTAGE: Duration = Duration::from_secs(3);
/// The share of a core that the locks may use. The rest is for what the model leaves out.
const BUSY: f64 = 0.6;
/// The default limit of a server's connections (`maxclients`).
const MOST_CONNECTIONS: f64 = 10_000.0;
/// A tenth of the slots moves in this time, however many clients there are.
const RESHARDING: f64 = 60.0;
const MOVED: f64 = 1_638.0;

/// The load of each client of the fleets on the page.
pub fn reference(masters: u16, clients: usize) -> Plan {
    Plan {
        seed: 1,
        masters,
        clients,
        held: 20,
        pairs: 2.0,
        names: 50,
        crowds: clients / 5,
        crowd: 10,
        hold: Duration::from_secs(2),
        lease: Duration::from_secs(30),
    }
}

/// The costs of one master, and of one client.
pub struct Costs<'a> {
    inputs: &'a Inputs,
    model: Model<'a>,
    size: usize,
}

type Line<'a> = (&'static str, Box<dyn Fn(&Costs<'_>) -> f64 + 'a>);

fn line<'a>(name: &'static str, cost: impl Fn(&Costs<'_>) -> f64 + 'a) -> Line<'a> {
    (name, Box::new(cost))
}

/// A table with a column for each number of masters.
fn table(head: &str, inputs: &Inputs, lines: Vec<Line<'_>>) -> Table {
    let heads = SIZES.map(|size| format!("{} masters", grouped(f64::from(size))));
    let mut table = Table::new(&[head, &heads[0], &heads[1], &heads[2]]);
    let plans = SIZES.map(|masters| reference(masters, CLIENTS));
    let costs: Vec<Costs<'_>> = plans
        .iter()
        .enumerate()
        .map(|(size, plan)| Costs { inputs, model: Model { plan }, size })
        .collect();
    for (name, cost) in lines {
        let cells = costs.iter().map(|costs| format_value(cost(costs)));
        table.add(std::iter::once(name.to_string()).chain(cells));
    }
    table
}

fn format_value(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { grouped(value) }
}

impl Costs<'_> {
    fn per_master(&self, all: f64) -> f64 {
        all / self.model.masters()
    }

    /// Per server, as each master has a replica that also answers queries for the slot map.
    fn per_server(&self, all: f64) -> f64 {
        all / self.model.masters() / 2.0
    }

    /// The share of a core, in percent, for `rate` commands a second of `micros` µs each.
    fn share(rate: f64, micros: f64) -> f64 {
        rate * micros / 1e4
    }

    fn pairs(&self) -> f64 {
        let micros = self.inputs.take.value + self.inputs.release.value;
        Self::share(self.per_master(self.model.pairs()), micros + 2.0 * self.inputs.socket.value)
    }

    fn renewals(&self) -> f64 {
        let micros = self.inputs.renew.value + self.inputs.socket.value;
        Self::share(self.per_master(self.model.renewals()), micros)
    }

    fn polls(&self) -> f64 {
        let micros = self.inputs.poll.value + self.inputs.socket.value;
        Self::share(self.per_master(self.model.polls()), micros)
    }

    fn hand_overs(&self) -> f64 {
        let Inputs { join, handoff: hand_over, renew, socket, .. } = self.inputs;
        let micros = join.value + hand_over.value + renew.value + 3.0 * socket.value;
        Self::share(self.per_master(self.model.hand_overs()), micros)
    }

    fn maps(&self) -> f64 {
        Self::share(self.per_server(self.model.maps()), self.map())
    }

    fn map(&self) -> f64 {
        self.inputs.maps[self.size].value + self.inputs.socket.value
    }

    fn busy(&self) -> f64 {
        self.pairs() + self.renewals() + self.polls() + self.hand_overs() + self.maps()
    }

    /// Connections of both kinds at one master.
    fn connections(&self) -> f64 {
        let (commands, subscriptions) = self.model.connections();
        self.per_master(self.model.clients() * (commands + subscriptions))
    }

    fn lock_bytes(&self) -> f64 {
        let Inputs { held_lock, idle_lock, waiter, .. } = self.inputs;
        // An idle lock is kept until 10 to 20 s after its last lease would have ended.
        let idle = self.model.clients() * self.model.plan.names as f64;
        self.per_master(
            self.model.holders() * held_lock.value
                + idle * idle_lock.value
                + self.model.waiters() * waiter.value,
        )
    }

    fn connection_bytes(&self) -> f64 {
        self.connections() * self.inputs.connection.value
            + self.per_master(self.model.channels()) * self.inputs.channel.value
    }

    fn client_connections(&self) -> f64 {
        let (commands, subscriptions) = self.model.connections();
        commands + subscriptions
    }

    fn client_bytes(&self) -> f64 {
        self.inputs.client.value
            + self.client_connections() * self.inputs.client_connection.value
            + self.model.plan.held as f64 * self.inputs.guard.value
    }
}

/// The uncontended pairs per second that one master can serve, if it does nothing else.
pub fn capacity(inputs: &Inputs) -> Table {
    let of = |micros: f64| grouped(BUSY * 1e6 / micros);
    let socket = inputs.socket.value;
    let mut table = Table::new(&["of one master, a second", "at 60 % of a core"]);
    let pair = inputs.take.value + inputs.release.value + 2.0 * socket;
    let hand_over = inputs.join.value + inputs.handoff.value + inputs.renew.value + 3.0 * socket;
    table.add(["pairs of taking and giving back".into(), of(pair)]);
    table.add(["renewals, if they came one by one".into(), of(inputs.renew.value + socket)]);
    table.add(["polls".into(), of(inputs.poll.value + socket)]);
    table.add(["hand-overs: release, claim, join again".into(), of(hand_over)]);
    table.add(["dials".into(), of(inputs.dial.value)]);
    table.add(["SSUBSCRIBEs".into(), of(inputs.subscribe.value)]);
    table
}

pub fn steady(inputs: &Inputs) -> Table {
    table(
        "of one master, 100,000 clients",
        inputs,
        vec![
            line("pairs a second", |it| it.per_master(it.model.pairs())),
            line("renewals a second", |it| it.per_master(it.model.renewals())),
            line("polls a second", |it| it.per_master(it.model.polls())),
            line("hand-overs a second", |it| it.per_master(it.model.hand_overs())),
            line("slot maps a second", |it| it.per_server(it.model.maps())),
            line("of a core for pairs, %", |it| it.pairs()),
            line("for renewals, %", |it| it.renewals()),
            line("for polls, %", |it| it.polls()),
            line("for hand-overs, %", |it| it.hand_overs()),
            line("for slot maps, %", |it| it.maps()),
            line("of a core for all, %", |it| it.busy()),
            line("connections", |it| it.connections()),
            line("subscribed channels", |it| it.per_master(it.model.channels())),
            line("MB of locks", |it| it.lock_bytes() / 1e6),
            line("MB of connections and channels", |it| it.connection_bytes() / 1e6),
        ],
    )
}

pub fn client_table(inputs: &Inputs) -> Table {
    table(
        "of one client",
        inputs,
        vec![
            line("connections for commands", |it| it.model.connections().0),
            line("connections for subscriptions", |it| it.model.connections().1),
            line("MB of memory", |it| it.client_bytes() / 1e6),
            line("KB/s received for slot maps", |it| {
                it.inputs.map_bytes[it.size].value * it.model.maps() / it.model.clients() / 1e3
            }),
        ],
    )
}

pub fn client_limit_table(inputs: &Inputs) -> Table {
    // All rates and connections grow linearly with the clients.
    let clients = CLIENTS as f64;
    table(
        "the most clients by",
        inputs,
        vec![
            line("60 % of a core of each master", move |it| clients * BUSY * 100.0 / it.busy()),
            line("10,000 connections to each server", move |it| {
                clients * MOST_CONNECTIONS / it.connections()
            }),
            line("10,000 connections to those that all dial at their start", |_| MOST_CONNECTIONS),
            line("1 GB of connections at each master", move |it| {
                clients * 1e9 / it.connection_bytes()
            }),
        ],
    )
}

pub fn storms(inputs: &Inputs) -> Table {
    let outage = OUTAGE.as_secs_f64();
    table(
        "a master dies, 3 s; 100,000 clients",
        inputs,
        vec![
            line("slot maps a second of each other server", move |it| {
                it.per_server(it.model.maps_in_outage(outage)) / outage
            }),
            line("of a core for them, %", move |it| {
                Costs::share(it.per_server(it.model.maps_in_outage(outage)) / outage, it.map())
            }),
            line("clients that dial the new master", |it| it.model.newcomers()),
            line("its time for these dials, s", |it| {
                it.model.newcomers() * it.inputs.dial.value / 1e6
            }),
            line("SSUBSCRIBEs at the new master", |it| it.model.subscriptions_in_failover()),
            line("its time for them, s", |it| {
                it.model.subscriptions_in_failover() * it.inputs.subscribe.value / 1e6
            }),
        ],
    )
}

pub fn resharding(inputs: &Inputs) -> Table {
    table(
        "1,638 slots move in 60 s; 100,000 clients",
        inputs,
        vec![
            line("MOVED of one client", |it| {
                it.model.moved(MOVED, RESHARDING).calls / it.model.clients()
            }),
            line("slot maps a second of each server", |it| {
                it.per_server(it.model.moved(MOVED, RESHARDING).fetches * SAMPLE) / RESHARDING
            }),
            line("of a core for them, %", |it| {
                let maps = it.model.moved(MOVED, RESHARDING).fetches * SAMPLE;
                Costs::share(it.per_server(maps) / RESHARDING, it.map())
            }),
            line("SSUBSCRIBEs of all", |it| it.model.subscriptions_in_resharding(MOVED)),
        ],
    )
}
