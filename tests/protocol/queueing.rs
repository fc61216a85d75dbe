//! The queue: the order of grants.

use super::fixture::{Expect, GRANTS, HERE, Lab, Reply, id};
use super::request::Request;

/// How far a ticket that comes back may be ahead of the last one.
const LEAP: u64 = 1_000_000_000;

/// The highest possible ticket.
const HIGHEST: u64 = 1 << 53;

/// The holders, sorted.
fn holders(lab: &mut Lab) -> Vec<String> {
    let state = lab.state();
    let mut all: Vec<String> = state.reads().into_iter().chain(state.writes()).collect();
    all.sort();
    all.iter()
        .map(|id| {
            let (client, number) = id.split_at(11);
            format!("{}{}", client.trim_end_matches('_'), number.parse::<u32>().unwrap())
        })
        .collect()
}

fn place(reply: &Reply) -> (u64, u64) {
    assert_eq!(reply.status, "queued");
    (reply.number(0), reply.number(1))
}

#[test]
fn writers_go_first_in_first_out() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    for (ahead, name) in ["bob1", "cat1", "dan1"].into_iter().enumerate() {
        let queued = lab.wait_write(name).unwrap();
        assert_eq!(place(&queued), (ahead as u64 + 1, ahead as u64));
        assert_eq!(queued.number(2), ann.deadline);
    }
    for (holder, next) in [("ann1", "bob1"), ("bob1", "cat1"), ("cat1", "dan1")] {
        assert_eq!(lab.release(holder).status(), "released");
        assert_eq!(holders(&mut lab), [next]);
    }
}

#[test]
fn a_grant_lasts_for_the_waiters_own_window_and_is_claimed() {
    let mut lab = Lab::after("write ann1");
    let bob = Request::write("bob1").waiting().window(700).lease(20_000);
    lab.request(&bob).queued();
    lab.release("ann1").status();
    let granted = lab.state().writer.unwrap();
    assert!(!granted.is_claimed());
    assert_eq!(granted.deadline, lab.now() + 700);
    lab.pass(100);
    let claimed = lab.request(&bob).granted();
    assert_eq!((claimed.token, claimed.deadline), (granted.token, lab.now() + 20_000));
    assert!(lab.state().writer.unwrap().is_claimed());

    // A renewal is also a claim, for readers too.
    lab.wait_read("cat1").queued();
    lab.release("bob1").status();
    assert!(!lab.state().record(&id("cat1")).unwrap().is_claimed());
    lab.pass(100);
    let claimed = lab.renew("cat1", 5_000).unwrap();
    assert_eq!((claimed.status.as_str(), claimed.number(1)), ("renewed", lab.now() + 5_000));
    assert!(lab.state().record(&id("cat1")).unwrap().is_claimed());
    assert_eq!(lab.unchanged(|lab| lab.wait_read("cat1")).granted(), claimed.held());
}

#[test]
fn a_claim_never_shortens() {
    for by_renewal in [false, true] {
        let mut lab = Lab::after("write ann1");
        let bob = Request::write("bob1").waiting().window(5_000).lease(100);
        lab.request(&bob).queued();
        lab.release("ann1").unwrap();
        let granted = lab.state().writer.unwrap().deadline;
        let claimed = if by_renewal { lab.renew("bob1", 100) } else { lab.request(&bob) };
        assert_eq!(claimed.unwrap().held().deadline, granted);
    }
}

#[test]
fn a_waiter_that_polls_has_its_full_lease_at_once() {
    let mut lab = Lab::after("write ann1");
    let bob = Request::read("bob1").waiting().window(700).lease(20_000).ttl(60_000);
    lab.request(&bob).queued();
    lab.pass(10_000);
    assert_eq!(lab.request(&bob).granted().deadline, lab.now() + 20_000);
    assert!(lab.state().record(&id("bob1")).unwrap().is_claimed());
}

#[test]
fn readers_and_writers_take_turns() {
    let mut lab = Lab::after(
        "write ann1, wait_read r1, wait_write w1, wait_read r2, wait_write w2, wait_read r3, \
         release ann1",
    );
    assert_eq!(holders(&mut lab), ["r1", "r2", "r3"], "all that wait when a write ends");
    lab.wait_read("r4").queued();
    assert_eq!(lab.read("r9").status(), "busy", "a writer waits");
    for reader in ["r1", "r3"] {
        lab.release(reader).status();
    }
    assert_eq!(holders(&mut lab), ["r2"]);
    lab.release("r2").status();
    assert_eq!(holders(&mut lab), ["w1"], "the readers that came later wait");
    lab.wait_read("r5").queued();
    lab.release("w1").status();
    assert_eq!(holders(&mut lab), ["r4", "r5"]);
    lab.run("wait_read r6, release r4, release r5");
    assert_eq!(holders(&mut lab), ["w2"]);
    lab.release("w2").status();
    assert_eq!(holders(&mut lab), ["r6"]);
}

#[test]
fn a_write_that_runs_out_is_a_write_that_ends() {
    let mut lab =
        Lab::after("write/1000 ann1, wait_write w1, wait_read r1, pass 1000, grant_waiters");
    assert_eq!(holders(&mut lab), ["r1"]);
}

#[test]
fn waiting_readers_come_in_when_the_last_waiting_writer_leaves() {
    for dies in [false, true] {
        let mut lab = Lab::after("read/60000 ann1, wait_write/1000 w1");
        for reader in 1..=3 {
            lab.request(&Request::read(&format!("r{reader}")).waiting().ttl(30_000)).queued();
        }
        if dies {
            lab.pass(1_000);
            lab.grant_waiters().status();
        } else {
            assert_eq!(lab.release("w1").status(), "left_queue");
        }
        assert_eq!(holders(&mut lab), ["ann1", "r1", "r2", "r3"]);
    }
}

#[test]
fn readers_first_go_past_writers_of_their_kind_only() {
    let mut lab = Lab::after("read ann1");
    lab.request(&Request::write("w1").waiting().readers_first()).queued();
    lab.request(&Request::read("r1").readers_first()).granted();
    assert_eq!(lab.read("r2").status(), "busy", "a fair reader waits its turn");
    lab.wait_write("w2").queued();
    assert_eq!(lab.request(&Request::read("r3").readers_first()).status(), "busy");
    lab.request(&Request::read("r4").waiting().readers_first()).queued();
    lab.release("w2").status();
    assert_eq!(holders(&mut lab), ["ann1", "r1", "r4"]);
    for reader in ["ann1", "r1", "r4"] {
        lab.release(reader).status();
    }
    assert_eq!(holders(&mut lab), ["w1"]);
}

#[test]
fn try_write_after_a_lapsed_grant_is_refused_for_the_next_waiter() {
    let mut lab = Lab::after("write ann1, wait_write w1, release ann1, wait_read r1, pass 1000");
    // The claim window of w1 is over, and r1 is next.
    assert_eq!(lab.write("bob1").status(), "busy");
    assert_eq!(holders(&mut lab), ["r1"]);
}

/// Releases the lock of ann1, and calls `grant_waiters` while there is more to do. Returns the
/// number of waiters after each call. No call may exceed its budget.
fn release_in_batches(lab: &mut Lab) -> Vec<usize> {
    let waiters = |lab: &mut Lab| lab.state().waiters.len();
    let before = waiters(lab);
    let mut more = lab.release("ann1").unwrap().more;
    let mut left = vec![waiters(lab)];
    while more {
        more = lab.grant_waiters().unwrap().more;
        left.push(waiters(lab));
    }
    let all = [&[before], &left[..]].concat();
    assert!(all.windows(2).all(|pair| (1..=GRANTS).contains(&(pair[0] - pair[1]))), "{all:?}");
    left
}

#[test]
fn the_dead_and_the_granted_share_one_budget() {
    let mut lab = Lab::after("write/60000 ann1");
    for number in 0..50 {
        lab.request(&Request::write(&format!("dead{number}")).waiting().ttl(1_000)).queued();
    }
    lab.request(&Request::write("bob1").waiting().ttl(20_000)).queued();
    lab.pass(1_000);
    assert_eq!(release_in_batches(&mut lab).last(), Some(&0));
    assert_eq!(holders(&mut lab), ["bob1"]);
}

#[test]
fn a_try_among_the_dead_stays_in_its_budget() {
    let mut lab = Lab::after("write/1000 ann1");
    for number in 0..50 {
        let dead = format!("dead{number}");
        let request = if number % 2 == 0 { Request::write(&dead) } else { Request::read(&dead) };
        lab.request(&request.waiting().ttl(1_000)).queued();
    }
    lab.pass(1_000);
    let mut left = 50;
    loop {
        let answer = lab.write("bob1").unwrap();
        let now_left = lab.state().waiters.len();
        assert!(left - now_left <= GRANTS, "{left} to {now_left}");
        left = now_left;
        if answer.status == "granted" {
            break;
        }
        assert!(answer.more);
    }
    assert_eq!(left, 0);
}

#[test]
fn a_hundred_readers_come_in_by_batches() {
    let mut lab = Lab::after("write ann1");
    for reader in 0..100 {
        lab.wait_read(&format!("r{reader}")).queued();
    }
    lab.wait_write("w1").queued();
    let left = release_in_batches(&mut lab);
    assert!(left.len() <= 8, "{left:?}");
    assert_eq!(lab.state().reads().len(), 100);
    assert_eq!(lab.state().queue_ids('w').len(), 1);
}

#[test]
fn a_returning_waiter_has_its_old_place() {
    let mut lab = Lab::after("write/600000 ann1");
    for number in 1..=4 {
        lab.wait_write(&format!("w{number}")).queued();
    }
    lab.release("w2").status();
    lab.release("w3").status();
    let back = lab.request(&Request::write("w3").waiting().ticket(3)).unwrap();
    assert_eq!(place(&back), (3, 2));
    let back = lab.request(&Request::write("w2").waiting().ticket(2)).unwrap();
    assert_eq!(place(&back), (2, 1));
    let order = ["w1", "w2", "w3", "w4"].map(id);
    assert_eq!(lab.state().queue_ids('w'), order);
    lab.release("w1").status();
    lab.release("w4").status();
    lab.request(&Request::write("w1").waiting().ticket(1)).queued();
    lab.request(&Request::write("w4").waiting().ticket(4)).queued();
    assert_eq!(lab.state().queue_ids('w'), order);
}

#[test]
fn a_returning_waiter_never_goes_before_its_place() {
    let mut lab = Lab::after("write/600000 ann1");
    for number in 1..=80 {
        lab.wait_write(&format!("w{number}")).queued();
    }
    for number in [5, 20, 40, 60, 75] {
        let name = format!("w{number}");
        lab.release(&name).status();
        let back = Request::write(&name).waiting().ticket(number);
        assert_eq!(lab.request(&back).queued(), number);
        let queue = lab.state().queue_ids('w');
        let at = queue.iter().position(|waiter| *waiter == id(&name)).unwrap() as u64 + 1;
        assert!(at >= number, "{name} is at {at}");
        let is_near_an_end = number <= 16 || number >= 66;
        assert!(at == number || !is_near_an_end, "{name} is at {at}");
    }
}

#[test]
fn a_ticket_of_a_lost_history_counts() {
    let mut lab = Lab::after("write ann1");
    assert_eq!(lab.request(&Request::write("w7").waiting().ticket(7)).queued(), 7);
    assert_eq!(lab.wait_write("w8").queued(), 8);
    assert_eq!(lab.request(&Request::write("w3").waiting().ticket(3)).queued(), 3);
    assert_eq!(lab.state().queue_ids('w'), ["w3", "w7", "w8"].map(id));
    lab.delete();
    lab.request(&Request::write("w8").waiting().ticket(8)).granted();
}

/// However far a ticket leaps, later waiters can still poll with theirs.
#[test]
fn no_ticket_locks_later_arrivals_out() {
    for given in [9_999_999_999_999, HIGHEST] {
        let mut lab = Lab::after("write ann1");
        assert_eq!(lab.wait_write("w1").queued(), 1);
        let far = Request::write("w2").waiting().ticket(given);
        assert_eq!(lab.request(&far).queued(), 1 + LEAP, "cut to the last one and LEAP");
        assert_eq!(lab.request(&far).queued(), 1 + LEAP, "its own poll, whatever it names");
        let later = lab.wait_write("w3").queued();
        assert_eq!(later, 2 + LEAP);
        assert_eq!(lab.request(&Request::write("w3").waiting().ticket(later)).queued(), later);
        assert_eq!(
            lab.request(&Request::write("w4").waiting().ticket(given)).queued(),
            later + LEAP
        );
        assert_eq!(lab.state().queue_ids('w'), ["w1", "w2", "w3", "w4"].map(id));
    }
}

/// No ticket is beyond the highest one. Later waiters share it, in the order of their arrival.
#[test]
fn tickets_end_at_the_highest() {
    let mut lab = Lab::after("write ann1, wait_write w1");
    lab.set_field("ticket", &(HIGHEST - 1).to_string());
    for name in ["w2", "w3", "w4"] {
        let ticket = lab.wait_write(name).queued();
        assert_eq!(ticket, HIGHEST);
        assert_eq!(lab.request(&Request::write(name).waiting().ticket(ticket)).queued(), ticket);
    }
    assert_eq!(lab.request(&Request::write("w5").waiting().ticket(HIGHEST)).queued(), HIGHEST);
    assert_eq!(lab.state().queue_ids('w'), ["w1", "w2", "w3", "w4", "w5"].map(id));
    for pair in ["ann1", "w1", "w2", "w3", "w4", "w5"].windows(2) {
        lab.release(pair[0]).unwrap();
        assert_eq!(lab.state().writes(), Some(id(pair[1])));
    }
}

#[test]
fn a_client_that_let_a_grant_lapse_is_passed_over_until_it_is_seen() {
    let mut lab = Lab::after("write/60000 ann1");
    for number in 1..=20 {
        lab.request(&Request::write(&format!("gone{number}")).waiting().ttl(60_000)).queued();
    }
    lab.request(&Request::write("bob1").waiting().ttl(60_000)).queued();
    lab.release("ann1").status();
    assert_eq!(holders(&mut lab), ["gone1"]);
    lab.pass(1_000);
    lab.grant_all();
    assert_eq!(holders(&mut lab), ["bob1"], "one window for all that it waits for");

    // It was stopped and continues, and gets its places back.
    lab.pass(10);
    lab.request(&Request::write("gone9").waiting().ticket(9)).queued();
    lab.request(&Request::write("gone5").waiting().ticket(5)).queued();
    lab.release("bob1").status();
    assert_eq!(holders(&mut lab), ["gone5"]);
}

/// The number of windows until clients that are gone have been passed over. Each of these clients
/// waits three times.
fn windows_lost(gone: &[&str]) -> u32 {
    let mut lab = Lab::after("write/60000 ann1");
    let wait = |name: String| Request::write(&name).waiting().ttl(200_000);
    for number in 1..=3 {
        for client in gone {
            lab.request(&wait(format!("{client}{number}"))).queued();
        }
    }
    lab.request(&wait("bob1".into())).queued();
    lab.release("ann1").status();
    let mut windows = 0;
    while holders(&mut lab) != ["bob1"] {
        lab.pass(1_000);
        lab.grant_all();
        windows += 1;
    }
    windows
}

/// So many clients are remembered. One more, and each is forgotten before its next turn.
#[test]
fn each_of_many_clients_that_are_gone_costs_one_window() {
    let letter = |number: u8| char::from(b'a' + number);
    let name = |number: u8| format!("gone{}{}", letter(number / 26), letter(number % 26));
    let names: Vec<String> = (0..33).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(windows_lost(&names[..6]), 6);
    assert_eq!(windows_lost(&names[..32]), 32);
    assert_eq!(windows_lost(&names), 99);
}

/// A reader lets its grant lapse while its client, and then these, wait to write.
fn lapsed_beside(others: &[&str]) -> Lab {
    let mut lab = Lab::after("write/60000 ann1, wait_read/60000 gone1");
    for name in ["gone2"].iter().chain(others) {
        lab.request(&Request::write(name).waiting().ttl(60_000)).queued();
    }
    lab.release("ann1").status();
    assert_eq!(holders(&mut lab), ["gone1"]);
    lab.pass(1_000);
    lab.grant_waiters().unwrap();
    lab
}

#[test]
fn a_reader_that_let_a_grant_lapse_counts_too() {
    assert_eq!(holders(&mut lapsed_beside(&["bob1"])), ["bob1"]);
}

/// The lapse is known before the release, which is a plain hand-off otherwise.
#[test]
fn hand_off_passes_over_a_client_that_let_a_grant_lapse() {
    let mut lab = Lab::after("write ann1");
    let (read, write) = (["gone1", "bob1"], ["cat1", "gone2", "dan1"]);
    for request in read.map(Request::read).into_iter().chain(write.map(Request::write)) {
        lab.request(&request.waiting().ttl(60_000)).queued();
    }
    lab.run("release ann1, renew/60000 bob1, pass 1000, grant_waiters");
    for (holder, next) in [("bob1", "cat1"), ("cat1", "dan1")] {
        lab.renew(holder, 60_000).status();
        lab.pass(1);
        lab.release(holder).status();
        assert_eq!(holders(&mut lab), [next]);
    }
}

#[test]
fn the_lock_is_free_when_the_client_of_the_only_waiter_is_gone() {
    let mut lab = lapsed_beside(&[]);
    assert_eq!((holders(&mut lab), lab.shape().0), (vec![], "F".into()));
}

#[test]
fn a_claimed_lease_that_runs_out_is_no_lapse() {
    let mut lab = Lab::after(
        "write/1000 ann1, wait_write/60000 ann2, wait_write/60000 bob1, pass 1000, grant_waiters",
    );
    assert_eq!(holders(&mut lab), ["ann2"]);
}

#[test]
fn a_grant_that_was_forced_out_is_no_lapse() {
    let mut lab =
        Lab::after("write ann1, wait_read ann2, wait_write ann3, wait_write bob1, release ann1");
    assert_eq!(holders(&mut lab), ["ann2"]);
    assert_eq!(lab.force().status(), "forced");
    assert_eq!(holders(&mut lab), ["ann3"], "its client is not gone");
}

#[test]
fn readers_are_let_in_when_the_sweep_shows_that_the_waiting_writer_is_gone() {
    let mut lab = Lab::after(
        "write ann1, wait_read bob1, wait_read gone1, wait_write/60000 gone2, release ann1, \
         renew/60000 bob1, wait_read/60000 cat1, pass 1000, grant_waiters",
    );
    assert_eq!(holders(&mut lab), ["bob1", "cat1"]);
}

#[test]
fn a_queue_has_a_limit() {
    let mut lab = Lab::after("write ann1");
    lab.request(&Request::write("w1").waiting().limit(2)).queued();
    lab.request(&Request::read("r1").waiting().limit(2)).queued();
    for request in [Request::write("w2"), Request::read("r2")] {
        let full = lab.unchanged(|lab| lab.request(&request.clone().waiting().limit(2))).unwrap();
        assert_eq!((full.status.as_str(), full.number(0)), ("queue_full", 2));
    }
    lab.request(&Request::write("w1").waiting().limit(2)).queued();
    lab.request(&Request::write("w3").waiting().limit(3)).queued();
    assert_eq!(lab.request(&Request::write("w4").waiting().limit(0)).status(), "queue_full");
    let mut free = Lab::new();
    free.request(&Request::write("w1").waiting().limit(0)).granted();
}

#[test]
fn dead_waiters_at_the_heads_do_not_fill_a_queue() {
    // Granting reaches no waiter while a writer holds, nor while an upgrader waits.
    let upgrading = "read/60000 ann1, read/60000 bob1, wait_upgrade ann1";
    for (start, others) in [("write/60000 ann1", 0), (upgrading, 1)] {
        let limit = others + 2;
        let mut lab = Lab::after(start);
        for dead in [Request::write("dead1"), Request::read("dead2")] {
            lab.request(&dead.waiting().ttl(1_000).limit(limit)).queued();
        }
        let late = |name: &str| Request::write(name).waiting().ttl(60_000).limit(limit);
        assert_eq!(lab.request(&late("w1")).status(), "queue_full");
        lab.pass(1_000);
        let none = late("w1").limit(0);
        let full = lab.unchanged(|lab| lab.request(&none)).unwrap();
        assert_eq!((full.status.as_str(), full.more), ("queue_full", false), "no place at all");
        lab.request(&late("w1")).queued();
        lab.request(&late("w2")).queued();
        assert_eq!(lab.state().queue_ids('w'), ["w1", "w2"].map(id));
        assert_eq!(lab.request(&late("w3")).status(), "queue_full", "{start}");
    }
    // A dead waiter behind a living head has its place until the head goes.
    let mut lab = Lab::after("write/60000 ann1");
    lab.request(&Request::write("bob1").waiting().ttl(60_000).limit(2)).queued();
    lab.request(&Request::write("dead1").waiting().ttl(1_000).limit(2)).queued();
    lab.pass(1_000);
    let late = Request::write("cat1").waiting().limit(2);
    assert_eq!(lab.request(&late).status(), "queue_full");
    lab.release("bob1").status();
    lab.request(&late).queued();
}

#[test]
fn dead_waiters_of_a_full_queue_are_dropped_within_the_budget() {
    let mut lab = Lab::after("write/60000 ann1");
    let dead = 2 * GRANTS + 8;
    for number in 0..dead {
        let name = format!("dead{number}");
        let request = if number % 2 == 0 { Request::write(&name) } else { Request::read(&name) };
        lab.request(&request.waiting().ttl(1_000)).queued();
    }
    lab.pass(1_000);
    let late = Request::read("bob1").waiting().limit(4);
    for left in [dead - GRANTS, dead - 2 * GRANTS] {
        let full = lab.request(&late).unwrap();
        assert_eq!((full.status.as_str(), full.more), ("queue_full", true));
        assert_eq!((full.number(0), lab.state().waiters.len()), (left as u64, left));
    }
    let queued = lab.request(&late).unwrap();
    assert_eq!((queued.status.as_str(), queued.more), ("queued", false));
    assert_eq!(lab.state().queue_ids('r'), [id("bob1")]);
}

#[test]
fn a_try_that_meets_too_many_dead_waiters_of_a_cached_lock_is_to_be_repeated() {
    let mut lab = Lab::new();
    lab.request(&Request::write("ann1").cached(1).lease(60_000)).granted();
    for number in 0..GRANTS + 8 {
        let dead = Request::write(&format!("dead{number}")).waiting().ttl(1_000);
        lab.request(&dead).queued();
    }
    lab.pass(1_000);
    let first = lab.write("bob1").unwrap();
    assert_eq!((first.status.as_str(), first.more), ("busy", true));
    let second = lab.write("bob1").unwrap();
    assert_eq!((second.status.as_str(), second.more), ("recalling", false));
}

#[test]
fn a_poll_keeps_a_waiter_alive_and_changes_its_wishes() {
    let mut lab = Lab::after("write/60000 ann1");
    let ticket = lab.request(&Request::write("bob1").waiting().ttl(1_000)).queued();
    for _ in 0..5 {
        lab.pass(900);
        let poll = Request::write("bob1").waiting().ttl(1_000).window(300).ticket(ticket);
        assert_eq!(lab.request(&poll).queued(), ticket);
    }
    lab.pass(900);
    lab.release("ann1").status();
    let granted = lab.state().writer.unwrap();
    assert_eq!((granted.id, granted.deadline), (id("bob1"), lab.now() + 300));
}

#[test]
fn a_late_poll_finds_its_claim_lapsed_and_waits_again() {
    let mut lab = Lab::after("write ann1");
    let ticket = lab.wait_write("bob1").queued();
    lab.run("wait_write cat1, release ann1, pass 1000");
    // No other waiter has polled. bob has the first ticket, and its poll shows that it lives.
    lab.request(&Request::write("bob1").waiting().ticket(ticket)).granted();
    lab.release("bob1").status();
    assert_eq!(holders(&mut lab), ["cat1"]);
    lab.pass(1_000);
    lab.write("dan1").granted();
    assert_eq!(lab.request(&Request::write("cat1").waiting().ticket(2)).queued(), 2);
}

#[test]
fn an_inspection_tells_all_page_by_page() {
    let mut lab = Lab::new();
    let inspected = lab.inspect().unwrap();
    assert_eq!((inspected.status.as_str(), inspected.rest.len()), ("not_found", 0));
    let mut tokens = Vec::new();
    for reader in 0..7 {
        tokens.push(lab.read(&format!("r{reader}")).granted().token);
    }
    for waiter in 0..5 {
        lab.wait_write(&format!("w{waiter}")).queued();
        lab.wait_read(&format!("q{waiter}")).queued();
    }
    lab.revoke().status();
    lab.wait_upgrade("r3", tokens[3]).status();
    let page = |lab: &mut Lab, args: &[&str]| {
        let args: Vec<&str> = [HERE].iter().chain(args).copied().collect();
        lab.unchanged(|lab| lab.send("inspect", &args)).unwrap()
    };
    let first = page(&mut lab, &["0", "-", "-", "3"]);
    assert_eq!((first.status.as_str(), first.more), ("lock", false));
    assert_eq!(first.number(0), tokens[6]);
    assert_eq!((first.text(1), first.number(2), first.number(3)), (String::new(), 7, 10));
    assert_eq!((first.list(4), first.number(5)), (Vec::new(), tokens[6]));
    let names = |list: Vec<String>| list.chunks(2).map(|pair| pair[0].clone()).collect::<Vec<_>>();
    assert_eq!(names(first.list(6)), ["r0", "r1", "r2"].map(id));
    assert_eq!(names(first.list(7)), ["w0", "w1", "w2"].map(id));
    assert_eq!(names(first.list(8)), ["q0", "q1", "q2"].map(id));
    let last = page(&mut lab, &["5", &id("w3"), &id("q4"), "100"]);
    assert_eq!(names(last.list(6)), ["r5", "r6"].map(id));
    assert_eq!(names(last.list(7)), ["w3", "w4"].map(id));
    assert_eq!(names(last.list(8)), ["q4"].map(id));
    let beyond = page(&mut lab, &["7", &id("nobody1"), &id("nobody1"), "100"]);
    assert!((6..9).all(|at| beyond.list(at).is_empty()));

    let mut lab = Lab::after("write ann1");
    let inspected = lab.inspect().unwrap();
    assert!(inspected.text(1).starts_with('h') && inspected.text(1).ends_with(&id("ann1")));

    let mut lab = Lab::new();
    let token = lab.read("ann1").granted().token;
    lab.read("bob1").granted();
    lab.wait_upgrade("ann1", token).status();
    let upgrader = lab.inspect().unwrap().list(4);
    assert!(
        upgrader.len() == 2 && upgrader[0] == id("ann1") && upgrader[1].starts_with("u - - "),
        "{upgrader:?}"
    );
}
