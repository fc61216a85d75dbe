//! Compares the fast paths of the scripts with the same scripts without them. Both get the same
//! random history, and each call must give the same reply, the same hash, the same expiry and the
//! same pushes. The calls of a lock on the fast side must also keep all rules of a step.
//!
//! These differences are allowed: the expiry of a key that a usual release has left idle, and what
//! means nothing in it; dead readers that a usual release has not looked for, and with them the
//! places of the others, lapses and a sweep; the lower bound of the readers' deadlines; and the
//! flag of a long lease, if the expiry no longer needs lowering. After such a difference, both
//! continue from the state of the fast path.
//!
//! Time is given to the scripts, and sometimes goes back. Claim windows and times to live are
//! short, so that events which are rare elsewhere are frequent here. The number of times that each
//! fast path was taken and each rare state was reached must not be too low.
//!
//! `make twin STEPS=500000` is the long form (`ON=server` on two real servers instead of engines).
//! `RWLEASE_SEED=n` starts with that round. `RWLEASE_LUA` names another folder of scripts, to be
//! compared with itself without its fast paths.

mod census;
mod difference;
mod permits;
mod round;
pub mod scripts;

use std::env;

use census::Census;
use permits::PermitRound;
use round::{ROUND, Round};
use rwlease::embedded::EmbeddedCluster;
use scripts::{SLOW_PATH, ScriptFiles};

use crate::engine::Engine;
use crate::random_calls::heard_channels;
use crate::real::RealSubscriber;
use crate::side::{CommandServer, Pair, Side};

/// The steps of the short form.
const STEPS: u64 = 20_000;

/// From this many steps on, no count may be too low, whatever the seed.
const ENOUGH: u64 = 5 * STEPS;

/// The seeds of rounds that have shown a difference once: a hand-off that nobody heard did not
/// count against the budget of the call; a try that waits for cached holders, by one that read, was
/// refused or not.
const SHOWN: [u64; 2] = [8627494231490518533, 20_000_026];

/// What is compared: two sets of scripts.
struct Twins {
    /// With and without the fast paths.
    pair: Pair,
    /// Whether all rounds are of crowds.
    crowds: bool,
    census: Census,
}

impl Twins {
    fn new(
        quick: &ScriptFiles,
        slow: &ScriptFiles,
        start: fn() -> Box<dyn CommandServer>,
    ) -> Twins {
        Twins {
            pair: Pair::new([quick, slow].map(|files| Side::new(start(), files.scripts()))),
            crowds: false,
            census: Census::default(),
        }
    }

    /// The scripts that are looked at, and the same without their fast paths.
    fn of_the_scripts(start: fn() -> Box<dyn CommandServer>) -> Twins {
        Twins::new(&ScriptFiles::as_they_are(), &ScriptFiles::without_usual_paths(), start)
    }

    /// The same for crowds, both with few grants in one call. The counts go on.
    fn with_few_grants(self, start: fn() -> Box<dyn CommandServer>) -> Twins {
        let [quick, slow] = [ScriptFiles::as_they_are(), ScriptFiles::without_usual_paths()];
        let twins = Twins::new(&quick.with_few_grants(), &slow.with_few_grants(), start);
        Twins { crowds: true, census: self.census, ..twins }
    }

    /// So many steps, in rounds that each begin with nothing and have a seed of their own. The
    /// first difference, if there is one.
    fn compare(&mut self, first_seed: u64, steps: u64) -> Result<(), String> {
        (first_seed..first_seed + steps.div_ceil(ROUND))
            .try_for_each(|seed| Round::new(self, seed).run())
    }

    /// So many steps of semaphores, as in `compare`.
    fn compare_permits(&mut self, first_seed: u64, steps: u64) -> Result<(), String> {
        (first_seed..first_seed + steps.div_ceil(ROUND))
            .try_for_each(|seed| PermitRound::new(self, seed).run())
    }
}

/// The channels with a subscriber.
fn channels() -> impl Iterator<Item = String> {
    heard_channels().chain([SLOW_PATH.into()])
}

fn start_embedded() -> Box<dyn CommandServer> {
    Box::new(Engine::start(EmbeddedCluster::builder().manual_time(), channels()))
}

fn start_real() -> Box<dyn CommandServer> {
    Box::new(RealSubscriber::start(channels()))
}

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|number| number.parse().ok())
}

#[test]
fn script_fast_paths_equal_the_slow_path() {
    let mut twins = Twins::of_the_scripts(start_embedded);
    let seed = setting("RWLEASE_SEED");
    twins.compare(seed.unwrap_or(1), STEPS).unwrap();
    for shown in SHOWN {
        twins.compare(shown, ROUND).unwrap();
    }
    twins = twins.with_few_grants(start_embedded);
    twins.compare(seed.unwrap_or(1_000), STEPS).unwrap();
    if seed.is_none() {
        twins.census.must_be_rich(census::LEAST);
        twins.compare(fastrand::u64(1_000_000..u64::MAX / 2), STEPS / 10).unwrap();
    }
}

#[test]
fn semaphore_fast_paths_equal_the_slow_path() {
    let mut twins = Twins::of_the_scripts(start_embedded);
    let seed = setting("RWLEASE_SEED");
    twins.compare_permits(seed.unwrap_or(1), STEPS / 2).unwrap();
    twins = twins.with_few_grants(start_embedded);
    twins.compare_permits(seed.unwrap_or(1_000), STEPS / 2).unwrap();
    if seed.is_none() {
        twins.census.must_be_rich(permits::LEAST);
        twins.compare_permits(fastrand::u64(1_000_000..u64::MAX / 2), STEPS / 10).unwrap();
    }
}

#[test]
fn script_fast_paths_equal_the_slow_path_on_a_server() {
    let mut twins = Twins::of_the_scripts(start_real);
    twins.compare(1, STEPS / 10).unwrap();
    twins.compare_permits(1, STEPS / 10).unwrap();
}

/// Else two equal folders would be equal whatever the comparison overlooks.
#[test]
fn compare_finds_a_difference_in_reply_hash_expiry_or_push() {
    let differences = [
        // In a reply; in the hash; in the end of the key's life; in a push.
        (
            "lib/enqueue.lua",
            "ok_reply('queue_full', has_more_work, number('waiters'))",
            "ok_reply('queue_full', has_more_work, 7)",
        ),
        (
            "lib/readers.lua",
            "string.sub(record, 1, 30) .. index ..",
            "string.sub(record, 1, 30) .. '0' .. index ..",
        ),
        (
            "lib/flush.lua",
            "needed_expiry + (shape == 'N' and 0 or EXPIRY_SLACK)",
            "needed_expiry + (shape == 'N' and 0 or EXPIRY_SLACK + 1)",
        ),
        ("lib/notify.lua", "' %s %.0f %.0f'", "'  %s %.0f %.0f'"),
    ];
    for (file, old, new) in differences {
        let mut changed = ScriptFiles::as_they_are();
        changed.change(file, old, new);
        let mut twins = Twins::new(&changed, &ScriptFiles::without_usual_paths(), start_embedded);
        assert!(twins.compare(1, STEPS).is_err(), "{new}");
        if file != "lib/readers.lua" {
            assert!(twins.compare_permits(1, STEPS).is_err(), "of permits: {new}");
        }
    }
    for (old, new) in [
        ("used - permits ..", "used - 1 .."),
        ("' ' .. last_index, unpack", "' ' .. holders, unpack"),
    ] {
        let mut changed = ScriptFiles::as_they_are();
        changed.change("semaphore/release.lua", old, new);
        let mut twins = Twins::new(&changed, &ScriptFiles::without_usual_paths(), start_embedded);
        assert!(twins.compare_permits(1, STEPS).is_err(), "{new}");
    }
}

/// `make twin`
#[test]
#[ignore = "takes as long as STEPS says"]
fn script_fast_paths_equal_the_slow_path_for_many_steps() {
    let steps = setting("STEPS").unwrap_or(500_000);
    let first = setting("RWLEASE_SEED").unwrap_or_else(|| fastrand::u64(1_000_000..u64::MAX / 2));
    let on_servers = env::var("ON").is_ok_and(|on| on == "server");
    println!("{steps} steps from RWLEASE_SEED={first} on");
    let start = if on_servers { start_real } else { start_embedded };
    let mut twins = Twins::of_the_scripts(start);
    let mut outcome = twins.compare(first, steps);
    if outcome.is_ok() {
        twins = twins.with_few_grants(start);
        outcome = twins.compare(first, steps / 2);
    }
    println!("{}", twins.census);
    outcome.unwrap();
    if steps >= ENOUGH {
        twins.census.must_be_rich(census::LEAST);
    }
    let mut twins = Twins::of_the_scripts(start);
    outcome = twins.compare_permits(first, steps / 2);
    if outcome.is_ok() {
        twins = twins.with_few_grants(start);
        outcome = twins.compare_permits(first, steps / 2);
    }
    println!("{}", twins.census);
    outcome.unwrap();
    if steps >= ENOUGH {
        twins.census.must_be_rich(permits::LEAST);
    }
}
