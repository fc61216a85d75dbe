//! Makes states equal that differ in nothing that matters: the current time, the values of tokens,
//! and the order of clients with the same program.

use std::collections::BTreeMap;

use crate::time::{SERVER_NOW, UNIT_MS};
use rwlease::testing::LockHash;

/// A time that a sweep uses for "none".
const NEVER: u64 = 9_999_999_999_999;

/// The characters of an id that name its client. They are all the same: the client's digit.
const CLIENT: usize = 11;

/// How a lock is rewritten.
pub struct Canonicalizer<'a> {
    pub by_ms: u64,
    pub token: &'a dyn Fn(u64) -> u64,
    /// The new number of each client.
    pub clients: &'a [u8],
    /// How long a waiter lives without a call.
    pub ttl_ms: u64,
}

impl Canonicalizer<'_> {
    pub fn lock(&self, lock: &LockHash) -> LockHash {
        let ends = lock.ends.map(|ends| ends - self.by_ms);
        if ends.is_some_and(|ends| SERVER_NOW > ends) {
            return LockHash::default();
        }
        let fields = lock.fields.iter().map(|(field, value)| self.field(field, value));
        LockHash { fields: fields.collect(), ends }
    }

    fn field(&self, field: &str, value: &str) -> (String, String) {
        let number = || value.parse::<u64>().unwrap_or(0);
        let value = match field {
            "s" => self.line(value),
            "revoked_up_to" | "forced_up_to" => (self.token)(number()).to_string(),
            "read_min" => match self.round_past(number(), 0) {
                SERVER_NOW => "0".into(), // a sweep that is under way is due
                later => later.to_string(),
            },
            "writer" => self.record(value) + &self.id(&value[30..]),
            "writers_head" | "writers_tail" | "readers_head" | "readers_tail" | "upgrader"
            | "head" | "tail" => self.id(value),
            "sweep" => self.sweep(value),
            "lapsed_clients" => self.lapsed(value),
            _ => return self.field_of_one(field, value),
        };
        (field.into(), value)
    }

    /// A field whose name contains an id or an index.
    fn field_of_one(&self, field: &str, value: &str) -> (String, String) {
        match field.split_once(':') {
            Some(("r", id)) => (format!("r:{}", self.id(id)), self.record(value) + &value[30..]),
            Some(("i", _)) => {
                let id = value.strip_prefix('+'); // cached
                let mark = if id.is_some() { "+" } else { "" };
                (field.into(), mark.to_owned() + &self.id(id.unwrap_or(value)))
            }
            Some(("q", id)) => (format!("q:{}", self.id(id)), self.entry(value)),
            _ => (field.into(), value.into()),
        }
    }

    /// Rounds a time that is so long ago that its exact value does not matter.
    fn round_past(&self, ms: u64, matters_ms: u64) -> u64 {
        ms.saturating_sub(self.by_ms).max(SERVER_NOW - matters_ms)
    }

    fn id(&self, id: &str) -> String {
        match id.as_bytes().first() {
            Some(digit @ b'0'..=b'9') => {
                let client = char::from(b'0' + self.clients[usize::from(digit - b'0')]);
                client.to_string().repeat(CLIENT) + &id[CLIENT..]
            }
            _ => id.into(), // none
        }
    }

    fn line(&self, text: &str) -> String {
        let number = |from: usize, to: usize| text[from..to].parse().unwrap_or(0);
        let (life, token) = (self.round_past(number(2, 15), 0), (self.token)(number(15, 31)));
        let head = format!("{}{life:013}{token:016}", &text[..2]);
        match &text[1..2] {
            "F" | "Q" => head,
            // A record that is or was cached: its state, flags, token and id.
            _ if is_cached(text) => {
                let (deadline, token) =
                    (self.round_past(number(31, 44), 0), (self.token)(number(46, 62)));
                format!("{head}{deadline:013}{}{token:016}{}", &text[44..46], self.id(&text[62..]))
            }
            shape => {
                let (deadline, rest) = (self.round_past(number(31, 44), 0), &text[45..]);
                let (deadline, rest) = match (shape, deadline) {
                    ("P", _) if rest.ends_with(" 0") => (0, rest.into()), // it has no meaning
                    ("S" | "P", SERVER_NOW) => (0, rest.into()), // a sweep is due (see `read_min`)
                    ("S" | "P", _) => (deadline, rest.into()),
                    _ => (deadline, self.id(rest)),
                };
                format!("{head}{deadline:013}{}{rest}", &text[44..45])
            }
        }
    }

    fn record(&self, text: &str) -> String {
        let deadline: u64 = text[1..14].parse().unwrap_or(0);
        // The lapse of an unclaimed grant is compared with the times when others were seen.
        let matters = if text.starts_with('g') { self.ttl_ms + UNIT_MS } else { 0 };
        let token = (self.token)(text[14..30].parse().unwrap_or(0));
        format!("{}{:013}{token:016}", &text[..1], self.round_past(deadline, matters))
    }

    fn sweep(&self, text: &str) -> String {
        let (cursor, least) = text.split_once(' ').unwrap_or((text, "0"));
        match least.parse().unwrap_or(NEVER) {
            NEVER => text.into(),
            least => format!("{cursor} {}", self.round_past(least, 0)),
        }
    }

    fn lapsed(&self, text: &str) -> String {
        let words: Vec<&str> = text.split(' ').collect();
        let pairs = words.chunks(2).map(|pair| {
            let when = pair[1].parse().unwrap_or(0);
            format!("{} {}", self.id(pair[0]), self.round_past(when, self.ttl_ms + UNIT_MS))
        });
        pairs.collect::<Vec<_>>().join(" ")
    }

    fn entry(&self, text: &str) -> String {
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        words[1] = self.id(&words[1]);
        words[2] = self.id(&words[2]);
        words[4] = self.round_past(words[4].parse().unwrap_or(0), self.ttl_ms).to_string();
        words[11] = SERVER_NOW.to_string(); // only a query reports when it came
        words.join(" ")
    }
}

/// The line is of a record that is or was cached.
fn is_cached(line: &str) -> bool {
    line.get(44..).is_some_and(|rest| rest.starts_with(char::is_alphabetic))
}

/// All tokens of a lock.
pub fn tokens_of(lock: &LockHash) -> Vec<u64> {
    let mut tokens: Vec<u64> = Vec::new();
    for (field, value) in &lock.fields {
        let token = match field.as_str() {
            "s" if is_cached(value) => {
                tokens.extend(value[46..62].parse::<u64>());
                &value[15..31]
            }
            "s" => &value[15..31],
            "revoked_up_to" | "forced_up_to" => value.as_str(),
            "writer" => &value[14..30],
            _ if field.starts_with("r:") => &value[14..30],
            _ => continue,
        };
        tokens.extend(token.parse::<u64>());
    }
    tokens
}

/// The orders of clients to try, as the old number at each new place. Clients with the same program
/// are sorted by their states, and equal ones are tried in every order.
pub fn client_orders(groups: &[u8], states: &[u32]) -> Vec<Vec<u8>> {
    let mut by_rank: BTreeMap<(u8, u32), Vec<u8>> = BTreeMap::new();
    for (client, (group, state)) in groups.iter().zip(states).enumerate() {
        by_rank.entry((*group, *state)).or_default().push(client as u8);
    }
    let mut orders = vec![Vec::new()];
    for equal in by_rank.into_values() {
        let ways = permutations(&equal);
        let longer = |order: &Vec<u8>| {
            let ways = ways.iter().map(|way| [order.as_slice(), way].concat());
            ways.collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

fn permutations(items: &[u8]) -> Vec<Vec<u8>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in items.iter().enumerate() {
        let rest = [&items[..at], &items[at + 1..]].concat();
        let rest = permutations(&rest);
        all.extend(rest.into_iter().map(|rest| [&[*first][..], &rest].concat()));
    }
    all
}

#[test]
fn equal_clients_are_tried_in_every_order_and_others_in_one() {
    assert_eq!(client_orders(&[0, 0, 1], &[7, 5, 1]), [[1, 0, 2]]);
    assert_eq!(client_orders(&[0, 0, 1], &[7, 7, 1]), [[0, 1, 2], [1, 0, 2]]);
}
