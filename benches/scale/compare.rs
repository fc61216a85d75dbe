//! Compares the simulation with the model.

use std::time::{Duration, Instant};

use super::costs::{OUTAGE, reference};
use super::measure::resident;
use super::model::{Model, SAMPLE};
use super::simulation::{CountedMessage, Outcome, Plan, ServerCounts, Simulation, runtime};
use super::table::Table;
use super::{grouped, simulation};

const STEADY: Duration = Duration::from_secs(30);
const AFTER: Duration = Duration::from_secs(20);
/// A tenth of all slots.
const SLOTS: usize = 1_638;

/// The results of a simulation and of the model.
pub struct Comparison {
    pub tables: Vec<(&'static str, Table)>,
    pub outcome: Table,
    pub facts: String,
    /// No lock had two holders, and no lease was lost.
    pub is_safe: bool,
}

/// The counts of one phase.
struct Phase {
    counted: ServerCounts,
    outcome: Outcome,
    seconds: f64,
}

pub fn compare(masters: u16, clients: usize) -> Comparison {
    let plan = reference(masters, clients);
    runtime().block_on(run(&plan))
}

async fn run(plan: &Plan) -> Comparison {
    let began = Instant::now();
    let model = Model { plan };
    let simulation = Simulation::start(plan).await;
    simulation.run(plan.lease).await; // by then they have used all of their locks
    let start = phase(&simulation, plan.renewal() + simulation::CALM + plan.lease);
    simulation.run(STEADY).await;
    let steady = phase(&simulation, STEADY);
    let crowds_there = simulation.crowds_at(0);
    simulation.kill(0, OUTAGE).await;
    simulation.run(AFTER).await;
    let failover = phase(&simulation, OUTAGE + AFTER);
    let (length, crowds_moved) = simulation.reshard(SLOTS).await;
    let resharding = phase(&simulation, length);
    simulation.run(AFTER).await;
    let after = phase(&simulation, AFTER);

    let held = plan.clients * plan.held;
    let facts = format!(
        "- {} clients on {} masters with a replica each\n\
         - {} locks held all the time: {} are held at the end\n\
         - it took {:.0} s, and {} KB of memory a client",
        grouped(plan.clients as f64),
        plan.masters,
        grouped(held as f64),
        grouped(simulation.held() as f64),
        began.elapsed().as_secs_f64(),
        grouped(resident() / plan.clients as f64 / 1e3),
    );
    let mut outcome = Table::new(&[
        "phase",
        "pairs",
        "longest, ms",
        "grants in crowds",
        "longest wait there, s",
        "failed",
        "leases lost",
        "overlaps",
    ]);
    let phases = [
        ("start", &start),
        ("steady", &steady),
        ("failover", &failover),
        ("resharding", &resharding),
        ("after", &after),
    ];
    for (name, phase) in phases {
        let it = &phase.outcome;
        outcome.add([
            name.into(),
            grouped(it.pairs as f64),
            format!("{:.1}", it.longest.as_secs_f64() * 1e3),
            grouped(it.grants as f64),
            format!("{:.1}", it.longest_in_crowd.as_secs_f64()),
            it.failed.to_string(),
            it.lost.to_string(),
            it.overlaps.to_string(),
        ]);
    }
    let is_safe = phases.iter().all(|(_, phase)| phase.outcome.overlaps + phase.outcome.lost == 0)
        && simulation.held() == held;
    let tables = vec![
        ("start", at_start(&model, &start)),
        ("steady", steady_table(&model, &steady)),
        ("failover", failover_table(&model, &steady, &failover, crowds_there)),
        ("resharding", resharding_table(&model, &steady, &resharding, crowds_moved)),
    ];
    Comparison { tables, outcome, facts, is_safe }
}

fn phase(simulation: &Simulation, length: Duration) -> Phase {
    Phase {
        counted: simulation.take_counts(),
        outcome: simulation.take_outcome(),
        seconds: length.as_secs_f64(),
    }
}

impl Phase {
    fn rate(&self, sent: CountedMessage) -> f64 {
        self.counted.all(sent) as f64 / self.seconds
    }

    /// The count beyond the usual one.
    fn excess(&self, usual: &Phase, sent: CountedMessage) -> f64 {
        self.counted.all(sent) as f64 - usual.rate(sent) * self.seconds
    }
}

/// A table of the model's figures and the counts.
struct ComparisonTable(Table);

impl ComparisonTable {
    fn new(head: &str) -> ComparisonTable {
        ComparisonTable(Table::new(&[head, "model", "simulated", "ratio"]))
    }

    fn add(&mut self, name: &str, model: f64, simulated: f64) {
        let ratio = match model > 0.0 {
            true => format!("{:.2}", simulated / model),
            false => String::new(),
        };
        self.0.add([name.into(), format_value(model), format_value(simulated), ratio]);
    }

    /// A count for which the model has no figure.
    fn note(&mut self, name: &str, simulated: f64) {
        self.0.add([name.into(), String::new(), format_value(simulated), String::new()]);
    }
}

fn format_value(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.1}") } else { grouped(value) }
}

fn at_start(model: &Model<'_>, start: &Phase) -> Table {
    let mut held = ComparisonTable::new("all clients start in 10 s, and 35 s after that");
    let count = |sent| start.counted.all(sent) as f64;
    let (commands, subscriptions) = model.connections();
    let refreshed = start.seconds - model.plan.renewal().as_secs_f64() / 2.0;
    let dials = model.clients() * commands + model.seeds() * refreshed;
    held.add("connections for commands", dials, count(CountedMessage::Time));
    let links = count(CountedMessage::Dial) - count(CountedMessage::Time);
    held.add("connections for subscriptions", model.clients() * subscriptions, links);
    let maps = model.clients() * SAMPLE + model.maps() * refreshed;
    held.add("slot maps", maps, count(CountedMessage::Map));
    held.note(
        "dials of the server that is dialled most",
        start.counted.most(CountedMessage::Dial) as f64,
    );
    held.note("dials of the mean master", count(CountedMessage::Dial) / model.masters());
    held.note("NOSCRIPT", count(CountedMessage::NoScript));
    held.0
}

fn steady_table(model: &Model<'_>, steady: &Phase) -> Table {
    let mut held = ComparisonTable::new("a second, of all masters");
    held.add("pairs", model.pairs(), steady.rate(CountedMessage::Take));
    held.add("releases of them", model.pairs(), steady.rate(CountedMessage::GiveBack));
    held.add("renewals", model.renewals(), steady.rate(CountedMessage::Renew));
    held.add("hand-overs", model.hand_overs(), steady.rate(CountedMessage::HandOver));
    held.add("claims", model.hand_overs(), steady.rate(CountedMessage::Claim));
    held.add(
        "polls",
        model.polls(),
        steady.rate(CountedMessage::Wait) - steady.rate(CountedMessage::HandOver),
    );
    held.add("slot maps", model.maps(), steady.rate(CountedMessage::Map));
    held.add("probes of subscriptions", model.probes(), steady.rate(CountedMessage::Subscribe));
    held.add(
        "MOVED, ASK, errors",
        0.0,
        [CountedMessage::Moved, CountedMessage::Ask, CountedMessage::Error]
            .map(|sent| steady.rate(sent))
            .iter()
            .sum(),
    );
    held.add("dials of seeds", model.seeds(), steady.rate(CountedMessage::Dial));
    held.0
}

fn failover_table(model: &Model<'_>, usual: &Phase, failover: &Phase, crowds: usize) -> Table {
    let mut held = ComparisonTable::new("beyond the usual, of all clients");
    let outage = OUTAGE.as_secs_f64();
    let beyond = |sent| failover.excess(usual, sent);
    held.add("slot maps", model.maps_in_outage(outage), beyond(CountedMessage::Map));
    held.add("dials", model.dials_in_failover(outage), beyond(CountedMessage::Dial));
    let successor = usize::from(model.plan.masters);
    held.add(
        "clients that dial the new master",
        model.newcomers(),
        failover.counted.at(successor, CountedMessage::Time) as f64,
    );
    // Three for each channel: the query of its connection, the subscription, and a probe.
    let asked = 3.0 * (crowds * model.plan.crowd) as f64;
    let subscribed = failover.counted.at(successor, CountedMessage::Subscribe) as f64;
    held.add("SSUBSCRIBEs and INFO there", asked, subscribed);
    held.note("NOSCRIPT there", failover.counted.at(successor, CountedMessage::NoScript) as f64);
    held.note("MOVED", beyond(CountedMessage::Moved));
    held.0
}

fn resharding_table(model: &Model<'_>, usual: &Phase, resharding: &Phase, crowds: usize) -> Table {
    let mut held = ComparisonTable::new("beyond the usual, of all clients");
    let slots = SLOTS as f64;
    let beyond = |sent| resharding.excess(usual, sent);
    let found = model.moved(slots, resharding.seconds);
    let channels = (crowds * model.plan.crowd) as f64;
    held.add("MOVED", found.calls, beyond(CountedMessage::Moved));
    held.add("slot maps", (found.fetches + channels) * SAMPLE, beyond(CountedMessage::Map));
    held.add("SSUBSCRIBEs and INFO", 2.0 * channels, beyond(CountedMessage::Subscribe));
    let dials = model.dials_in_resharding(slots, found.fetches) + channels;
    held.add("dials", dials, beyond(CountedMessage::Dial));
    held.note("ASK", beyond(CountedMessage::Ask));
    held.note("NOSCRIPT", beyond(CountedMessage::NoScript));
    held.0
}
