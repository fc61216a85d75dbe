//! The short path of the most common hand-off does the same as the slow path: both carry out the
//! same release, over random queues.

use std::collections::BTreeMap;

use fastrand::Rng;
use redis::cmd;

use super::lab::{Answer, HERE, Lab, channel, id, start};
use super::request::Request;

const ROUNDS: u32 = 300;

#[test]
fn the_short_cut_does_what_the_slow_path_does() {
    let seed = std::env::var("RWLEASE_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("RWLEASE_SEED={seed}");
    let (server, mut random) = (start(""), Rng::with_seed(seed));
    let mut short = 0;
    for _ in 0..ROUNDS {
        let mut lab = Lab::on(&server);
        queue_up(&mut lab, &mut random);
        short += u32::from(is_short_and_the_same(&mut lab));
    }
    assert!(short > ROUNDS / 10, "the short cut was taken {short} times");
}

/// More waiters are gone than one release passes over.
#[test]
fn the_short_cut_counts_against_the_budget() {
    let server = start("");
    let mut lab = Lab::on(&server);
    lab.write("ann1").unwrap();
    for number in 0..30 {
        let gone = Request::write(&format!("gone{number}")).waiting().subscribed(HERE);
        lab.request(&gone).unwrap();
    }
    is_short_and_the_same(&mut lab);
}

/// Carries out the release both ways, which must have the same effects. Returns whether the first
/// one took the short cut.
fn is_short_and_the_same(lab: &mut Lab) -> bool {
    let before = Before::of(lab);
    let quick = released(lab, false);
    let is_short = before.fields.contains_key("waiters") && quick.looks == 1;
    before.restore(lab);
    let full = released(lab, true);
    assert_eq!(quick.effects, full.effects, "from {:#?}", before.fields);
    is_short
}

/// `ann1` holds, alone in most cases. Others wait, most of them to write.
fn queue_up(lab: &mut Lab, random: &mut Rng) {
    let reads = random.u32(..3) == 0;
    lab.request(&if reads { Request::read("ann1") } else { Request::write("ann1") }).unwrap();
    if reads && random.u32(..4) == 0 {
        lab.read("ann2").unwrap();
    }
    for number in 1..=random.u32(1..5) {
        let name = format!("{}{number}", random.choice(["bob", "cat", "gone"]).unwrap());
        let request =
            if random.u32(..8) == 0 { Request::read(&name) } else { Request::write(&name) };
        let request = request.waiting().ttl(random.choice([300, 5_000]).unwrap());
        let request = request.window(random.choice([500, 15_000, 60_000]).unwrap());
        let request = if random.u32(..4) == 0 { request.readers_first() } else { request };
        let request = match random.u32(..4) {
            0 => request,
            1 => request.subscribed("there"),
            _ => request.subscribed(HERE),
        };
        lab.request(&request).unwrap();
        lab.pass(random.u64(..200));
    }
    if lab.shape().0 == "Q" && random.u32(..6) == 0 {
        let client = &id(random.choice(["bob1", "eve1"]).unwrap())[..11];
        let lapsed = format!("{client} {}", lab.now());
        lab.set_field("lapsed", &lapsed);
    }
}

/// A lock before the release, and the time.
struct Before {
    fields: BTreeMap<String, String>,
    ends: Option<u64>,
    us: u64,
}

impl Before {
    fn of(lab: &mut Lab) -> Before {
        let (_, fields, ends) = lab.snapshot();
        let us = lab.now_us();
        Before { fields, ends, us }
    }

    fn restore(&self, lab: &mut Lab) {
        lab.delete();
        for (field, value) in &self.fields {
            lab.set_field(field, value);
        }
        let key = lab.key().to_owned();
        lab.command::<()>(cmd("PEXPIREAT").arg(key).arg(self.ends));
        lab.set_clock(self.us);
    }
}

struct Release {
    effects: Effects,
    /// How often many fields were read at once. The short path does so, and so does the slow path.
    looks: u64,
}

#[derive(Debug, PartialEq)]
struct Effects {
    answer: Answer,
    fields: BTreeMap<String, String>,
    ends: Option<u64>,
    told: Vec<String>,
}

/// Listens for `bob` and `cat`, but not for `gone`.
fn released(lab: &mut Lab, slow_path: bool) -> Release {
    let listening = ["bob", "cat"].map(|client| lab.listen(&channel(client)));
    lab.command::<()>(cmd("CONFIG").arg("RESETSTAT"));
    lab.slow_path = slow_path;
    let mut answer = lab.release("ann1");
    lab.slow_path = false;
    if let Ok(reply) = &mut answer {
        reply.now = 0; // a usual release need not return it
    }
    let looks = looks(lab);
    let (_, fields, ends) = lab.snapshot();
    let told = listening.into_iter().flat_map(|client| client.heard()).collect();
    let effects = Effects { answer, fields, ends, told };
    Release { effects, looks }
}

fn looks(lab: &mut Lab) -> u64 {
    let stats: String = lab.command(cmd("INFO").arg("commandstats"));
    let count = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hmget:calls="));
    count.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}
