//! The tables of the page.

use common::Table;

use crate::format_value;
use crate::inputs::{
    CHANNEL, CLIENT, CLIENT_CONNECTION, COMMAND, CONNECTION, DIAL, GUARD, HAND_OVER, HELD_LOCK,
    IDLE_LOCK, Inputs, JOIN, MAP_BYTES, MAPS, POLL, RELEASE, RENEW, SIZES, SUBSCRIBE, TAKE, WAITER,
};
use crate::model::{CLIENTS, HELD, Model, NAMES, SAMPLE};

/// From the death of a master until its replica serves, in s.
const OUTAGE: f64 = 3.0;
/// The share of a core that the locks may use, in percent. The rest is for what the model leaves
/// out.
const BUSY: f64 = 60.0;
/// The default limit of a server's connections (`maxclients`).
const MOST_CONNECTIONS: f64 = 10_000.0;
/// A tenth of the slots moves in this time, in s, however many clients there are.
const RESHARDING: f64 = 60.0;
const MOVED: f64 = 1_638.0;

/// The costs of one master, and of one client.
struct Costs<'a> {
    inputs: &'a Inputs,
    model: Model,
    /// The index of its number of masters in [`SIZES`].
    size: usize,
}

type Line = (&'static str, fn(&Costs<'_>) -> f64);

pub fn all(inputs: &Inputs) -> Vec<(&'static str, Table)> {
    vec![
        ("capacity", capacity(inputs)),
        ("steady", by_size(inputs, "of one master, 100,000 clients", &STEADY)),
        ("a client", by_size(inputs, "of one client", &CLIENT_LINES)),
        ("the most clients", by_size(inputs, "the most clients by", &LIMITS)),
        ("failover", by_size(inputs, "a master dies, 3 s; 100,000 clients", &FAILOVER)),
        ("resharding", by_size(inputs, "1,638 slots move in 60 s; 100,000 clients", &MOVES)),
    ]
}

/// The rates that one master can serve if it does nothing else.
fn capacity(inputs: &Inputs) -> Table {
    let mut table = Table::new(&["of one master, a second", "at 60 % of a core"]);
    for (name, micros) in [
        ("pairs of taking and giving back", pair(inputs)),
        ("renewals, if they came one by one", command(inputs, RENEW)),
        ("polls", command(inputs, POLL)),
        ("hand-overs: release, claim, join again", hand_over(inputs)),
        ("dials", inputs.of(DIAL)),
        ("SSUBSCRIBEs", inputs.of(SUBSCRIBE)),
    ] {
        table.add([name.into(), format_value(BUSY * 1e4 / micros, 10.0)]);
    }
    table
}

/// The time of a command and its script.
fn command(inputs: &Inputs, script: &str) -> f64 {
    inputs.of(script) + inputs.of(COMMAND)
}

fn pair(inputs: &Inputs) -> f64 {
    command(inputs, TAKE) + command(inputs, RELEASE)
}

fn hand_over(inputs: &Inputs) -> f64 {
    command(inputs, JOIN) + command(inputs, HAND_OVER) + command(inputs, RENEW)
}

/// A table with a column for each number of masters.
fn by_size(inputs: &Inputs, corner: &str, lines: &[Line]) -> Table {
    let mut table = Table::new(&[corner]);
    let sizes = SIZES.map(f64::from);
    table.head.extend(sizes.map(|masters| format!("{} masters", format_value(masters, 1.0))));
    for (name, cost) in lines {
        let cells = sizes.iter().enumerate().map(|(size, &masters)| {
            format_value(cost(&Costs { inputs, model: Model { masters }, size }), 10.0)
        });
        table.add([name.to_string()].into_iter().chain(cells));
    }
    table
}

const STEADY: [Line; 15] = [
    ("pairs a second", |it| it.per_master(it.model.pairs())),
    ("renewals a second", |it| it.per_master(it.model.renewals())),
    ("polls a second", |it| it.per_master(it.model.polls())),
    ("hand-overs a second", |it| it.per_master(it.model.hand_overs())),
    ("slot maps a second", |it| it.per_server(it.model.maps())),
    ("of a core for pairs, %", |it| it.pairs()),
    ("for renewals, %", |it| it.renewals()),
    ("for polls, %", |it| it.polls()),
    ("for hand-overs, %", |it| it.hand_overs()),
    ("for slot maps, %", |it| it.for_maps(it.model.maps())),
    ("of a core for all, %", |it| it.busy()),
    ("connections", |it| it.connections()),
    ("subscribed channels", |it| it.per_master(it.model.channels())),
    ("MB of locks", |it| it.lock_bytes() / 1e6),
    ("MB of connections and channels", |it| it.connection_bytes() / 1e6),
];

const CLIENT_LINES: [Line; 4] = [
    ("connections for commands", |it| it.model.connections().0),
    ("connections for subscriptions", |it| it.model.connections().1),
    ("MB of memory", |it| it.client_bytes() / 1e6),
    ("KB/s received for slot maps", |it| {
        it.inputs.of(MAP_BYTES[it.size]) * it.model.maps() / CLIENTS / 1e3
    }),
];

/// All rates and connections grow linearly with the clients.
const LIMITS: [Line; 4] = [
    ("60 % of a core of each master", |it| CLIENTS * BUSY / it.busy()),
    ("10,000 connections to each server", |it| CLIENTS * MOST_CONNECTIONS / it.connections()),
    ("10,000 connections to those that all dial at their start", |_| MOST_CONNECTIONS),
    ("1 GB of connections at each master", |it| CLIENTS * 1e9 / it.connection_bytes()),
];

const FAILOVER: [Line; 6] = [
    ("slot maps a second of each other server", |it| {
        it.per_server(it.model.maps_in_outage(OUTAGE)) / OUTAGE
    }),
    ("of a core for them, %", |it| it.for_maps(it.model.maps_in_outage(OUTAGE) / OUTAGE)),
    ("clients that dial the new master", |it| it.model.newcomers()),
    ("its time for these dials, s", |it| it.model.newcomers() * it.inputs.of(DIAL) / 1e6),
    ("SSUBSCRIBEs at the new master", |it| it.per_master(it.model.channels())),
    ("its time for them, s", |it| {
        it.per_master(it.model.channels()) * it.inputs.of(SUBSCRIBE) / 1e6
    }),
];

const MOVES: [Line; 4] = [
    ("MOVED of one client", |it| it.model.moved(MOVED, RESHARDING).calls / CLIENTS),
    ("slot maps a second of each server", |it| it.per_server(it.maps_in_resharding())),
    ("of a core for them, %", |it| it.for_maps(it.maps_in_resharding())),
    ("SSUBSCRIBEs of all", |it| it.model.subscriptions_in_resharding(MOVED)),
];

impl Costs<'_> {
    fn per_master(&self, all: f64) -> f64 {
        all / self.model.masters
    }

    /// Per server, as each master has a replica that also answers queries for the slot map.
    fn per_server(&self, all: f64) -> f64 {
        all / self.model.masters / 2.0
    }

    /// The share of a master's core, in percent, for `rate` calls a second of `micros` µs each.
    fn share(&self, rate: f64, micros: f64) -> f64 {
        self.per_master(rate) * micros / 1e4
    }

    fn pairs(&self) -> f64 {
        self.share(self.model.pairs(), pair(self.inputs))
    }

    fn renewals(&self) -> f64 {
        self.share(self.model.renewals(), command(self.inputs, RENEW))
    }

    fn polls(&self) -> f64 {
        self.share(self.model.polls(), command(self.inputs, POLL))
    }

    fn hand_overs(&self) -> f64 {
        self.share(self.model.hand_overs(), hand_over(self.inputs))
    }

    /// The share of a server's core for so many queries a second at all servers.
    fn for_maps(&self, rate: f64) -> f64 {
        self.share(rate / 2.0, command(self.inputs, MAPS[self.size]))
    }

    fn busy(&self) -> f64 {
        self.pairs()
            + self.renewals()
            + self.polls()
            + self.hand_overs()
            + self.for_maps(self.model.maps())
    }

    fn maps_in_resharding(&self) -> f64 {
        self.model.moved(MOVED, RESHARDING).fetches * SAMPLE / RESHARDING
    }

    /// Connections of both kinds at one master.
    fn connections(&self) -> f64 {
        let (commands, subscriptions) = self.model.connections();
        self.per_master(CLIENTS * (commands + subscriptions))
    }

    fn lock_bytes(&self) -> f64 {
        // An idle lock is kept until 10 to 20 s after its last lease would have ended.
        let held = self.model.holders() * self.inputs.of(HELD_LOCK);
        let idle = CLIENTS * NAMES * self.inputs.of(IDLE_LOCK);
        self.per_master(held + idle + self.model.waiters() * self.inputs.of(WAITER))
    }

    fn connection_bytes(&self) -> f64 {
        self.connections() * self.inputs.of(CONNECTION)
            + self.per_master(self.model.channels()) * self.inputs.of(CHANNEL)
    }

    fn client_bytes(&self) -> f64 {
        let (commands, subscriptions) = self.model.connections();
        self.inputs.of(CLIENT)
            + (commands + subscriptions) * self.inputs.of(CLIENT_CONNECTION)
            + HELD * self.inputs.of(GUARD)
    }
}
