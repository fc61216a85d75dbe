//! The server pushes grants to subscribed clients, one message for each client. A server without
//! sharded channels refuses their commands and pushes nothing. There a grant lasts for its claim
//! window, and the waiter's poll finds it.

use super::fixture::{Expect, GRACE, GRANTS, HERE, Lab, alone, id};
use super::request::Request;
use testkit::Server;

/// The part of a message about one grant.
fn told(lab: &mut Lab, name: &str) -> String {
    let state = lab.state();
    let id = id(name);
    let record = state.record(&id).unwrap();
    format!("{id} {} {}", record.token, record.deadline)
}

/// With the fast paths, and without.
fn both_paths() -> [(Server, Lab); 2] {
    let (server, mut slow_path) = alone();
    slow_path.slow_path = true;
    [alone(), (server, slow_path)]
}

#[test]
fn a_grant_is_told_to_its_waiter() {
    for (_server, mut lab) in both_paths() {
        let (bob, cat) = (lab.listen_as("bob"), lab.listen_as("cat"));
        lab.run("write ann1, subscribed_write bob1, subscribed_write cat1, release ann1");
        let message = format!("{} 0 {}", lab.now(), told(&mut lab, "bob1"));
        bob.hears(&mut lab, vec![message]);
        assert!(cat.heard().is_empty(), "nobody else is woken");
        lab.request(&Request::write("bob1").waiting().subscribed(HERE)).granted();
    }
}

#[test]
fn grants_to_one_client_are_pushed_in_one_message() {
    for (_server, mut lab) in both_paths() {
        let (bob, cat) = (lab.listen_as("bob"), lab.listen_as("cat"));
        lab.write("ann1").granted();
        for name in ["bob1", "cat1", "bob2", "bob3"] {
            lab.request(&Request::read(name).waiting().subscribed(HERE)).queued();
        }
        lab.release("ann1").status();
        let now = lab.now();
        let grants = ["bob1", "bob2", "bob3"].map(|name| told(&mut lab, name)).join(" ");
        bob.hears(&mut lab, vec![format!("{now} 0 {grants}")]);
        let grant = told(&mut lab, "cat1");
        cat.hears(&mut lab, vec![format!("{now} 0 {grant}")]);
    }
}

/// The grants are pushed, and the key outlives the claim window.
#[test]
fn hand_off_with_a_long_claim_window_extends_the_life_of_the_key() {
    for (_server, mut lab) in both_paths() {
        let bob = lab.listen_as("bob");
        lab.write("ann1").granted();
        let request = Request::write("bob1").waiting().subscribed(HERE).window(60_000);
        lab.request(&request).queued();
        lab.release("ann1").status();
        assert_eq!(bob.heard().len(), usize::from(lab.has_push()));
        assert!(lab.ends().unwrap() >= lab.now() + 60_000 + GRACE);
    }
}

#[test]
fn a_waiter_that_polls_is_answered_and_not_pushed_to() {
    let (_server, mut lab) = alone();
    let bob = lab.listen_as("bob");
    lab.request(&Request::write("ann1").lease(1_000)).granted();
    let request = Request::write("bob1").waiting().subscribed(HERE);
    lab.request(&request).queued();
    lab.pass(1_000);
    lab.request(&request).granted();
    assert!(bob.heard().is_empty());
}

#[test]
fn grant_message_has_more_work() {
    let (_server, mut lab) = alone();
    let bob = lab.listen_as("bob");
    lab.write("ann1").granted();
    for number in 0..40 {
        lab.request(&Request::read(&format!("bob{number}")).waiting().subscribed(HERE)).queued();
    }
    let mut more = vec![lab.release("ann1").unwrap().more];
    while more.ends_with(&[true]) {
        more.push(lab.grant_waiters().unwrap().more);
    }
    assert_eq!(lab.state().readers.len(), 40);
    let heard = bob.heard();
    let words: Vec<Vec<&str>> = heard.iter().map(|message| message.split(' ').collect()).collect();
    assert!(words.iter().all(|words| (words.len() - 2) / 3 <= GRANTS));
    let told: Vec<bool> = words.iter().map(|words| words[1] == "1").collect();
    assert_eq!(told, if lab.has_push() { more } else { vec![] });
}

#[test]
fn a_waiter_that_is_gone_from_this_very_node_is_passed_over() {
    let (_server, mut lab) = alone();
    let pushes = lab.has_push();
    let cat = lab.listen_as("cat");
    lab.write("ann1").granted();
    for number in 0..2 * GRANTS - 2 {
        lab.request(&Request::write(&format!("gone{number}")).waiting().subscribed(HERE)).queued();
    }
    lab.request(&Request::write("cat1").waiting().subscribed(HERE)).queued();
    let more = lab.release("ann1").unwrap().more;
    if !pushes {
        // Nothing reports that it is gone before its window has passed.
        assert_eq!((lab.state().writes(), more), (Some(id("gone0")), false));
        return;
    }
    assert!(more, "the budget counts them");
    lab.grant_all();
    assert_eq!(lab.state().writes(), Some(id("cat1")));
    assert_eq!(cat.heard().len(), 1);
    // It was only reconnecting, and gets its place back.
    assert_eq!(
        lab.request(&Request::write("gone1").waiting().subscribed(HERE).ticket(2)).queued(),
        2
    );
}

#[test]
fn readers_that_are_gone_are_passed_over_too() {
    let (_server, mut lab) = alone();
    let pushes = lab.has_push();
    lab.run("write ann1, subscribed_read gone1, subscribed_read gone2");
    lab.run("wait_read poll1, subscribed_read gone3, wait_write poll2, release ann1");
    if !pushes {
        assert_eq!(lab.state().readers.len(), 4);
        return;
    }
    assert_eq!(lab.state().readers.into_keys().collect::<Vec<_>>(), [id("poll1")]);
    lab.release("poll1").status();
    assert_eq!(lab.state().writes(), Some(id("poll2")));
}

#[test]
fn all_gone_leaves_the_lock_idle() {
    let (_server, mut lab) = alone();
    let pushes = lab.has_push();
    lab.run("write ann1, subscribed_write gone1, subscribed_read gone11");
    lab.run("subscribed_write gone2, subscribed_read gone21, release ann1");
    if !pushes {
        assert_eq!(lab.state().readers.len(), 2, "the readers' turn, after a write");
        return;
    }
    assert_eq!(lab.shape(), ("F".into(), vec![]));
}

#[test]
fn whose_subscription_is_elsewhere_has_its_claim_window() {
    for (server, node) in [(HERE, "there"), (HERE, "-"), ("-", HERE), ("-", "-")] {
        let (_server, mut lab) = alone();
        lab.write("ann1").granted();
        let request = Request::write("bob1").waiting().window(800).ttl(60_000);
        let request = if node == "-" { request } else { request.subscribed(node) };
        lab.request(&request).queued();
        lab.send("release", &[server, &id("ann1")]).status();
        let granted = lab.state().writer.unwrap();
        assert_eq!(
            (granted.id, granted.deadline),
            (id("bob1"), lab.now() + 800),
            "{server} {node}"
        );
    }
}

#[test]
fn a_moved_subscription_is_told_by_the_next_poll() {
    let (_server, mut lab) = alone();
    let pushes = lab.has_push();
    lab.write("ann1").granted();
    lab.request(&Request::write("bob1").waiting().subscribed("there")).queued();
    lab.run("subscribed_write bob1, release ann1");
    let granted = (!pushes).then(|| id("bob1"));
    assert_eq!(lab.state().writes(), granted, "nobody hears it here");
}

#[test]
fn an_upgrader_is_told_and_keeps_its_window_unheard() {
    let (_server, mut lab) = alone();
    let ann = lab.read("ann1").granted();
    lab.read("bob1").granted();
    lab.request(&Request::upgrade("ann1", ann.token).waiting().subscribed(HERE)).queued();
    lab.release("bob1").status();
    assert_eq!(lab.state().writes(), Some(id("ann1")), "its read is in there");
    let claimed = lab.renew("ann1", 10_000).unwrap();
    assert_eq!(claimed.status, "renewed");
}

#[test]
fn grants_by_a_poll_a_renewal_and_grant_waiters_are_told() {
    for way in ["renew", "grant_waiters", "poll", "leave"] {
        let (_server, mut lab) = alone();
        let bob = lab.listen_as("bob");
        lab.run("read/60000 ann1, wait_write/1000 w1");
        lab.request(&Request::read("bob1").waiting().ttl(60_000).subscribed(HERE)).queued();
        lab.run("wait_read/60000 cat1, pass 1000");
        match way {
            "renew" => lab.renew("ann1", 60_000),
            "grant_waiters" => lab.grant_waiters(),
            "poll" => lab.request(&Request::read("cat1").waiting()),
            _ => lab.release("w1"),
        }
        .status();
        assert_eq!(bob.heard().len(), usize::from(lab.has_push()), "{way}");
        assert!(lab.state().record(&id("bob1")).is_some(), "{way}");
    }
}
