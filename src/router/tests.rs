//! The router, on fake servers and a paused clock.
#![allow(clippy::disallowed_methods)]

mod batch;
mod connecting;
mod credentials;
mod deletes;
mod deployments;
mod events;
mod identity;
mod overload;
mod redirects;
mod replicated;
#[cfg(feature = "metrics")]
pub(super) mod seen;
mod sentinels;
mod standalone;
mod subscriptions;
mod texts;
mod trouble;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use rwlease_core::protocol::{
    Call, CallError, CallErrorKind, CallReply, Confirmation, Doubt, Fsync, ScriptName,
};
use rwlease_core::resp::{Command, RespValue};
use rwlease_core::slot::Slot;
use rwlease_core::time::LocalInstant;

use crate::backend::fake::{
    DialBehavior, EPOCH_MS, FakeCluster, FakeReply, TestClock, address, refusal, script_reply, text,
};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::router::{Priority, Router, RouterConfig};
use crate::scripts::{Script, Scripts};

const ONE_REPLICA: Confirmation = Confirmation { replicas: 1, fsync: Fsync::None };
const ALL: (u16, u16, &str) = (0, 16383, "a");
/// The key `k` is in the lower half, `x` in the upper one.
const HALVES: [(u16, u16, &str); 2] = [(0, 8191, "a"), (8192, 16383, "b")];

struct Bench {
    fakes: FakeCluster,
    clock: Arc<dyn Clock>,
    router: Arc<Router>,
}

impl Bench {
    async fn new(ranges: &[(u16, u16, &str)]) -> Bench {
        Bench::with(ranges, |_| ()).await
    }

    async fn with(ranges: &[(u16, u16, &str)], change: impl FnOnce(&mut RouterConfig)) -> Bench {
        let fakes = FakeCluster::new(ranges);
        let clock: Arc<dyn Clock> = TestClock::start();
        let mut settings = RouterConfig {
            seeds: vec![address(ranges[0].2)],
            scripts: scripts(),
            ..RouterConfig::default()
        };
        change(&mut settings);
        let router =
            Router::connect(Arc::new(fakes.clone()), clock.clone(), settings).await.unwrap();
        let bench = Bench { fakes, clock, router };
        for (.., host) in ranges {
            bench.fakes.log(host);
        }
        bench
    }

    /// A client of these servers.
    async fn of(fakes: FakeCluster, seeds: &[&str]) -> Bench {
        let router = connect(&fakes, seeds).await.unwrap();
        Bench { fakes, clock: router.clock.clone(), router }
    }

    fn within(&self, seconds: u64) -> LocalInstant {
        self.clock.now().saturating_add(Duration::from_secs(seconds))
    }

    fn since(&self, start: LocalInstant) -> Duration {
        self.clock.now().saturating_duration_since(start)
    }

    async fn call(&self, key: &str) -> Result<CallReply, CallError> {
        self.call_within(key, 10).await
    }

    async fn call_within(&self, key: &str, seconds: u64) -> Result<CallReply, CallError> {
        self.router.call_within(key, seconds).await
    }

    /// The number of calls that each of `a` and `b` has received.
    fn calls(&self) -> (usize, usize) {
        (self.fakes.count("a", "EVAL"), self.fakes.count("b", "EVAL"))
    }

    /// Gives all slots to `b`, after this time.
    fn give_all_to_b_after(&self, time: Duration) {
        let fakes = self.fakes.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            fakes.set_slots(&[(0, 16383, "b")]);
        });
    }
}

impl Router {
    async fn call(&self, call: &Call, deadline: LocalInstant) -> Result<CallReply, CallError> {
        self.call_with(call, Confirmation::default(), deadline, None).await
    }

    async fn call_replicated(
        &self,
        call: &Call,
        confirmation: Confirmation,
        deadline: LocalInstant,
    ) -> Result<CallReply, CallError> {
        self.call_with(call, confirmation, deadline, None).await
    }

    async fn call_within(&self, key: &str, seconds: u64) -> Result<CallReply, CallError> {
        let deadline = self.clock.now().saturating_add(Duration::from_secs(seconds));
        self.call(&call(key), deadline).await
    }

    /// The outcomes of all calls, in the order of the calls.
    async fn batch(
        &self,
        calls: &[Call],
        deadline: LocalInstant,
    ) -> Vec<Result<CallReply, CallError>> {
        let outcomes = Mutex::new(BTreeMap::new());
        let keep = |at, outcome| drop(outcomes.lock().unwrap().insert(at, outcome));
        self.call_each(calls, deadline, Priority::Normal, keep).await;
        outcomes.into_inner().unwrap().into_values().collect()
    }
}

fn call(key: &str) -> Call {
    Call {
        script: ScriptName::Release,
        slot: Slot::of(key),
        key: bytes::Bytes::copy_from_slice(key.as_bytes()),
        second_key: None,
        args: Command::from_words(["arg"]),
        not_after: None,
    }
}

fn redirect(kind: &str, key: &str, host: &str) -> FakeReply {
    refusal(&format!("{kind} {} {host}:1", Slot::of(key)))
}

fn line(command: &str, key: &str, host: &str) -> String {
    let name: String = format!("{host}-0123456789abcdef").chars().take(12).collect();
    format!("{command} 1 {key} {name} arg")
}

/// Scripts with short texts.
fn scripts() -> &'static Scripts {
    static SHORT: LazyLock<Scripts> = LazyLock::new(|| {
        let names = ScriptName::ALL.iter();
        Scripts(names.map(|name| Script::new(*name, "return {}".into(), "digest".into())).collect())
    });
    &SHORT
}

/// A client of these servers.
async fn connect(fakes: &FakeCluster, seeds: &[&str]) -> Result<Arc<Router>, Error> {
    let settings = RouterConfig {
        seeds: seeds.iter().map(|host| address(host)).collect(),
        scripts: scripts(),
        ..RouterConfig::default()
    };
    Router::connect(Arc::new(fakes.clone()), TestClock::start(), settings).await
}
