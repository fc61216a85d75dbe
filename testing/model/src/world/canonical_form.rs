//! The canonical form of a state.

use crate::canonical::{Canonicalizer, client_orders, tokens_of};
use crate::time::{FIRST_TOKEN, TokenVisitor, UNIT_MS};
use crate::world::{LockModel, ModelState};

/// The tokens in each lock, client and call.
#[derive(Debug, Default)]
pub struct KnownTokens {
    locks: TokenMemo,
    clients: TokenMemo,
    calls: TokenMemo,
}

/// The tokens of each value, by its number.
#[derive(Debug, Default)]
struct TokenMemo(Vec<Option<Vec<u64>>>);

impl TokenMemo {
    fn of(&mut self, number: u32, find: impl FnOnce() -> Vec<u64>) -> &[u64] {
        let at = number as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        self.0[at].get_or_insert_with(find)
    }
}

impl LockModel {
    pub fn canonical(&mut self, mut world: ModelState) -> ModelState {
        self.simplify(&mut world);
        let orders = client_orders(&self.groups, &world.clients);
        let ordered = orders.into_iter().map(|order| self.in_order(&world, &order));
        let least = ordered.min_by(|a, b| {
            let key = |world: &ModelState| (world.lock, world.replica);
            (key(a), &a.calls, &a.messages).cmp(&(key(b), &b.calls, &b.messages))
        });
        least.unwrap_or(world)
    }

    /// Makes the canonical form, except for the order of clients.
    pub fn simplify(&mut self, world: &mut ModelState) {
        self.drop_dead_messages(world);
        self.rename_tokens(world);
    }

    /// Drops the messages for acquisitions that are over, which have no effect.
    fn drop_dead_messages(&self, world: &mut ModelState) {
        let ModelState { messages, clients, .. } = world;
        messages.retain(|message| {
            let client = &self.clients[clients[usize::from(message.client)]];
            client.is_alive() && (client.step == message.acquisition || message.more)
        });
    }

    /// Tokens are only compared, so each is replaced by its rank.
    fn rename_tokens(&mut self, world: &mut ModelState) {
        let tokens = self.tokens_of(world);
        let is_renamed = (FIRST_TOKEN..).zip(&tokens).all(|(wanted, token)| wanted == *token);
        if is_renamed {
            return;
        }
        let rename = |token: u64| match tokens.binary_search(&token) {
            Ok(rank) => FIRST_TOKEN + rank as u64,
            Err(_) => token,
        };
        let same: Vec<u8> = (0..world.clients.len() as u8).collect();
        world.lock = self.rewrite(world.lock, 0, &tokens, &same);
        world.replica = self.rewrite(world.replica, 0, &tokens, &same);
        for number in &mut world.clients {
            if self.tokens.clients.of(*number, Vec::new).is_empty() {
                continue;
            }
            let mut client = self.clients[*number].clone();
            client.visit(&mut TokenVisitor(|token: &mut u64| *token = rename(*token)));
            *number = self.clients.number(client);
        }
        for (_, number) in &mut world.calls {
            let mut call = self.calls[*number].clone();
            call.each_token(&mut |token| *token = rename(*token));
            *number = self.calls.number(call);
        }
        world.messages.iter_mut().for_each(|message| message.token = rename(message.token));
        world.newest = rename(world.newest);
        world.force_released_up_to = rename(world.force_released_up_to);
        world.wrote = rename(world.wrote);
        world.used = rename(world.used);
    }

    /// All tokens of a state, in order, each once.
    fn tokens_of(&mut self, world: &ModelState) -> Vec<u64> {
        let LockModel { locks, clients, calls, tokens, .. } = self;
        let mut all = Vec::new();
        for lock in [world.lock, world.replica] {
            all.extend_from_slice(tokens.locks.of(lock, || tokens_of(&locks[lock])));
        }
        for client in &world.clients {
            all.extend_from_slice(tokens.clients.of(*client, || clients[*client].tokens()));
        }
        for (_, call) in &world.calls {
            all.extend_from_slice(tokens.calls.of(*call, || calls[*call].tokens()));
        }
        all.extend(world.messages.iter().map(|message| message.token));
        all.extend([world.newest, world.force_released_up_to, world.wrote, world.used]);
        all.retain(|token| *token > 0);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A lock `by_ms` later, with each of the tokens replaced by its rank, and with other numbers
    /// of clients.
    pub fn rewrite(&mut self, lock: u32, by_ms: u64, tokens: &[u64], clients: &[u8]) -> u32 {
        if self.locks[lock].fields.is_empty() {
            return 0;
        }
        let key = (lock, by_ms, tokens.to_vec(), clients.to_vec());
        if let Some(known) = self.rewritten.get(&key) {
            return *known;
        }
        let token = |token: u64| match tokens.binary_search(&token) {
            Ok(rank) => FIRST_TOKEN + rank as u64,
            Err(_) => token,
        };
        let ttl_ms = u64::from(self.plan.ttl) * UNIT_MS;
        let rewriting = Canonicalizer { by_ms, token: &token, clients, ttl_ms };
        let new = rewriting.lock(&self.locks[lock]);
        let new = self.locks.number(new);
        self.rewritten.insert(key, new);
        new
    }

    /// The same state with its clients in another order: the old number at each new place.
    fn in_order(&mut self, world: &ModelState, order: &[u8]) -> ModelState {
        let mut next = world.clone();
        if !order.is_sorted() {
            let mut places = vec![0; order.len()];
            order.iter().enumerate().for_each(|(at, old)| places[usize::from(*old)] = at as u8);
            next.clients = order.iter().map(|old| world.clients[usize::from(*old)]).collect();
            next.lock = self.rewrite(world.lock, 0, &[], &places);
            next.replica = self.rewrite(world.replica, 0, &[], &places);
            next.calls.iter_mut().for_each(|(client, _)| *client = places[usize::from(*client)]);
            for message in &mut next.messages {
                message.client = places[usize::from(message.client)];
            }
        }
        next.calls.sort_unstable();
        next.messages.sort_unstable();
        next
    }
}
