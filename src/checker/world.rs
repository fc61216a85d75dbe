//! The state of a world, and what is the same in all states.

mod actions;
mod canonical_form;
mod results;
mod runs;

use std::collections::HashMap;
use std::rc::Rc;

pub(super) use actions::{FAULT_NAMES, ModelAction};
pub(super) use results::GUARDS;

use crate::checker::call::{ModelCall, ModelMessage};
use crate::checker::client::{ClientFault, ModelClient};
use crate::checker::interner::Interner;
use crate::checker::lock_view::LockView;
use crate::checker::program::{FaultBudget, ModelPlan};
use crate::checker::scripts_under_test::ScriptVariant;
use crate::checker::world::canonical_form::KnownTokens;
use crate::checker::world::runs::{RunKey, RunResult};
use crate::client::config::ClientConfig;
use crate::embedded::{LockHash, ScriptStep};
use crate::protocol::{self, ClientId, LockKey, Scripts};

/// A state. Locks, clients and calls are stored as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelState {
    pub(super) lock: u32,
    /// The replica's data, which lack the last write.
    replica: u32,
    pub(super) clients: Vec<u32>,
    /// The calls, each with its client.
    pub(super) calls: Vec<(u8, u32)>,
    pub(super) messages: Vec<ModelMessage>,
    pub(super) fault_budget: FaultBudget,
    pub(super) server: u8,
    /// The greatest token that was ever given.
    pub(super) newest: u64,
    /// A failover has lost a write.
    pub(super) lost_history: bool,
    /// A forced release ended the leases with tokens up to this one.
    pub(super) force_released_up_to: u64,
    /// The greatest token of a guard of a cached lease: of one that wrote, and of any.
    pub(super) wrote: u64,
    pub(super) used: u64,
}

/// What is the same in all states.
pub(super) struct LockModel {
    pub(super) plan: ModelPlan,
    settings: ClientConfig,
    scripts: &'static Scripts,
    pure: ScriptStep,
    key: LockKey,
    ids: Vec<ClientId>,
    /// The first client with the same program.
    groups: Vec<u8>,
    only: Option<&'static str>,
    fault: Option<ClientFault>,
    pub(super) locks: Interner<LockHash>,
    pub(super) clients: Interner<ModelClient>,
    pub(super) calls: Interner<ModelCall>,
    runs: HashMap<RunKey, Rc<RunResult>>,
    views: HashMap<u32, Rc<Result<LockView, String>>>,
    rewritten: HashMap<(u32, u64, Vec<u64>, Vec<u8>), u32>,
    tokens: KnownTokens,
    pub(super) asked: u64,
}

impl LockModel {
    pub(super) fn new(plan: ModelPlan, changed: ScriptVariant<'_>) -> LockModel {
        let small_limits = plan.small_limits;
        let (only, fault) = (changed.only, changed.client);
        let scripts = ScriptVariant { small_limits, ..changed }.scripts();
        let texts = scripts.all().into_iter().map(|script| (script.name(), script.text()));
        let clients = plan.programs.len();
        let first_like = |program| plan.programs.iter().position(|other| other == program);
        let groups: Vec<u8> =
            plan.programs.iter().filter_map(|program| Some(first_like(program)? as u8)).collect();
        assert!(groups.is_sorted(), "clients with the same program stand together");
        let kind = match plan.has_permits() {
            true => protocol::LockKind::Semaphore,
            false => protocol::LockKind::ReadWrite,
        };
        let mut model = LockModel {
            settings: plan.settings(),
            scripts,
            pure: ScriptStep::new(texts).unwrap(),
            key: LockKey::new(kind, "rwlease:", "x").unwrap(),
            ids: (0..clients as u8).map(|client| ClientId::from_random([client; 11])).collect(),
            groups,
            only,
            fault,
            plan,
            locks: Interner::new(),
            clients: Interner::new(),
            calls: Interner::new(),
            runs: HashMap::new(),
            views: HashMap::new(),
            rewritten: HashMap::new(),
            tokens: KnownTokens::default(),
            asked: 0,
        };
        model.locks.number(LockHash::default());
        model
    }

    pub(super) fn first(&mut self) -> ModelState {
        let client = self.clients.number(ModelClient::new());
        let clients = vec![client; self.plan.programs.len()];
        ModelState { clients, fault_budget: self.plan.budget, ..ModelState::default() }
    }

    /// Whether steps and states are checked against this rule.
    pub(super) fn judges(&self, rule: &str) -> bool {
        self.only.is_none_or(|only| only == rule)
    }

    pub(super) fn executed(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn client(&self, world: &ModelState, client: usize) -> &ModelClient {
        &self.clients[world.clients[client]]
    }

    pub(super) fn view(&mut self, lock: u32) -> Rc<Result<LockView, String>> {
        let view = || Rc::new(LockView::of(&self.locks[lock]));
        self.views.entry(lock).or_insert_with(view).clone()
    }

    /// The id of an acquisition.
    pub(super) fn id(&self, client: usize, acquisition: u8) -> String {
        self.ids[client].acquisition(u64::from(acquisition)).as_str().to_owned()
    }
}
