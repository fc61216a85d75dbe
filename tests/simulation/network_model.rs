//! The fate of each message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use testkit::{Delivery, MessageKind, NetworkMessage, NetworkModel};

use crate::census::Census;
use crate::plan::{Fault, Plan};
use crate::verdict::Court;

/// How late a message after `ASKING` may be. If it is so late that its slot has arrived, gone back
/// and set out again, the importing server carries it out while another server has the lock: the
/// guarantee "Late duplicates" excludes this.
const LATEST_AFTER_ASK: Duration = Duration::from_millis(5);

/// Storms and calms. Clones share the weather.
#[derive(Clone, Debug)]
pub struct Storm(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    rng: Rng,
    faults: BTreeSet<Fault>,
    is_calm: bool,
    /// The probability of each fault of a message.
    odds: f64,
    census: Census,
    doubled: BTreeSet<String>,
    court: Court,
    /// The last request of each holder.
    sent: BTreeMap<String, Sent>,
}

/// A request of a holder.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: Duration,
    pub is_answered: bool,
}

impl Storm {
    pub fn new(plan: &Plan, census: Census, court: Court) -> Storm {
        let mut rng = Rng::with_seed(plan.seed ^ 0x5707_2d00);
        let odds = match plan.is_about_replicas {
            true => 0.03, // a lagging replica matters only if many calls are sent again
            false => [0.002, 0.01, 0.03][rng.usize(0..3)],
        };
        Storm(Arc::new(Mutex::new(Inner {
            rng,
            faults: plan.faults.clone(),
            is_calm: true,
            odds,
            census,
            doubled: BTreeSet::new(),
            court,
            sent: BTreeMap::new(),
        })))
    }

    pub fn set_calm(&self, is_calm: bool) {
        self.0.lock().unwrap().is_calm = is_calm;
    }

    /// Whether a request of this acquisition was carried out twice, which no client can know.
    pub fn has_doubled(&self, id: &str) -> bool {
        self.0.lock().unwrap().doubled.contains(id)
    }

    /// The last request of a holder.
    pub fn last_of(&self, id: &str) -> Option<Sent> {
        self.0.lock().unwrap().sent.get(id).copied()
    }
}

impl NetworkModel for Storm {
    fn deliver(&self, message: &NetworkMessage<'_>) -> Delivery {
        let mut inner = self.0.lock().unwrap();
        let fate = inner.decide(message);
        inner.note(message, &fate);
        fate
    }
}

impl Inner {
    fn decide(&mut self, message: &NetworkMessage<'_>) -> Delivery {
        let mut fate = Delivery {
            request_delay: self.latency(),
            reply_delay: self.latency(),
            ..Delivery::default()
        };
        if self.is_calm {
            return fate;
        }
        let is_notice = message.kind == MessageKind::Push;
        let is_after_ask = message
            .commands()
            .any(|command| command.first().is_some_and(|word| *word == b"ASKING"));
        let latest = if is_after_ask { LATEST_AFTER_ASK } else { Duration::MAX };
        if !is_notice && self.strikes(Fault::LoseRequest) {
            fate.loses_request = true;
        }
        if !is_notice && self.strikes(Fault::LoseReply) {
            fate.loses_reply = true;
        }
        if is_notice && self.strikes(Fault::LosePush) {
            fate.loses_reply = true;
        }
        if fate.loses_request || fate.loses_reply {
            fate.break_noticed_after =
                self.rng.bool().then(|| Duration::from_millis(self.rng.u64(0..800)));
        }
        if self.strikes(Fault::Delay) {
            let late = Duration::from_millis([50, 700, 4000][self.rng.usize(0..3)])
                .mul_f64(self.rng.f64())
                .min(latest);
            if self.rng.bool() {
                fate.request_delay += late;
            } else {
                fate.reply_delay += late;
            }
        }
        // A late duplicate matters only if much has happened since, so there must be many.
        if message.kind == MessageKind::Commands && (0..4).any(|_| self.strikes(Fault::Double)) {
            let late =
                Duration::from_millis([5, 300, 3000][self.rng.usize(0..3)]).mul_f64(self.rng.f64());
            fate.duplicate_after = Some(late.min(latest));
            let ids = message.commands().filter_map(|command| command.get(6).map(|id| id.to_vec()));
            self.doubled.extend(ids.filter_map(|id| String::from_utf8(id).ok()));
        }
        fate
    }

    /// Notes the last request of each holder. The holder's id follows the server's name.
    fn note(&mut self, message: &NetworkMessage<'_>, fate: &Delivery) {
        let sent = Sent { at: self.court.now(), is_answered: !fate.loses_reply };
        let ids = message.commands().filter_map(|command| command.get(5).map(|id| id.to_vec()));
        self.sent.extend(ids.filter_map(|id| Some((String::from_utf8(id).ok()?, sent))));
    }

    fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = self.faults.contains(&fault) && self.rng.f64() < self.odds;
        self.census.count_if(fault.name(), strikes);
        strikes
    }

    fn latency(&mut self) -> Duration {
        Duration::from_nanos(self.rng.u64(80_000..900_000))
    }
}
