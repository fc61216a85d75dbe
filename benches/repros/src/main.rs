//! Shows, on local servers, the faults of the cluster clients of `redis` and `fred` because of
//! which rwlease has its own router, or that a newer version has fixed them: `repros [NAME...]`.
//! Each fault has one file, and one line of the table. `docs/upstream/` has a shorter program for
//! most of them, which needs only servers.

mod fred_cluster;
mod hearing;
mod redis_cluster;
mod seen;
mod single;
mod support;

use std::process::ExitCode;
use std::time::Duration;

use futures::future::BoxFuture;
use seen::Seen;
use support::{Result, Server, ServerSettings};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// One that takes longer has hung in a way that it does not look for.
const LIMIT: Duration = Duration::from_secs(60);

/// A fault that is looked for.
struct Repro {
    name: &'static str,
    client: &'static str,
    fault: &'static str,
    /// What is counted.
    of: &'static str,
    run: fn() -> BoxFuture<'static, Result<Seen>>,
}

/// `client, module::name: fault, what is counted`
macro_rules! repros {
    ($($client:ident, $module:ident::$name:ident: $fault:literal, $of:literal;)*) => {
        [$(Repro {
            name: stringify!($name),
            client: stringify!($client),
            fault: $fault,
            of: $of,
            run: || Box::pin($module::$name::run()),
        }),*]
    };
}

const REPROS: [Repro; 20] = repros! {
    redis, redis_cluster::stalls: "after CLIENT KILLs under load no command is answered any more", "clients";
    redis, redis_cluster::asks: "commands to a slot on its way fail, by an ASK or without an answer", "commands";
    redis, redis_cluster::runs_twice: "a command whose reply is lost runs twice", "HINCRBYs";
    redis, redis_cluster::repeats_pipelines: "one MOVED runs the other commands of a pipeline again", "pipelines";
    redis, redis_cluster::loses_subscriptions: "a shard subscription is gone after its slot has moved", "channels";
    redis, redis_cluster::stays_with_the_frozen: "a frozen master is not left after its failover", "commands";
    redis, redis_cluster::cannot_load: "SCRIPT LOAD fails when the master of another shard is frozen", "loads";
    redis, redis_cluster::pauses_long: "a command that was answered TRYAGAIN once is repeated after 1.28 s", "MGETs";
    redis, redis_cluster::waits_for_ever: "by default a command to a frozen server never ends (10 s)", "commands";
    redis, redis_cluster::subscribes_together: "shard subscriptions of several slots are gone after a CLIENT KILL", "channels";
    redis, single::misreads_pushes: "an unasked sunsubscribe gives callers the replies of others", "replies";
    redis, single::panics: "TLS without a crypto provider panics", "connects";
    fred, fred_cluster::ends: "after one ASK no command is answered any more", "commands";
    fred, fred_cluster::mixes_up: "with 20 attempts, callers get the replies of others while slots move", "replies";
    fred, fred_cluster::loses_moved: "a shard subscription is gone after its slot has moved", "channels";
    fred, fred_cluster::loses_killed: "a shard subscription is gone after its connection was killed", "subscriptions";
    fred, fred_cluster::does_not_tell: "a shard subscription that is gone stays on the client's list", "channels";
    fred, single::misdirects_errors: "an error reply to SUNSUBSCRIBE goes to another caller", "replies";
    fred, fred_cluster::waits_for_ever: "by default a command to a frozen server never ends (10 s)", "commands";
    server, single::waits_for_nothing: "WAIT on another connection than the write's counts a frozen replica", "WAITs";
};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let server = match on_a_runtime(Server::start(&ServerSettings::default())) {
        Ok(server) => server.version().to_string(),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("on {server}, with tokio {}\n", version("tokio"));
    let repros = REPROS.iter().filter(|repro| repro.is_wanted(&wanted));
    match repros.filter(|repro| !repro.report(&server)).count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

impl Repro {
    fn is_wanted(&self, names: &[String]) -> bool {
        names.is_empty() || names.iter().any(|name| name == self.name)
    }

    /// Prints its line; whether it could be run.
    fn report(&self, server: &str) -> bool {
        let outcome = on_a_runtime((self.run)());
        let client = match self.client {
            "server" => server.to_owned(),
            client => format!("{client} {}", version(client)),
        };
        let seen = match &outcome {
            Ok(seen) => format!("{} of {} {}", seen.times, seen.tries, self.of),
            Err(error) => format!("could not be tried: {error}"),
        };
        let verdict = match &outcome {
            Ok(Seen { times: 1.., .. }) => "shown",
            Ok(_) => "not shown here",
            Err(_) => "",
        };
        println!("{client:<13} {:<70} {seen:<22} {verdict}", self.fault);
        outcome.is_ok()
    }
}

/// Each has a runtime of its own, as a client that has hung may never end.
fn on_a_runtime<T>(running: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = Runtime::new()?;
    let outcome = runtime.block_on(async { timeout(LIMIT, running).await });
    runtime.shutdown_background();
    outcome?
}

/// Of a crate, as it was built in.
fn version(of: &str) -> &'static str {
    let package = format!("name = \"{of}\"\nversion = \"");
    let found = include_str!("../Cargo.lock").split_once(&package);
    found.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("?")
}
