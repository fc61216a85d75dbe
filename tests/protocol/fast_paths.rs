//! States in which a fast path must do exactly what the slow path does, or leave the call to it.
//! They are rare in random histories. Each history runs on two locks: with the fast paths, and
//! without them.

use super::fixture::{Answer, BLOCK, Expect, GRACE, GRANTS, Lab, PASS, Reply, id};
use super::request::Request;

struct Twins {
    fast: Lab,
    slow: Lab,
}

impl Twins {
    fn new() -> Twins {
        let (mut fast, mut slow) = (Lab::new(), Lab::new());
        let us = fast.now_us().max(slow.now_us());
        fast.set_clock(us);
        slow.set_clock(us);
        slow.slow_path = true;
        Twins { fast, slow }
    }

    /// The answer of a call on both locks, which must leave both alike. A usual release does not
    /// read the time.
    #[track_caller]
    fn both(&mut self, call: impl Fn(&mut Lab) -> Answer) -> Answer {
        let (answer, mut slow_answer) = (call(&mut self.fast), call(&mut self.slow));
        if let (Ok(Reply { now: 0, .. }), Ok(slow)) = (&answer, &mut slow_answer) {
            slow.now = 0;
        }
        assert_eq!(answer, slow_answer, "the answer with the fast paths, and without them");
        assert_eq!(self.fast.look(), self.slow.look(), "the lock with them, and without them");
        answer
    }

    #[track_caller]
    fn request(&mut self, request: Request) -> Answer {
        self.both(|lab| lab.request(&request))
    }

    #[track_caller]
    fn release(&mut self, name: &str) {
        assert_eq!(self.both(|lab| lab.release(name)).status(), "released");
    }

    /// Lets the clock pass the tokens of many grants: before, no fast path grants the lock.
    fn pass_tokens(&mut self) {
        self.pass(1);
    }

    fn pass(&mut self, ms: u64) {
        self.fast.pass(ms);
        self.slow.pass(ms);
    }

    /// A writer holds and readers wait behind it, with `next_writer` if there is one. The writer
    /// releases.
    fn write_ends_before(readers: usize, next_writer: Option<Request>) -> Twins {
        let mut twins = Twins::new();
        twins.request(Request::write("w1")).granted();
        if let Some(writer) = next_writer {
            twins.request(writer.waiting()).queued();
        }
        for number in 1..=readers {
            twins.request(reader(number).waiting()).queued();
        }
        twins.release("w1");
        twins
    }

    fn reads(&mut self, number: usize) -> bool {
        self.fast.state().record(&id(&format!("r{number}"))).is_some()
    }

    fn has(&mut self, field: &str) -> bool {
        self.fast.state().stored.contains_key(field)
    }
}

fn reader(number: usize) -> Request {
    Request::read(&format!("r{number}"))
}

#[test]
fn poll_in_the_other_mode_is_refused_beside_waiters_of_both_modes() {
    let mut twins = Twins::new();
    twins.request(Request::write("ann1")).granted();
    let writer = twins.request(Request::write("bob1").waiting()).queued();
    let reader = twins.request(Request::read("cat1").waiting()).queued();
    twins.request(Request::read("bob1").waiting().ticket(writer)).refused_with("LOCKARGS");
    twins.request(Request::write("cat1").waiting().ticket(reader)).refused_with("LOCKARGS");
}

#[test]
fn key_outlives_a_waiter_by_the_whole_grace() {
    for beyond in [0, 1] {
        let mut twins = Twins::new();
        let deadline = twins.request(Request::write("ann1")).granted().deadline;
        let ttl = deadline - twins.fast.now() + beyond;
        let expected = deadline + GRACE + beyond;
        twins.request(Request::write("bob1").waiting().ttl(ttl)).queued();
        assert!(twins.fast.ends() >= Some(expected), "after it joined");

        let mut twins = Twins::new();
        twins.request(Request::write("ann1")).granted();
        let ticket = twins.request(Request::write("bob1").waiting()).queued();
        twins.request(Request::write("bob1").waiting().ttl(ttl).ticket(ticket)).queued();
        assert!(twins.fast.ends() >= Some(expected), "after a poll");
    }
}

#[test]
fn any_call_drops_a_dead_upgrader() {
    type Call = fn(&mut Lab) -> Answer;
    let calls: [(&str, Call); 7] = [
        ("a writer joins", |lab| lab.wait_write("eve1")),
        ("a reader joins", |lab| lab.wait_read("eve1")),
        ("a poll", |lab| lab.request(&Request::write("dan1").waiting().ttl(60_000).ticket(1))),
        ("a release", |lab| lab.release("cat1")),
        ("a renewal", |lab| lab.renew("bob1", 20_000)),
        ("a renewal with tokens", |lab| lab.renew_cached("bob1", 20_000, 1)),
        ("grant_waiters", Lab::grant_waiters),
    ];
    for (what, call) in calls {
        let mut twins = Twins::new();
        for name in ["ann1", "bob1", "cat1"] {
            twins.request(Request::read(name).lease(60_000)).granted();
        }
        let token = twins.fast.token_of("ann1");
        twins.request(Request::upgrade("ann1", token).waiting().ttl(1_000)).queued();
        twins.request(Request::write("dan1").waiting().ttl(60_000)).queued();
        twins.pass(1_000);
        assert!(twins.has("upgrader"));
        twins.both(call).status();
        assert!(!twins.has("upgrader"), "{what}");
    }
}

#[test]
fn rest_of_a_read_phase_ends_before_the_next_writer() {
    let (in_phase, late) = (2 * GRANTS + 1, 2 * GRANTS + 2);
    let mut twins = Twins::write_ends_before(in_phase, Some(Request::write("w2")));
    // This call grants as many again. It leaves one reader of the phase, and itself.
    twins.request(reader(late).waiting()).queued();
    twins.pass_tokens();
    twins.both(Lab::grant_waiters).status();
    assert!(twins.reads(in_phase) && !twins.reads(late));
}

#[test]
fn reader_that_goes_first_is_granted_with_the_rest_of_a_read_phase() {
    let (in_phase, late) = (2 * GRANTS + 1, 2 * GRANTS + 2);
    let writer = Request::write("w2").readers_first();
    let mut twins = Twins::write_ends_before(in_phase, Some(writer));
    twins.request(reader(late).readers_first().waiting()).queued();
    twins.pass_tokens();
    twins.both(Lab::grant_waiters).status();
    assert!(twins.reads(in_phase) && twins.reads(late));
}

#[test]
fn upgrader_goes_before_the_rest_of_a_read_phase() {
    for next_writer in [None, Some(Request::write("w2"))] {
        let mut twins = Twins::write_ends_before(GRANTS + 2, next_writer);
        let token = twins.fast.token_of("r1");
        twins.request(Request::upgrade("r1", token).waiting()).queued();
        twins.pass_tokens();
        twins.both(Lab::grant_waiters).status();
        assert!(!twins.reads(GRANTS + 1));
    }
}

#[test]
fn rest_of_a_read_phase_is_granted_beside_a_cached_reader() {
    for next_writer in [None, Some(Request::write("w2"))] {
        let waits = next_writer.is_some();
        let last = 2 * GRANTS + 2;
        let mut twins = Twins::write_ends_before(last, next_writer);
        // The claim grants as many again, and leaves two.
        twins.pass_tokens();
        twins.both(|lab| lab.renew_cached("r1", 10_000, BLOCK)).status();
        assert!(!twins.reads(last));
        twins.pass_tokens();
        twins.both(Lab::grant_waiters).status();
        assert!(twins.reads(last) && twins.has("cached_readers"));
        assert_eq!(twins.has("waiters"), waits);
    }
}

#[test]
fn any_of_several_cached_readers_releases() {
    for waits in [false, true] {
        for first in 1..=4 {
            let mut twins = Twins::new();
            for number in 1..=3 {
                twins.request(reader(number).cached(BLOCK).waiting()).granted();
            }
            twins.request(reader(4).waiting()).granted();
            if waits {
                twins.request(Request::write("w1").waiting()).queued();
            }
            for number in (first..=4).chain(1..first) {
                twins.release(&format!("r{number}"));
            }
        }
    }
}

#[test]
fn malformed_number_beside_cached_readers_is_reported() {
    for field in ["read_min", "readers"] {
        for call in [
            |lab: &mut Lab| lab.request(&reader(4).waiting()),
            |lab: &mut Lab| lab.request(&reader(4).cached(BLOCK).waiting()),
            |lab: &mut Lab| lab.release("r1"),
        ] {
            let mut twins = Twins::new();
            for number in 1..=3 {
                twins.request(reader(number).cached(BLOCK).waiting()).granted();
            }
            for lab in [&mut twins.fast, &mut twins.slow] {
                lab.checked = false;
                lab.set_field(field, "9999999999xyz");
            }
            twins.both(call).refused_with("LOCKTYPE");
        }
    }
}

#[test]
fn claim_of_a_cached_read_ends_a_recall_that_is_over() {
    let mut twins = Twins::new();
    for number in 1..=2 {
        twins.request(reader(number).cached(BLOCK).waiting()).granted();
    }
    twins.request(Request::write("w1").waiting()).queued();
    twins.request(reader(3).waiting()).queued();
    assert!(twins.has("recall_cursor"));
    assert_eq!(twins.both(|lab| lab.release("w1")).status(), "left_queue");
    assert_eq!(twins.both(|lab| lab.renew_cached("r3", 10_000, BLOCK)).status(), "renewed");
    assert!(!twins.has("recall_cursor"), "the next pass begins at the end");
}

#[test]
fn cached_read_that_is_forced_out_is_not_renewed() {
    let mut twins = Twins::new();
    for number in 0..=PASS {
        twins.request(reader(number).cached(BLOCK).waiting()).granted();
    }
    assert_eq!(twins.both(Lab::force).status(), "forced");
    assert!(twins.reads(0) && twins.has("forced_up_to"), "one call removes 16 readers");
    assert_eq!(twins.both(|lab| lab.renew_cached("r0", 10_000, BLOCK)).status(), "not_held");
}

#[test]
fn plain_read_that_is_forced_out_is_not_renewed() {
    let mut twins = Twins::new();
    for number in 0..=PASS {
        twins.request(reader(number)).granted();
    }
    assert_eq!(twins.both(Lab::force).status(), "forced");
    assert!(twins.reads(0) && twins.has("forced_up_to"), "one call removes 16 readers");
    assert_eq!(twins.both(|lab| lab.renew("r0", 10_000)).status(), "not_held");
}

#[test]
fn too_many_tokens_are_refused_in_the_queue_and_beside_cached_readers() {
    let mut twins = Twins::new();
    twins.request(Request::write("w1")).granted();
    for waiter in [reader(1), Request::write("w2")] {
        twins.request(waiter.cached(BLOCK + 1).waiting()).refused_with("LOCKARGS");
    }
    twins.release("w1");
    for number in 1..=2 {
        twins.request(reader(number).cached(BLOCK).waiting()).granted();
    }
    twins.request(reader(3).cached(BLOCK + 1).waiting()).refused_with("LOCKARGS");
    twins.both(|lab| lab.renew_cached("r1", 10_000, BLOCK + 1)).refused_with("LOCKARGS");
}

#[test]
fn grant_waiters_looks_for_expired_readers_at_their_deadline() {
    let mut twins = Twins::write_ends_before(GRANTS + 2, None);
    twins.pass(1_000); // the claim window
    twins.both(Lab::grant_waiters).status();
    assert!(twins.reads(GRANTS + 2) && twins.has("sweep"));
}
