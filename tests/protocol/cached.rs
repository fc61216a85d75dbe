//! Holders with a cached lock: which requests recall them, what a try returns meanwhile, and who
//! owns the tokens.

use super::fixture::{Answer, BLOCK, Expect, HERE, Lab, Listener, PASS, TAG, alone, id};
use super::request::Request;
use super::state_line_shapes::follow;
use testkit::Server;

fn write(name: &str) -> Request {
    Request::write(name).cached(BLOCK)
}

fn read(name: &str) -> Request {
    Request::read(name).cached(BLOCK)
}

/// The last two words of the answer to a cached holder: the last token, and what recalls it.
#[track_caller]
fn told(answer: &Answer) -> (u64, String) {
    let reply = answer.as_ref().unwrap();
    assert_eq!(reply.rest.len(), 4, "{reply:?}");
    (reply.number(2), reply.text(3))
}

#[track_caller]
fn recalled(answer: &Answer) -> String {
    told(answer).1
}

/// The mark of a holder.
#[track_caller]
fn mark(lab: &mut Lab, name: &str) -> char {
    let (state, id) = (lab.state(), id(name));
    state.record(&id).expect("it holds").state
}

/// A listener for the recalls of a client, with the messages since the last query.
struct Channel(&'static str, Listener);

/// A lock on a server of the test's own, and the recalls of ann.
fn listening() -> (Server, Lab, Channel) {
    let (server, mut lab) = alone();
    let ann = Channel::of(&mut lab, "ann");
    (server, lab, ann)
}

impl Channel {
    fn of(lab: &mut Lab, client: &'static str) -> Channel {
        Channel(client, lab.listen_as(client))
    }

    /// The messages since the last query.
    fn heard(&mut self, lab: &mut Lab) -> Vec<String> {
        let next = lab.listen_as(self.0);
        std::mem::replace(&mut self.1, next).heard()
    }

    #[track_caller]
    fn hears(&mut self, lab: &mut Lab, expected: &[(&str, &str)]) {
        let (heard, now) = (self.heard(lab), lab.now());
        let message = |(mode, name): &(&str, &str)| format!("{now} {mode} {}", id(name));
        let expected: Vec<String> = expected.iter().map(message).collect();
        assert_eq!(heard, if lab.has_push() { expected } else { vec![] });
    }

    /// The number of messages since the last query.
    fn count(&mut self, lab: &mut Lab) -> usize {
        self.heard(lab).len()
    }
}

fn waits(request: Request) -> Request {
    request.waiting().ttl(60_000)
}

#[test]
fn any_call_calls_back_a_sole_holder_once() {
    for (holder, caller, mode) in [
        (write("ann1"), Request::write("bob1"), "w"),
        (write("ann1"), Request::read("bob1"), "r"),
        (read("ann1"), Request::write("bob1"), "w"),
    ] {
        let (_server, mut lab, mut ann) = listening();
        lab.request(&holder).granted();
        assert_eq!(mark(&mut lab, "ann1"), 'k');
        assert_eq!(lab.request(&caller).status(), "recalling");
        ann.hears(&mut lab, &[(mode, "ann1")]);
        assert_eq!(mark(&mut lab, "ann1"), 'c');
        lab.unchanged(|lab| lab.request(&caller)).status();
        ann.hears(&mut lab, &[]);
    }
}

#[test]
fn the_first_of_the_queue_asks_again_and_nobody_else() {
    for holder in [write("ann1"), read("ann1")] {
        let (_server, mut lab, mut ann) = listening();
        lab.request(&holder).granted();
        let (bob, cat) = (waits(Request::write("bob1")), waits(Request::write("cat1")));
        lab.request(&bob).queued();
        ann.hears(&mut lab, &[("w", "ann1")]);
        lab.request(&cat).queued();
        lab.request(&cat).queued();
        ann.hears(&mut lab, &[]);
        lab.request(&bob).queued();
        ann.hears(&mut lab, &[("w", "ann1")]);
        lab.release("bob1").unwrap();
        lab.request(&cat).queued();
        ann.hears(&mut lab, &[("w", "ann1")]);
    }
}

#[test]
fn queued_writer_behind_a_mark_recalls_the_cached_lease_again() {
    let (_server, mut lab, mut ann) = listening();
    lab.request(&write("ann1")).granted();
    lab.write("bob1").status();
    ann.hears(&mut lab, &[("w", "ann1")]);
    lab.request(&waits(Request::write("cat1"))).queued();
    ann.hears(&mut lab, &[("w", "ann1")]);
}

#[test]
fn a_recall_says_whether_only_readers_wait() {
    let (_server, mut lab, mut ann) = listening();
    let held = lab.request(&write("ann1"));
    assert_eq!(recalled(&held), "-");
    let bob = waits(Request::read("bob1"));
    lab.request(&bob).queued();
    ann.hears(&mut lab, &[("r", "ann1")]);
    assert_eq!(recalled(&lab.renew_cached("ann1", 10_000, BLOCK)), "r");
    lab.request(&waits(Request::write("cat1"))).queued();
    ann.hears(&mut lab, &[("w", "ann1")]);
    lab.request(&bob).queued();
    ann.hears(&mut lab, &[("w", "ann1")]);
    assert_eq!(recalled(&lab.renew_cached("ann1", 10_000, BLOCK)), "w");
}

#[test]
fn cached_renewal_with_lost_mark_is_recalled_by_the_queue() {
    let mut lab = Lab::after("cached_write ann1, wait_write bob1");
    // As if a failover had lost the mark.
    let record = lab.state().stored["writer"].replacen('c', "k", 1);
    lab.set_field("writer", &record);
    assert_eq!(recalled(&lab.renew_cached("ann1", 10_000, BLOCK)), "w");
    assert_eq!(recalled(&lab.request(&write("ann1"))), "w");
    lab.release("bob1").unwrap();
    assert_eq!(recalled(&lab.renew_cached("ann1", 10_000, BLOCK)), "-");
    // A mark that a try left counts too.
    lab.write("cat1").status();
    assert_eq!(recalled(&lab.renew_cached("ann1", 10_000, BLOCK)), "w");
}

#[test]
fn a_reader_joins_cached_readers_and_calls_nobody_back() {
    let (_server, mut lab, mut ann) = listening();
    lab.run("cached_read ann1, cached_read ann2, read bob1");
    ann.hears(&mut lab, &[]);
    let state = lab.state();
    assert_eq!((state.number("cached_readers"), state.number("readers")), (2, 3));
    for name in ["ann1", "bob1", "ann2"] {
        lab.release(name).unwrap();
    }
    assert_eq!(lab.shape(), ("F".into(), vec![]));
}

/// Lets many readers hold. Returns the names of the cached ones.
fn crowd(lab: &mut Lab, readers: usize) -> Vec<String> {
    let mut cached = Vec::new();
    for number in 1..=readers {
        let name = format!("ann{number}");
        match number % 5 {
            0 => lab.request(&Request::read(&name).lease(60_000)).granted(),
            _ => {
                cached.push(name.clone());
                lab.request(&read(&name).lease(60_000)).granted()
            }
        };
    }
    cached
}

#[test]
fn a_pass_asks_each_cached_reader_once_in_steps() {
    let (_server, mut lab, mut ann) = listening();
    let cached = crowd(&mut lab, 45);
    let bob = waits(Request::write("bob1"));
    for _ in 0..2 {
        let mut answer = lab.request(&bob);
        answer.queued();
        let mut heard = vec![ann.count(&mut lab)];
        assert_eq!(lab.state().recall_cursor(), Some(44 - PASS as i64));
        while answer.unwrap().more {
            assert!(heard.len() < 3, "{heard:?}");
            answer = lab.grant_waiters();
            heard.push(ann.count(&mut lab));
        }
        assert_eq!(heard.len(), 3, "45 readers in steps of 16");
        let all = if lab.has_push() { cached.len() } else { 0 };
        assert_eq!(heard.iter().sum::<usize>(), all);
        assert_eq!(lab.state().recall_cursor(), Some(-1));
        lab.unchanged(|lab| lab.grant_waiters()).unwrap();
        assert_eq!(ann.count(&mut lab), 0, "the poll begins anew, `grant_waiters` does not");
    }
}

/// One reader is left for the last step.
#[test]
fn a_pass_goes_on_for_one_reader() {
    let (_server, mut lab) = alone();
    crowd(&mut lab, PASS + 1);
    assert!(lab.request(&waits(Request::write("bob1"))).unwrap().more);
    assert_eq!(lab.state().recall_cursor(), Some(0));
    assert!(!lab.grant_waiters().unwrap().more);
    assert_eq!(lab.state().recall_cursor(), Some(-1));
}

#[test]
fn a_poll_goes_on_with_a_pass() {
    let (_server, mut lab, mut ann) = listening();
    let cached = crowd(&mut lab, 45);
    let bob = waits(Request::write("bob1"));
    let steps = (0..3).filter(|_| lab.request(&bob).unwrap().more).count();
    assert_eq!(steps, 2);
    let all = if lab.has_push() { cached.len() } else { 0 };
    assert_eq!(ann.count(&mut lab), all);
}

#[test]
fn readers_that_go_during_a_pass_take_nobody_out_of_it() {
    let (_server, mut lab, mut ann) = listening();
    let cached = crowd(&mut lab, 45);
    lab.request(&waits(Request::write("bob1"))).queued();
    // Three readers with low indexes, whose places the last readers take, and one with a high
    // index.
    for name in ["ann1", "ann2", "ann5", "ann44"] {
        lab.release(name).unwrap();
    }
    lab.grant_all();
    if lab.has_push() {
        let heard = ann.heard(&mut lab);
        for name in cached.iter().filter(|name| !["ann1", "ann2", "ann44"].contains(&name.as_str()))
        {
            assert!(heard.iter().any(|message| message.ends_with(&id(name))), "{name}");
        }
    }
}

#[test]
fn a_reader_that_joins_after_a_pass_is_in_the_next_one() {
    let (_server, mut lab, mut ann) = listening();
    lab.run("cached_read ann1, cached_read ann2");
    assert_eq!(lab.write("bob1").status(), "recalling");
    ann.hears(&mut lab, &[("w", "ann2"), ("w", "ann1")]);
    assert_eq!(lab.write("bob1").status(), "recalling");
    ann.hears(&mut lab, &[]);
    lab.request(&read("ann3")).granted();
    assert_eq!(lab.write("bob1").status(), "recalling");
    assert_eq!(ann.count(&mut lab), if lab.has_push() { 3 } else { 0 });
}

#[test]
fn cached_read_granted_beside_a_waiting_writer_is_recalled_at_once() {
    let mut lab = Lab::after("cached_read ann1");
    lab.request(&waits(Request::write("bob1").readers_first())).queued();
    let beside = lab.request(&read("cat1").readers_first());
    assert_eq!(recalled(&beside), "w");
    assert!(lab.state().recall_cursor().is_none_or(|next| next == -1));
}

#[test]
fn an_upgrade_calls_back_the_other_readers() {
    let (_server, mut lab, mut ann) = listening();
    let mut bob = Channel::of(&mut lab, "bob");
    let token = lab.request(&read("bob1")).granted().token;
    lab.request(&read("ann1")).granted();
    assert_eq!(lab.upgrade("bob1", token).status(), "busy");
    ann.hears(&mut lab, &[("w", "ann1")]);
    lab.read("cat1").granted();
    assert_eq!(lab.upgrade("bob1", token).status(), "busy");
    ann.hears(&mut lab, &[]);
    let upgrade = Request::upgrade("bob1", token).waiting().ttl(60_000);
    lab.request(&upgrade).queued();
    ann.hears(&mut lab, &[("w", "ann1")]);
    lab.request(&upgrade).queued();
    ann.hears(&mut lab, &[("w", "ann1")]);
    bob.hears(&mut lab, &[]);
    assert_eq!(recalled(&lab.renew_cached("ann1", 10_000, BLOCK)), "w");
    lab.run("release cat1, release ann1");
    assert_eq!(mark(&mut lab, "bob1"), 'g');
}

#[test]
fn an_upgrade_that_comes_again_changes_no_mark() {
    let mut lab = Lab::new();
    let token = lab.read("ann1").granted().token;
    lab.run("read bob1, wait_upgrade ann1, release bob1");
    lab.renew_cached("ann1", 10_000, BLOCK).status();
    assert_eq!(mark(&mut lab, "ann1"), 'k');
    lab.wait_upgrade("ann1", token).granted();
    assert_eq!(mark(&mut lab, "ann1"), 'k');
}

/// What blocks a try, the answer to a strict try, and the answer to one that would wait. A dot
/// marks an answer that only tries to write get.
#[test]
fn try_acquire_beside_cached_leases() {
    let rows = [
        ("", "granted", "granted"),
        ("write ann", "busy", "busy"),
        ("cached_write ann, renew ann", "busy", "busy"), // it is in use
        ("write cat, wait_write ann, release cat", "busy", "busy"), // a grant
        ("cached_write ann, wait_write cat", "busy", "busy"),
        ("cached_read ann, cached_read cat, wait_upgrade ann", "busy", "busy"),
        ("cached_read ann, read cat", "busy.", "busy."),
        ("cached_write ann", "recalling", "queued"),
        ("cached_write ann, pass 3", "recalling", "queued"), // the clock is past its last token
        ("cached_write ann, write cat", "recalling", "queued"), // it is recalled
        ("cached_read ann, cached_read cat", "recalling.", "queued."),
    ];
    for (from, strict, soft) in rows {
        for request in [Request::write("bob1"), Request::read("bob1"), write("bob1")] {
            let is_write = request.script() == "acquire_write";
            for (request, expected) in [(request.clone(), strict), (request.trying(), soft)] {
                let mut lab = Lab::new();
                follow(&mut lab, from);
                let answer = lab.request(&request);
                let granted_anyhow = expected.ends_with('.') && !is_write;
                let expected =
                    if granted_anyhow { "granted" } else { expected.trim_end_matches('.') };
                assert_eq!(answer.status(), expected, "after {from:?}: {:?}", request.args());
            }
        }
    }
}

#[test]
fn a_waiter_that_is_dead_is_in_no_trys_way() {
    let mut lab = Lab::new();
    lab.request(&write("ann1").lease(60_000)).granted();
    lab.run("wait_write/1000 cat1, pass 1000");
    assert_eq!(lab.write("bob1").status(), "recalling");
    lab.request(&Request::write("bob1").trying()).queued();
}

#[test]
fn a_try_that_is_refused_calls_nobody_back() {
    let (_server, mut lab, mut ann) = listening();
    lab.run("cached_read ann1, read cat1");
    for request in [Request::write("bob1"), Request::write("bob1").trying()] {
        assert_eq!(lab.request(&request).status(), "busy");
    }
    ann.hears(&mut lab, &[]);
    lab.run("release cat1, renew ann1");
    assert_eq!(lab.request(&Request::write("bob1").trying()).status(), "busy");
    ann.hears(&mut lab, &[]);
}

#[test]
fn a_queued_try_is_a_waiter_as_any() {
    let mut lab = Lab::after("cached_read ann1");
    let ticket = lab.request(&Request::write("bob1").trying()).queued();
    assert_eq!(lab.read("cat1").status(), "busy", "it blocks new readers");
    lab.request(&Request::write("bob1").waiting().ticket(ticket)).queued();
    lab.release("ann1").unwrap();
    assert_eq!(mark(&mut lab, "bob1"), 'g');
    lab.request(&Request::write("bob1").waiting().ticket(ticket)).granted();
    lab.release("bob1").unwrap();

    lab.request(&write("ann1")).granted();
    lab.request(&Request::read("bob2").trying()).queued();
    assert_eq!(lab.release("bob2").status(), "left_queue");
    assert_eq!(lab.state().number("waiters"), 0);
}

#[test]
fn a_try_comes_without_a_ticket_and_with_a_place() {
    let mut lab = Lab::new();
    let strict = [HERE, "0", &id("ann1"), "1000", "ft", "1", TAG];
    lab.unchanged(|lab| lab.send("acquire_write", &strict)).refused_with("LOCKARGS");
    let again = [HERE, "0", &id("ann1"), "1000", "ft", "1", TAG, "1 1 1 -", "1"];
    lab.unchanged(|lab| lab.send("acquire_write", &again)).refused_with("LOCKARGS");
    let block = [HERE, "0", &id("ann1"), "1000", "f", "2", TAG];
    lab.unchanged(|lab| lab.send("acquire_write", &block)).refused_with("LOCKARGS");
    let too_many = [HERE, "0", &id("ann1"), "1000", "fk", "1025", TAG];
    lab.unchanged(|lab| lab.send("acquire_write", &too_many)).refused_with("LOCKARGS");
}

#[test]
fn cached_mark_never_returns_to_an_earlier_state() {
    for holder in [write("ann1"), read("ann1")] {
        let mut lab = Lab::new();
        let renewed = |lab: &mut Lab| lab.renew_cached("ann1", 10_000, 8).status().to_owned();
        lab.request(&holder).granted();
        assert_eq!(renewed(&mut lab), "renewed");
        assert_eq!(mark(&mut lab, "ann1"), 'k');
        lab.write("bob1").status();
        assert_eq!(renewed(&mut lab), "renewed");
        assert_eq!(mark(&mut lab, "ann1"), 'c');
        // The acquire is repeated.
        lab.request(&holder).granted();
        assert_eq!(mark(&mut lab, "ann1"), 'c');
        lab.renew("ann1", 10_000).status();
        assert_eq!(mark(&mut lab, "ann1"), 'b');
        assert_eq!(renewed(&mut lab), "renewed");
        lab.request(&holder).granted();
        assert_eq!(mark(&mut lab, "ann1"), 'b');
        assert_eq!(lab.release("ann1").status(), "released");

        lab.request(&Request::write("cat1")).granted();
        lab.renew_cached("cat1", 10_000, 8).status();
        assert_eq!(mark(&mut lab, "cat1"), 'h', "a plain holder does not become a cached one");
    }
}

#[test]
fn a_reader_in_use_stays_so_among_others() {
    let mut lab = Lab::after("cached_read ann1, renew ann1, read bob1");
    assert_eq!(lab.shape().0, "S0");
    lab.renew("ann1", 20_000).status();
    assert_eq!(mark(&mut lab, "ann1"), 'b');
    assert_eq!(lab.state().number("cached_readers"), 0);
}

#[test]
fn a_claim_makes_a_grant_a_cached_lock() {
    for waiter in [write("bob1"), read("bob1")] {
        for by_renewal in [true, false] {
            let mut lab = Lab::after("write ann1");
            lab.request(&waits(waiter.clone())).queued();
            lab.release("ann1").unwrap();
            assert_eq!(mark(&mut lab, "bob1"), 'g');
            let token = lab.token_of("bob1");
            lab.request(&waits(Request::write("cat1"))).queued();
            let claimed = match by_renewal {
                true => lab.renew_cached("bob1", 10_000, BLOCK),
                false => lab.request(&waits(waiter.clone())),
            };
            assert_eq!(mark(&mut lab, "bob1"), 'k');
            assert_eq!(recalled(&claimed), "w", "somebody came meanwhile");
            assert_eq!(claimed.as_ref().unwrap().number(0), token);
            let writes = waiter.script() == "acquire_write";
            let fence = if writes { lab.now_us() + BLOCK - 1 } else { token };
            assert_eq!(told(&claimed).0, fence);
        }
    }
}

#[test]
fn a_downgrade_stays_cached_if_it_is_to() {
    for (waiter, expected) in [(None, 'k'), (Some("read"), 'k'), (Some("write"), 'c')] {
        for keeps in [true, false] {
            let mut lab = Lab::new();
            let token = lab.request(&write("ann1")).granted().token;
            match waiter {
                Some("read") => lab.request(&waits(Request::read("bob1"))).queued(),
                Some(_) => lab.request(&waits(Request::write("bob1"))).queued(),
                None => 0,
            };
            if keeps {
                let reads = lab.downgrade_cached("ann1", token, 10_000);
                assert_eq!(mark(&mut lab, "ann1"), expected);
                assert_eq!(recalled(&reads), if expected == 'c' { "w" } else { "-" });
                lab.downgrade_cached("ann1", token, 10_000).granted();
                assert_eq!(mark(&mut lab, "ann1"), expected);
            } else {
                lab.downgrade("ann1", token, 10_000).granted();
                assert_eq!(mark(&mut lab, "ann1"), 'b');
            }
            assert_eq!(lab.token_of("ann1"), token);
            let reads = lab.state().reads();
            assert_eq!(reads.contains(&id("bob1")), waiter == Some("read"));
        }
    }
}

#[test]
fn a_cached_write_owns_the_tokens_up_to_the_last_one() {
    let mut lab = Lab::new();
    let first = lab.request(&write("ann1"));
    let token = first.granted().token;
    assert_eq!(token, lab.now_us());
    assert_eq!(told(&first).0, token + BLOCK - 1);
    let again = lab.request(&write("ann1"));
    assert_eq!((again.granted().token, told(&again).0), (token, token + BLOCK - 1));
    lab.pass(3);
    let contact = lab.renew_cached("ann1", 10_000, 100);
    assert_eq!(contact.as_ref().unwrap().number(0), token);
    assert_eq!(told(&contact).0, lab.now_us() + 99);
    // A request for fewer tokens than are left changes nothing.
    let fewer = lab.renew_cached("ann1", 10_000, 1);
    assert_eq!(told(&fewer).0, told(&contact).0);
    lab.release("ann1").unwrap();
    let next = lab.request(&read("bob1"));
    assert_eq!(next.granted().token, told(&fewer).0 + 1);
    assert_eq!(told(&next).0, next.granted().token, "a read has one token");
}

#[test]
fn a_block_has_the_tokens_that_were_requested() {
    for tokens in [1, 2] {
        let mut lab = Lab::new();
        let held = lab.request(&Request::write("ann1").cached(tokens));
        assert_eq!(told(&held).0, held.granted().token + tokens - 1);
        assert_eq!(mark(&mut lab, "ann1"), 'k');
    }
}

/// Its own poll lets it in.
#[test]
fn a_write_that_is_not_cached_owns_one_token() {
    let mut lab = Lab::after("write/1000 ann1");
    let bob = Request::write("bob1").waiting();
    lab.request(&bob).queued();
    lab.pass(1_000);
    let token = lab.request(&bob).granted().token;
    assert_eq!(lab.state().number("fence"), token);
}

#[test]
fn blocks_do_not_run_ahead_of_the_clock() {
    let mut lab = Lab::new();
    let us = lab.now_us();
    for number in 0..50 {
        let name = format!("ann{number}");
        lab.request(&write(&name)).granted();
        lab.release(&name).unwrap();
    }
    let ahead = lab.state().number("fence") - us;
    assert!(ahead < BLOCK + 200, "{ahead}");
}

#[test]
fn the_token_of_the_grant_is_what_is_compared() {
    let mut lab = Lab::new();
    let held = lab.request(&write("ann1"));
    let (token, fence) = (held.granted().token, told(&held).0);
    assert_eq!(lab.downgrade_cached("ann1", fence, 10_000).status(), "not_held");
    let revoked = lab.revoke_up_to(token);
    assert_eq!(revoked.status(), "revoked");
    let contact = lab.renew_cached("ann1", 60_000, BLOCK);
    assert_eq!((contact.status(), told(&contact).0), ("revoked", fence), "no tokens any more");
    assert_eq!(contact.as_ref().unwrap().number(0), token);
    let forced = lab.force_up_to(token);
    assert_eq!(forced.status(), "forced");
    assert!(forced.unwrap().number(0) > fence);
    assert_eq!(lab.renew_cached("ann1", 60_000, BLOCK).status(), "not_held");

    let mut lab = Lab::new();
    let held = lab.request(&write("ann1"));
    let token = held.granted().token;
    assert_eq!(lab.revoke_up_to(token - 1).status(), "not_locked");
    assert_eq!(lab.force_up_to(token - 1).status(), "not_locked");
    lab.downgrade_cached("ann1", token, 10_000).granted();
    assert_eq!(lab.force_up_to(token - 1).status(), "not_locked");
    assert_eq!(lab.force_up_to(token).status(), "forced");
}

#[test]
fn a_grant_that_is_revoked_takes_no_tokens_with_its_claim() {
    for by_renewal in [true, false] {
        let mut lab = Lab::after("write ann1");
        lab.request(&waits(write("bob1"))).queued();
        lab.release("ann1").unwrap();
        lab.revoke().status();
        let claimed = match by_renewal {
            true => lab.renew_cached("bob1", 10_000, BLOCK),
            false => lab.request(&waits(write("bob1"))),
        };
        assert_eq!(told(&claimed).0, claimed.unwrap().number(0));
    }
}

#[test]
fn to_revoke_is_to_call_back() {
    let (_server, mut lab, mut ann) = listening();
    lab.request(&write("ann1")).granted();
    lab.revoke().status();
    ann.hears(&mut lab, &[("w", "ann1")]);
    lab.release("ann1").unwrap();

    lab.request(&write("ann2")).granted();
    lab.write("bob1").status();
    ann.hears(&mut lab, &[("w", "ann2")]);
    lab.revoke().status();
    ann.hears(&mut lab, &[("w", "ann2")]);
    lab.release("ann2").unwrap();

    lab.run("cached_write ann3, renew ann3");
    lab.revoke().status();
    ann.hears(&mut lab, &[]);
    lab.release("ann3").unwrap();

    lab.run("cached_read ann4, read bob2, cached_read ann5");
    lab.revoke().status();
    ann.hears(&mut lab, &[("w", "ann5"), ("w", "ann4")]);
}

#[test]
fn a_full_memory_does_not_stop_a_recall() {
    // The lock has one recall of all its readers, and no mark of each.
    for (held, recalled, marked) in [
        (vec![write("ann1")], &["ann1"][..], 'c'),
        (vec![read("ann1"), read("ann2")], &["ann2", "ann1"], 'k'),
    ] {
        let (_server, mut lab, mut ann) = listening();
        for request in &held {
            lab.request(request).granted();
        }
        lab.set_full(true);
        // What cannot be written recalls nobody.
        lab.unchanged(|lab| lab.request(&waits(Request::write("bob1")))).refused_with("OOM");
        ann.hears(&mut lab, &[]);
        assert_eq!(lab.write("bob1").status(), "recalling");
        let recalled: Vec<(&str, &str)> = recalled.iter().map(|name| ("w", *name)).collect();
        ann.hears(&mut lab, &recalled);
        assert_eq!(mark(&mut lab, "ann1"), marked);
        assert_eq!(lab.renew_cached("ann1", 20_000, BLOCK).status(), "renewed");
        assert_eq!(lab.release("ann1").status(), "released");
        lab.set_full(false);
    }
}

#[test]
fn the_line_tells_of_a_cached_holder() {
    let mut lab = Lab::new();
    for (request, shape) in [(write("ann1"), 'W'), (read("ann1"), 'R')] {
        let held = lab.request(&request);
        let (token, deadline) = (held.granted().token, held.granted().deadline);
        let raw = lab.state().stored;
        let line = &raw["s"];
        assert_eq!(raw.len(), 1);
        assert_eq!(&line[1..2], shape.to_string());
        assert_eq!(line[31..], format!("{deadline}k0{token:016}{}", id("ann1")));
        assert_eq!(line[15..31], format!("{:016}", told(&held).0));
        assert_eq!(lab.inspect().unwrap().status, "lock");
        let holds = lab.holds("ann1");
        assert_eq!(holds.unwrap().number(0), token);
        lab.release("ann1").unwrap();
        assert_eq!(lab.shape(), ("F".into(), vec![]));
    }
}

#[test]
fn inspect_of_cached_and_uncached_readers_returns_ids_and_marks() {
    let mut lab = Lab::after("cached_read ann1, read bob1");
    let view = lab.inspect().unwrap();
    let readers = view.list(6);
    assert_eq!((&readers[0], &readers[2]), (&id("ann1"), &id("bob1")));
    assert!(readers[1].starts_with('k') && readers[3].starts_with('h'), "{readers:?}");
}

#[test]
fn lock_state_line_that_is_odd_is_rejected() {
    let mut lab = Lab::after("cached_write ann1");
    lab.checked = false;
    let line = lab.state().stored["s"].clone();
    let fence = lab.state().number("fence");
    for odd in [
        line.replacen('k', "h", 1),
        line.replacen('k', "x", 1),
        line.replacen('k', "+", 1),
        format!("{}4{}", &line[..45], &line[46..]),
        format!("{}{:016}{}", &line[..46], fence + 1, &line[62..]),
        line[..62].to_owned(),
    ] {
        lab.set_field("s", &odd);
        for call in [
            Lab::grant_waiters,
            |lab: &mut Lab| lab.release("ann1"),
            |lab: &mut Lab| lab.renew_cached("ann1", 1_000, 1),
            |lab: &mut Lab| lab.write("bob1"),
        ] {
            call(&mut lab).refused_with("LOCKTYPE");
        }
    }
}
