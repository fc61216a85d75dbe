//! Small random histories, good and bad ones, on which the judge and the search must agree.

use crate::history::Hold;
use crate::history::search::{has_order, is_good};

/// A history that keeps all promises. Requests and ends lie within the bounds.
fn good(rng: &mut fastrand::Rng) -> Vec<Hold> {
    let (mut now, mut token) = (10, 1);
    let mut holds = Vec::new();
    for id in 0..rng.usize(2..7) {
        let writes = rng.bool();
        now += rng.u64(0..4);
        token += 1;
        let (requested, granted) = (now - rng.u64(0..6), now + rng.u64(0..3));
        let end = granted + rng.u64(0..4);
        let shares = (!writes && rng.u8(0..3) == 0).then_some(1);
        now = if writes { end } else { now };
        let times = Hold { requested, granted, end, gone: end, ..Hold::default() };
        holds.push(Hold { id, writes, token, shares, ..times });
    }
    holds
}

/// The same history with something changed.
fn changed(rng: &mut fastrand::Rng, mut holds: Vec<Hold>) -> Vec<Hold> {
    for _ in 0..rng.u8(0..3) {
        let place = rng.usize(0..holds.len());
        let token = holds[rng.usize(0..holds.len())].token;
        let hold = &mut holds[place];
        match rng.u8(0..5) {
            0 => hold.token = token,
            1 => hold.token += rng.u64(0..3),
            2 => hold.end += rng.u64(0..6),
            3 => hold.requested = hold.granted.min(hold.requested + rng.u64(0..5)),
            _ => hold.shares = hold.shares.xor(Some(rng.usize(0..2))),
        }
    }
    holds
}

#[test]
fn judge_and_search_agree_on_lock_histories() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut good_ones, mut bad_ones) = (0, 0);
    for _ in 0..4_000 {
        let holds = good(&mut rng);
        let holds = changed(&mut rng, holds);
        let (judged, searched) = (is_good(&holds), has_order(&holds));
        assert_eq!(judged, searched, "{holds:#?}");
        good_ones += u32::from(judged);
        bad_ones += u32::from(!judged);
    }
    assert!(good_ones > 500 && bad_ones > 500, "{good_ones} good ones, {bad_ones} bad ones");
}
