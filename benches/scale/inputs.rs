//! All input figures of the model.

use super::table::Table;

/// A figure: its name, its value, and the bench that prints it.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub name: &'static str,
    pub value: f64,
    pub source: &'static str,
}

/// Times in microseconds, sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Inputs {
    pub take: Input,
    pub give_back: Input,
    pub renew: Input,
    pub join: Input,
    pub poll: Input,
    pub hand_over: Input,
    pub idle_lock: Input,
    pub held_lock: Input,
    pub reader: Input,
    pub waiter: Input,
    pub guard: Input,
    pub socket: Input,
    pub dial: Input,
    pub subscribe: Input,
    pub maps: [Input; 3],
    pub map_bytes: [Input; 3],
    pub connection: Input,
    pub channel: Input,
    pub client: Input,
    pub client_connection: Input,
}

const SCRIPTS: &str = "scripts";
const RENEWAL: &str = "renewal";
const SCALE: &str = "scale";

/// The numbers of masters for which maps are measured and tables are printed.
pub const SIZES: [u16; 3] = [10, 100, 1_000];

impl Inputs {
    /// The figures of other benches, copied by hand from `docs/performance.md`. This bench measures
    /// the others.
    pub const fn of_other_benches() -> Inputs {
        const fn input(name: &'static str, value: f64, source: &'static str) -> Input {
            Input { name, value, source }
        }
        const fn own(name: &'static str) -> Input {
            input(name, 0.0, SCALE)
        }
        Inputs {
            take: input("take a free lock to write, script, µs", 7.0, SCRIPTS),
            give_back: input("give it back, script, µs", 5.2, SCRIPTS),
            renew: input("renew a lease, script, µs", 5.9, SCRIPTS),
            join: input("join the queue, script, µs", 33.4, SCRIPTS),
            poll: input("poll, script, µs", 25.4, SCRIPTS),
            hand_over: input("release and hand over, script, µs", 12.1, SCRIPTS),
            idle_lock: input("idle lock at the server, bytes", 120.0, SCRIPTS),
            held_lock: input("lock with one writer, bytes", 184.0, SCRIPTS),
            reader: input("reader of a lock, bytes", 194.0, SCRIPTS),
            waiter: input("waiter of a lock, bytes", 181.0, SCRIPTS),
            guard: input("guard at the client, bytes", 546.0, RENEWAL),
            socket: own("a command beside its script, µs"),
            dial: own("a dial, µs"),
            subscribe: own("SSUBSCRIBE, µs"),
            maps: [
                own("the slot map of 10 masters, µs"),
                own("of 100 masters, µs"),
                own("of 1,000 masters, µs"),
            ],
            map_bytes: [
                own("the slot map of 10 masters, bytes on the wire"),
                own("of 100 masters, bytes on the wire"),
                own("of 1,000 masters, bytes on the wire"),
            ],
            connection: own("connection at the server, bytes"),
            channel: own("subscribed channel at the server, bytes"),
            client: own("client without connections, bytes"),
            client_connection: own("connection at the client, bytes"),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Input> {
        let single = [
            &self.take,
            &self.give_back,
            &self.renew,
            &self.join,
            &self.poll,
            &self.hand_over,
            &self.socket,
            &self.dial,
            &self.subscribe,
        ];
        let sizes = [
            &self.idle_lock,
            &self.held_lock,
            &self.reader,
            &self.waiter,
            &self.connection,
            &self.channel,
            &self.guard,
            &self.client,
            &self.client_connection,
        ];
        single.into_iter().chain(&self.maps).chain(&self.map_bytes).chain(sizes)
    }

    pub fn table(&self) -> Table {
        let mut table = Table::new(&["input", "value", "bench"]);
        for input in self.all() {
            let value = match input.value {
                value if value < 100.0 => format!("{value:.1}"),
                value => super::grouped(value),
            };
            table.add([input.name.into(), value, input.source.into()]);
        }
        table
    }
}
