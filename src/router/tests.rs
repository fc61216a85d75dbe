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

use crate::backend::fake::{
    DialBehavior, EPOCH_MS, FakeCluster, FakeReply, TestClock, address, refusal, script_reply, text,
};
use crate::backend::{Command, RespValue};
use crate::clock::{Clock, LocalInstant};
use crate::router::{
    Call, CallError, CallErrorKind, CallReply, Priority, Router, RouterConfig, Script,
};
use crate::slot::Slot;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| script("test"));

pub(super) fn script(name: &'static str) -> Script {
    Script::new(name, "return {}".into(), "digest".into())
}

const ALL: (u16, u16, &str) = (0, 16383, "a");
/// The key `k` is in the lower half, `x` in the upper one.
const HALVES: [(u16, u16, &str); 2] = [(0, 8191, "a"), (8192, 16383, "b")];

struct Bench {
    fakes: FakeCluster,
    clock: Arc<TestClock>,
    router: Arc<Router>,
}

impl Bench {
    async fn new(ranges: &[(u16, u16, &str)]) -> Bench {
        Bench::with(ranges, |_| ()).await
    }

    async fn with(ranges: &[(u16, u16, &str)], change: impl FnOnce(&mut RouterConfig)) -> Bench {
        let fakes = FakeCluster::new(ranges);
        let clock = TestClock::start();
        let mut settings =
            RouterConfig { seeds: vec![address(ranges[0].2)], ..RouterConfig::default() };
        change(&mut settings);
        let router =
            Router::connect(Arc::new(fakes.clone()), clock.clone(), settings).await.unwrap();
        let bench = Bench { fakes, clock, router };
        for (.., host) in ranges {
            bench.fakes.log(host);
        }
        bench
    }

    fn within(&self, seconds: u64) -> LocalInstant {
        self.clock.now().saturating_add(Duration::from_secs(seconds))
    }

    async fn call(&self, key: &str) -> Result<CallReply, CallError> {
        self.router.call(&call(key), self.within(10)).await
    }
}

impl Router {
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
        script: &SCRIPT,
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

/// A client of these servers.
async fn connect(fakes: &FakeCluster, seeds: &[&str]) -> Result<Arc<Router>, CallError> {
    let settings = RouterConfig {
        seeds: seeds.iter().map(|host| address(host)).collect(),
        ..RouterConfig::default()
    };
    Router::connect(Arc::new(fakes.clone()), TestClock::start(), settings).await
}
