//! Measures and judges a fault that stays: the load before it and the load meanwhile, in one run.
//!
//! A worker at a server that no fault affects shows how much the machine itself has slowed down or
//! sped up. Rates are judged by comparison with it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::history::{History, Hold, Nanos, Outcome, now};
use super::nemesis::{StayingFault, Touched};
use super::process;
use super::scenario::{Load, Scene};
use super::worker::Worker;
use testkit::{ClientKind, Error, PollLimit, Result};

/// The time between two looks at the fault.
pub const PIECE: Duration = Duration::from_secs(3);

/// The measure before it lasts for half as many such pieces, and at most for these.
const MOST_BEFORE: usize = 40;

/// The load runs for this long before anything is measured.
const WARM_UP: Duration = Duration::from_secs(2);

/// The least part of their rate at which locks go on that the fault does not touch.
const FLOOR: f64 = 0.9;
/// The same for a short run, in which the rate varies by itself.
const SHORT_FLOOR: f64 = 0.5;
const SHORT: Duration = Duration::from_secs(60);

/// How long a waiter may go without a call: its last one found it in the queue.
const POLL: Nanos = 4_000_000_000;

/// How much later than its time limit a request may fail on a busy machine.
const LATE: Duration = Duration::from_secs(5);

/// How often a client may dial a server that it cannot use, in a second: a connection for commands
/// and one for subscriptions, each up to twice.
const DIALS: f64 = 4.0;

/// The calls of a request that is refused; and those beside them, to release what was held
/// when the fault began.
const CALLS: u64 = 1;
const FIRST_CALLS: u64 = 500;

/// What may come to memory (in KiB, beside a quarter), tasks (beside as many again) and connections
/// of one worker.
const MEMORY: u64 = 4 * 1024;
const TASKS: u64 = 30;
const CONNECTIONS: u64 = 4;

/// What the workers and their connections use at a moment.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Of each worker.
    pub memory_kib: Vec<u64>,
    pub tasks: Vec<u64>,
    pub sockets: Vec<u64>,
    /// At all servers that no proxy is in front of.
    pub clients: u64,
}

/// One kind of usage, of each worker; and its limit at the end, by what there was before.
type UsageOfEach = fn(&Usage) -> &Vec<u64>;
type UsageLimit = fn(u64) -> u64;

/// What was measured in a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub touched: Touched,
    /// From when to when the load ran without the fault, and with it.
    pub before: (Nanos, Nanos),
    pub during: (Nanos, Nanos),
    /// Before the fault, a quarter after its beginning, and at its end.
    pub usage: [Usage; 3],
    /// Connections that the worker has opened to the server that it cannot use.
    pub dials: Option<u64>,
    /// Calls of scripts at the struck server meanwhile.
    pub calls: Option<u64>,
    /// Grants in a second before and during, of the worker at the other server.
    pub control: [f64; 2],
    pub rates: Vec<Rate>,
    /// Requests for touched locks: those that were granted long after the strike, and the errors.
    pub granted: usize,
    pub errors: BTreeMap<String, usize>,
    pub slowest_error: Nanos,
}

/// Grants of a group of locks in a second.
#[derive(Clone, Debug)]
pub struct Rate {
    pub of: &'static str,
    pub before: f64,
    pub during: f64,
}

/// Runs the load before the fault and with it, and lifts the fault.
pub async fn act(fault: StayingFault, count: usize, scene: &mut Scene) -> Result {
    scene.start_workers(None)?;
    let mut control = Control::start(scene)?;
    scene.advance().await?;
    control.wait_for_grant().await?;
    sleep(WARM_UP).await;
    let from = now();
    sleep(PIECE * count.div_ceil(2).min(MOST_BEFORE) as u32).await;
    let mut usage = vec![Usage::of(scene).await?];
    let before = (from, now());
    let at = now();
    let touched = fault.strike(scene).await?;
    let struck = now();
    let dials = |scene: &Scene| scene.props.proxy.as_ref().map(testkit::Proxy::accepted_count);
    let opened = dials(scene);
    let called = scripts_at_first(scene).await?;
    let settled = count.div_ceil(4);
    for piece in 1..=count {
        let begin = now();
        sleep(PIECE).await;
        scene.check_workers()?;
        let proof = fault.look(scene).await?;
        scene.fault(fault.name(), if piece == 1 { at } else { begin }, Vec::new(), proof);
        if piece == settled {
            usage.push(Usage::of(scene).await?);
        }
        if piece % settled == 0 {
            println!("{}: looked {piece} times", fault.name());
        }
    }
    usage.push(Usage::of(scene).await?);
    let end = now();
    let calls = scripts_at_first(scene).await? - called;
    // Each look opens a connection, too.
    let dials =
        dials(scene).zip(opened).map(|(all, before)| (all - before).saturating_sub(count as u64));
    fault.lift(scene).await?;
    control.end(scene).await?;
    scene.all_advance().await?;
    if let Some(first) = scene.faults.first_mut() {
        (first.out, first.out_until) = (touched.names.clone(), now());
    }
    let during = (struck, end);
    scene.measured = Some(Measured {
        calls: (!touched.names.is_empty()).then_some(calls),
        touched,
        before,
        during,
        usage: [usage[0].clone(), usage[1].clone(), usage[2].clone()],
        dials,
        control: [control.rate(before), control.rate(during)],
        ..Measured::default()
    });
    Ok(())
}

/// Describes what is not as promised, once the history is complete.
pub fn judge(scene: &mut Scene) -> Vec<String> {
    let Scene { measured, history, load, .. } = scene;
    measured.as_mut().map(|measured| measured.judge(history, load)).unwrap_or_default()
}

impl Measured {
    /// Describes what is not as promised.
    pub fn judge(&mut self, history: &History, load: &Load) -> Vec<String> {
        self.count(history, load.lease);
        let mut wrong = self.slowed_down();
        wrong.extend(self.harmed(history, load.lease));
        wrong.extend(self.wrong_errors(load.timeout.max(load.call_timeout)));
        wrong.extend(self.grown());
        wrong.extend(self.hammered());
        wrong
    }

    fn count(&mut self, history: &History, lease: Duration) {
        let lease = lease.as_nanos() as Nanos;
        let touched = self.touched.clone();
        let (at, end) = self.during;
        let rate = |of, since: Nanos, is_of: &dyn Fn(&Hold) -> bool| {
            let count = |(from, until): (Nanos, Nanos)| {
                let is_in = |hold: &&Hold| {
                    hold.granted.is_some_and(|grant| (from..until).contains(&grant.at))
                };
                let grants = history.holds().filter(is_in).filter(|hold| is_of(hold)).count();
                grants as f64 / seconds((from, until))
            };
            Rate { of, before: count(self.before), during: count((since, end)) }
        };
        self.rates.push(rate("locks of other servers", at, &|hold| !touched.is_of_server(hold)));
        if let Some(worker) = touched.worker {
            self.rates.push(rate("the same for the client that is cut off", at, &|hold| {
                !touched.is_of_server(hold) && hold.worker == worker
            }));
            // Its leases there have to end first.
            self.rates.push(rate("locks of that server for other clients", at + lease, &|hold| {
                touched.is_of_server(hold) && hold.worker != worker
            }));
        }
        // A cached lease grants until it ends, and a reply may be on its way.
        let late = at + 2 * lease;
        for hold in history.holds().filter(|hold| self.touched.has(hold)) {
            let is_late = |grant: Nanos| (late..end).contains(&grant);
            self.granted += usize::from(hold.granted.is_some_and(|grant| is_late(grant.at)));
            if let Some((failed, kind)) = &hold.failed {
                // Some wait in the queue when the fault begins, and others when it ends.
                let may_wait = |at: Nanos| !(at + POLL..end).contains(failed);
                if kind == "TimedOut" && may_wait(self.before.1) {
                    continue;
                }
                *self.errors.entry(kind.clone()).or_default() += 1;
                self.slowest_error = self.slowest_error.max(failed - hold.requested);
            }
        }
    }

    fn slowed_down(&self) -> Vec<String> {
        let is_short = seconds(self.during) < SHORT.as_secs_f64();
        let floor = if is_short { SHORT_FLOOR } else { FLOOR };
        // What could not be measured is no number.
        let slow =
            self.rates.iter().filter(|rate| !(floor..f64::INFINITY).contains(&self.share(rate)));
        slow.map(|rate| format!("{}, the least is {floor}", self.describe(rate))).collect()
    }

    /// The part of its rate at which a group goes on, compared with the other server.
    fn share(&self, rate: &Rate) -> f64 {
        rate.during / rate.before / (self.control[1] / self.control[0])
    }

    fn describe(&self, rate: &Rate) -> String {
        format!(
            "{}: {:.0} grants in a second before, {:.0} during, a share of {:.2}",
            rate.of,
            rate.before,
            rate.during,
            self.share(rate)
        )
    }

    /// Errors and losses of locks that the fault does not touch. While the leases of a client last
    /// that is cut off, other clients wait for them, and their time may be up.
    fn harmed(&self, history: &History, lease: Duration) -> Vec<String> {
        let (at, freed) = (self.before.1, self.during.0 + lease.as_nanos() as Nanos);
        let may_wait = |hold: &Hold, failed: &(Nanos, String)| {
            self.touched.is_of_server(hold)
                && failed.0 > at
                && hold.requested < freed
                && failed.1 == "TimedOut"
        };
        let mut wrong = Vec::new();
        for hold in history.holds().filter(|hold| !self.touched.has(hold)) {
            let lost = hold.lost.is_some() || hold.ended.is_some_and(|(_, believed)| !believed);
            let unreleased = hold
                .released
                .is_some_and(|(_, how)| matches!(how, Outcome::Unknown | Outcome::Failed));
            let failed = hold.failed.as_ref().filter(|failed| !may_wait(hold, failed));
            if lost || unreleased || failed.is_some() {
                wrong.push(format!(
                    "worker {}'s request for lock {} at {}, which the fault does not touch: lost {lost}, not released {unreleased}, failed {failed:?}",
                    hold.worker, hold.name, hold.requested
                ));
            }
        }
        let count = wrong.len();
        wrong.truncate(5);
        wrong.extend((count > 5).then(|| format!("{count} such requests in all")));
        wrong
    }

    fn wrong_errors(&self, limit: Duration) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.touched.names.is_empty() {
            return wrong;
        }
        let expected = self.touched.errors;
        let others: Vec<_> =
            self.errors.iter().filter(|(kind, _)| !expected.contains(&kind.as_str())).collect();
        if !others.is_empty() {
            wrong.push(format!(
                "requests for touched locks failed otherwise than {expected:?}: {others:?}"
            ));
        }
        if !self.errors.contains_key(expected[0]) {
            wrong.push("no request for a touched lock failed: this shows nothing".into());
        }
        if self.touched.is_all_refused && self.granted > 0 {
            wrong.push(format!("{} requests for touched locks were granted", self.granted));
        }
        let slowest = Duration::from_nanos(self.slowest_error);
        if slowest > limit + LATE {
            wrong.push(format!("a request failed after {slowest:?}, its time is {limit:?}"));
        }
        wrong
    }

    /// What has accumulated since the fault has settled.
    fn grown(&self) -> Vec<String> {
        let [before, settled, end] = &self.usage;
        let mut wrong = Vec::new();
        let kinds: [(&str, UsageOfEach, UsageLimit); 3] = [
            ("KiB of memory", |usage| &usage.memory_kib, |had| had + had / 4 + MEMORY),
            ("tasks", |usage| &usage.tasks, |had| 2 * had + TASKS),
            ("sockets", |usage| &usage.sockets, |had| had + CONNECTIONS),
        ];
        for (what, of, limit) in kinds {
            let had =
                of(before).iter().zip(of(settled)).map(|(before, settled)| *before.max(settled));
            for (worker, (had, has)) in had.zip(of(end)).enumerate() {
                if *has > limit(had) {
                    wrong.push(format!("worker {worker} has {has} {what}, and had {had}"));
                }
            }
        }
        let had = before.clients.max(settled.clients);
        if end.clients > had + CONNECTIONS * end.tasks.len() as u64 {
            wrong.push(format!("the servers have {} clients, and had {had}", end.clients));
        }
        wrong
    }

    /// More connections or calls than the requests need.
    fn hammered(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let dials = self.dials.unwrap_or(0) as f64 / seconds(self.during);
        if dials > DIALS {
            wrong.push(format!("the client dialled {dials:.1} times in a second"));
        }
        let errors: usize = self.errors.values().sum();
        let (calls, most) = (self.calls.unwrap_or(0), CALLS * errors as u64 + FIRST_CALLS);
        if self.touched.is_all_refused && self.touched.worker.is_none() && calls > most {
            wrong.push(format!("{calls} calls for {errors} requests that were refused"));
        }
        wrong
    }

    /// The figures, in lines.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.rates.iter().map(|rate| format!("  {}", self.describe(rate))).collect();
        let [before, during] = self.control;
        lines.push(format!("  a server without faults: {before:.0} before, {during:.0} during"));
        lines.push(format!(
            "  touched: errors {:?}, the slowest after {:.1} s; {} granted late; {:?} calls and {:?} dials in {:.0} s",
            self.errors,
            self.slowest_error as f64 / 1e9,
            self.granted,
            self.calls,
            self.dials,
            seconds(self.during)
        ));
        for (when, usage) in ["before", "settled", "at the end"].iter().zip(&self.usage) {
            lines.push(format!(
                "  {when}: {:?} KiB, {:?} tasks, {:?} sockets, {} clients at the servers",
                usage.memory_kib, usage.tasks, usage.sockets, usage.clients
            ));
        }
        lines
    }

    /// The stored form.
    pub fn json(&self) -> Value {
        let rates = self.rates.iter().map(|rate| {
            json!({ "of": rate.of, "before": rate.before, "during": rate.during, "share": self.share(rate) })
        });
        let usage = self.usage.iter().map(|usage| {
            json!({
                "memory_kib": usage.memory_kib,
                "tasks": usage.tasks,
                "sockets": usage.sockets,
                "clients": usage.clients,
            })
        });
        json!({
            "seconds": seconds(self.during),
            "rates": rates.collect::<Vec<_>>(),
            "control": self.control,
            "errors": self.errors,
            "slowest_error_ns": self.slowest_error,
            "calls": self.calls,
            "dials": self.dials,
            "usage": usage.collect::<Vec<_>>(),
        })
    }
}

impl Usage {
    async fn of(scene: &mut Scene) -> Result<Usage> {
        scene.history.read()?;
        let ids: Vec<u32> = scene.workers.iter().map(Worker::id).collect();
        let behind_proxy = scene.props.proxy.is_some().then_some(0);
        let nodes = scene.cluster.running().into_iter().filter(|node| Some(*node) != behind_proxy);
        let kinds = [ClientKind::Commands, ClientKind::Subscribed];
        let counts = nodes.flat_map(|node| kinds.map(|kind| (node, kind)));
        let clients = try_join_all(
            counts.map(async |(node, kind)| scene.cluster.node(node).client_count(kind).await),
        );
        Ok(Usage {
            clients: clients.await?.into_iter().sum(),
            memory_kib: ids.iter().map(|id| process::memory_kib(*id)).collect(),
            tasks: (0..ids.len()).map(|worker| scene.history.tasks(worker)).collect(),
            sockets: ids.iter().map(|id| process::socket_count(*id)).collect(),
        })
    }
}

/// The worker at a server that no fault affects.
struct Control {
    worker: Worker,
    history: History,
}

impl Control {
    fn start(scene: &Scene) -> Result<Control> {
        let orders = scene.control_orders();
        let mut history = History::default();
        history.add(Some(orders.log.clone()));
        Ok(Control { worker: Worker::start(&orders, &[])?, history })
    }

    async fn wait_for_grant(&mut self) -> Result {
        let wait_limit = PollLimit::new("a grant at the other server");
        while !self.history.holds().any(|hold| hold.granted.is_some()) {
            wait_limit.pause("there is none").await?;
            self.history.read()?;
        }
        Ok(())
    }

    async fn end(&mut self, scene: &mut Scene) -> Result {
        self.worker.stop();
        let wait_limit = PollLimit::new("the worker at the other server to end");
        let is_well = loop {
            match self.worker.ended()? {
                Some(is_well) => break is_well,
                None => wait_limit.pause("it runs").await?,
            }
        };
        if !is_well {
            return Err(Error::new("the worker at the other server has failed"));
        }
        scene.history.read()?;
        self.history.read()
    }

    fn rate(&self, span: (Nanos, Nanos)) -> f64 {
        let grants = self.history.holds().filter_map(|hold| hold.granted);
        grants.filter(|grant| (span.0..span.1).contains(&grant.at)).count() as f64 / seconds(span)
    }
}

fn seconds((from, until): (Nanos, Nanos)) -> f64 {
    until.saturating_sub(from).max(1) as f64 / 1e9
}

/// How many scripts the first master, which all faults strike, has begun.
async fn scripts_at_first(scene: &Scene) -> Result<u64> {
    let node = scene.cluster.node(0);
    Ok(node.calls("evalsha").await? + node.calls("eval").await?)
}
