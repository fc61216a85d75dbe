//! All input figures of the model.

use super::bench_output::BenchOutput;
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
    pub release: Input,
    pub renew: Input,
    pub join: Input,
    pub poll: Input,
    pub handoff: Input,
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

/// The numbers of masters for which maps are measured and tables are printed.
pub const SIZES: [u16; 3] = [10, 100, 1_000];

impl Inputs {
    /// The figures of other benches, as `make bench` has left them. This bench measures the others.
    pub fn from_other_benches() -> Inputs {
        let (scripts, renewal) = (BenchOutput::by("scripts"), BenchOutput::by("renewal"));
        let free = |call| scripts.cell("uncontended", "write, one try", call);
        // Queues of a fleet are short, and do not change these times.
        let waiting = |call| scripts.cell("µs by waiting writers", call, "100");
        let memory = |what| scripts.cell("memory of 10,000", what, "bytes of each");
        let renew = scripts.cell("µs by readers", "renew", "1");
        let guard = renewal.number_after("Each takes ");
        let of_scripts = |name, value| Input { name, value, source: "scripts" };
        let own = |name| Input { name, value: 0.0, source: "scale" };
        Inputs {
            take: of_scripts("take a free lock to write, script, µs", free("acquire")),
            release: of_scripts("give it back, script, µs", free("release")),
            renew: of_scripts("renew a lease, script, µs", renew),
            join: of_scripts("join the queue, script, µs", waiting("join the queue")),
            poll: of_scripts("poll, script, µs", waiting("poll")),
            handoff: of_scripts("release and hand over, script, µs", waiting("release, hand over")),
            idle_lock: of_scripts(
                "idle lock at the server, bytes",
                memory("lock that was written, idle"),
            ),
            held_lock: of_scripts("lock with one writer, bytes", memory("lock with one writer")),
            reader: of_scripts("reader of a lock, bytes", memory("reader of one lock")),
            waiter: of_scripts("waiter of a lock, bytes", memory("waiter of one lock")),
            guard: Input { name: "guard at the client, bytes", value: guard, source: "renewal" },
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
            &self.release,
            &self.renew,
            &self.join,
            &self.poll,
            &self.handoff,
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
