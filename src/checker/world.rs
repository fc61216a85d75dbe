//! The state of a world, and what is the same in all states.

mod actions;
mod form;
mod results;
mod runs;

use std::collections::HashMap;
use std::rc::Rc;

pub(super) use actions::{Action, FAULTS};
pub(super) use results::GUARDS;

use crate::checker::call::{Call, Message};
use crate::checker::client::{Client, ClientFault};
use crate::checker::intern::Interned;
use crate::checker::program::{Budget, Plan};
use crate::checker::step::Changed;
use crate::checker::view::View;
use crate::checker::world::form::KnownTokens;
use crate::checker::world::runs::{Occasion, Outcome};
use crate::client::settings::Settings;
use crate::embedded::{Lock, PureStep};
use crate::protocol::{self, ClientId, LockKey, Scripts};

/// A state. Locks, clients and calls are stored as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) lock: u32,
    /// The replica's data, which lack the last write.
    replica: u32,
    pub(super) clients: Vec<u32>,
    /// The calls, each with its client.
    pub(super) calls: Vec<(u8, u32)>,
    pub(super) messages: Vec<Message>,
    pub(super) left: Budget,
    pub(super) server: u8,
    /// The greatest token that was ever given.
    pub(super) newest: u64,
    /// A failover has lost a write.
    pub(super) lost_history: bool,
    /// A forced release ended the leases with tokens up to this one.
    pub(super) taken: u64,
    /// The greatest token of a guard of a cached lease: of one that wrote, and of any.
    pub(super) wrote: u64,
    pub(super) used: u64,
}

/// What is the same in all states.
pub(super) struct Model {
    pub(super) plan: Plan,
    settings: Settings,
    scripts: &'static Scripts,
    pure: PureStep,
    key: LockKey,
    ids: Vec<ClientId>,
    /// The first client with the same program.
    groups: Vec<u8>,
    only: Option<&'static str>,
    fault: Option<ClientFault>,
    pub(super) locks: Interned<Lock>,
    pub(super) clients: Interned<Client>,
    pub(super) calls: Interned<Call>,
    runs: HashMap<Occasion, Rc<Outcome>>,
    views: HashMap<u32, Rc<Result<View, String>>>,
    rewritten: HashMap<(u32, u64, Vec<u64>, Vec<u8>), u32>,
    tokens: KnownTokens,
    pub(super) asked: u64,
}

impl Model {
    pub(super) fn new(plan: Plan, changed: Changed<'_>) -> Model {
        let small_limits = plan.small_limits;
        let (only, fault) = (changed.only, changed.client);
        let scripts = Changed { small_limits, ..changed }.scripts();
        let texts = scripts.all().into_iter().map(|script| (script.name(), script.text()));
        let clients = plan.programs.len();
        let first_like = |program| plan.programs.iter().position(|other| other == program);
        let groups: Vec<u8> =
            plan.programs.iter().filter_map(|program| Some(first_like(program)? as u8)).collect();
        assert!(groups.is_sorted(), "clients with the same program stand together");
        let kind = match plan.has_permits() {
            true => protocol::Kind::Semaphore,
            false => protocol::Kind::ReadWrite,
        };
        let mut model = Model {
            settings: plan.settings(),
            scripts,
            pure: PureStep::new(texts).unwrap(),
            key: LockKey::new(kind, "rwlease:", "x").unwrap(),
            ids: (0..clients as u8).map(|client| ClientId::from_random([client; 11])).collect(),
            groups,
            only,
            fault,
            plan,
            locks: Interned::new(),
            clients: Interned::new(),
            calls: Interned::new(),
            runs: HashMap::new(),
            views: HashMap::new(),
            rewritten: HashMap::new(),
            tokens: KnownTokens::default(),
            asked: 0,
        };
        model.locks.number(Lock::default());
        model
    }

    pub(super) fn first(&mut self) -> World {
        let client = self.clients.number(Client::new());
        let clients = vec![client; self.plan.programs.len()];
        World { clients, left: self.plan.budget, ..World::default() }
    }

    /// Whether steps and states are checked against this rule.
    pub(super) fn judges(&self, rule: &str) -> bool {
        self.only.is_none_or(|only| only == rule)
    }

    pub(super) fn executed(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn client(&self, world: &World, client: usize) -> &Client {
        &self.clients[world.clients[client]]
    }

    pub(super) fn view(&mut self, lock: u32) -> Rc<Result<View, String>> {
        let view = || Rc::new(View::of(&self.locks[lock]));
        self.views.entry(lock).or_insert_with(view).clone()
    }

    /// The id of an acquisition.
    pub(super) fn id(&self, client: usize, acquisition: u8) -> String {
        self.ids[client].acquisition(u64::from(acquisition)).as_str().to_owned()
    }
}
