//! The state of a world, and what is the same in all states.

mod actions;
mod canonical_form;
mod results;
mod runs;
mod ticks;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

pub use actions::ModelAction;
pub use results::GUARDS;
use rwlease_core::acquisition::AcquisitionConfig;
use rwlease_core::protocol::{ClientId, LockKey, LockKind};

use crate::call::{ModelCall, ModelMessage};
use crate::client::{ClientFault, ModelClient};
use crate::interner::Interner;
use crate::program::{FaultBudget, ModelPlan};
use crate::scripts_under_test::ScriptVariant;
use crate::time::{SERVER_NOW, UNIT};
use crate::world::canonical_form::KnownTokens;
use crate::world::runs::{RunKey, RunResult};
use rwlease::testing::{LockHash, ScriptStep};

/// A state. Client, clients and calls are stored as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelState {
    pub lock: u32,
    /// The replica's data, which lack the last write.
    replica: u32,
    pub clients: Vec<u32>,
    /// The calls, each with its client.
    pub calls: Vec<(u8, u32)>,
    pub messages: Vec<ModelMessage>,
    pub fault_budget: FaultBudget,
    pub server: u8,
    /// The greatest token that was ever given.
    pub newest: u64,
    /// A failover has lost a write.
    pub lost_history: bool,
    /// A forced release ended the leases with tokens up to this one.
    pub force_released_up_to: u64,
    /// The greatest token of a guard of a cached lease: of one that wrote, and of any.
    pub wrote: u64,
    pub used: u64,
}

/// What is the same in all states.
pub struct LockModel {
    pub plan: ModelPlan,
    settings: AcquisitionConfig,
    lease: Duration,
    pure: ScriptStep,
    key: LockKey,
    ids: Vec<ClientId>,
    /// The first client with the same program.
    groups: Vec<u8>,
    only: Option<&'static str>,
    fault: Option<ClientFault>,
    pub locks: Interner<LockHash>,
    pub clients: Interner<ModelClient>,
    pub calls: Interner<ModelCall>,
    runs: HashMap<RunKey, Rc<RunResult>>,
    views: HashMap<u32, Rc<oracle::LockHash>>,
    rewritten: HashMap<(u32, u64, Vec<u64>, Vec<u8>), u32>,
    tokens: KnownTokens,
    pub asked: u64,
}

impl LockModel {
    pub fn new(plan: ModelPlan, changed: ScriptVariant<'_>) -> LockModel {
        let small_limits = plan.small_limits;
        let (only, fault) = (changed.only, changed.client);
        let scripts = ScriptVariant { small_limits, ..changed }.scripts();
        let texts = scripts.iter().map(|script| (script.name(), script.text()));
        let clients = plan.programs.len();
        let first_like = |program| plan.programs.iter().position(|other| other == program);
        let groups: Vec<u8> =
            plan.programs.iter().filter_map(|program| Some(first_like(program)? as u8)).collect();
        assert!(groups.is_sorted(), "clients with the same program stand together");
        let kind = match plan.has_permits() {
            true => LockKind::Semaphore,
            false => LockKind::ReadWrite,
        };
        let mut model = LockModel {
            settings: plan.settings(),
            lease: plan.lease * UNIT,
            pure: ScriptStep::new(texts).unwrap(),
            key: LockKey::new(kind, "rwlease:", "x").unwrap(),
            ids: (0..clients as u8).map(|client| ClientId::from_random([client; 11])).collect(),
            groups,
            only,
            fault,
            plan,
            locks: Interner::default(),
            clients: Interner::default(),
            calls: Interner::default(),
            runs: HashMap::new(),
            views: HashMap::new(),
            rewritten: HashMap::new(),
            tokens: KnownTokens::default(),
            asked: 0,
        };
        model.locks.number(LockHash::default());
        model
    }

    pub fn first(&mut self) -> ModelState {
        let client = self.clients.number(ModelClient::default());
        let clients = vec![client; self.plan.programs.len()];
        ModelState { clients, fault_budget: self.plan.budget, ..ModelState::default() }
    }

    /// Whether steps and states are checked against this rule.
    pub fn judges(&self, rule: &str) -> bool {
        self.only.is_none_or(|only| only == rule)
    }

    pub fn executed(&self) -> usize {
        self.runs.len()
    }

    pub fn client(&self, world: &ModelState, client: usize) -> &ModelClient {
        &self.clients[world.clients[client]]
    }

    /// A lock as the rules see it.
    pub fn view(&mut self, lock: u32) -> Rc<oracle::LockHash> {
        let decode = |lock: &LockHash| {
            Rc::new(oracle::LockHash::decode(lock.fields.clone(), lock.ends, SERVER_NOW))
        };
        self.views.entry(lock).or_insert_with(|| decode(&self.locks[lock])).clone()
    }

    /// The id of an acquisition.
    pub fn id(&self, client: usize, acquisition: u8) -> String {
        self.ids[client].acquisition(u64::from(acquisition)).as_str().to_owned()
    }
}
