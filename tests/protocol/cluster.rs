//! What can be tested only on a cluster, or with a user that has few rights.

use redis::cmd;
use rwlease::Slot;

use super::fixture::{Expect, HERE, Lab, id, start};
use super::request::Request;
use testkit::{Cluster, ClusterConfig};

/// A cluster of one node that serves all slots but the last.
fn cluster() -> Cluster {
    let shape = ClusterConfig::of(1, 0).line("cluster-require-full-coverage no");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::start_with(shape).await.unwrap();
        cluster.node(0).run_words::<()>("CLUSTER DELSLOTS 16383").await.unwrap();
        cluster
    })
}

#[test]
fn a_channel_of_the_locks_slot_is_heard_and_one_that_is_served_elsewhere_hurts_nobody() {
    let cluster = cluster();
    for wrong in [false, true] {
        let mut lab = Lab::on_server_time(cluster.node(0));
        lab.checked = false;
        let slot = Slot::of(lab.key());
        let tag = if wrong { Slot::new(16_383).unwrap().hash_tag() } else { slot.hash_tag() };
        let bob = lab.listen(&format!("{{{}}}rwlease:bob________", slot.hash_tag()));
        lab.write("ann1").granted();
        lab.request(&Request::write("bob1").waiting().subscribed(HERE).tagged(tag)).queued();
        assert_eq!(lab.release("ann1").status(), "released");
        let writer = lab.state().writer.unwrap();
        assert_eq!((writer.id.clone(), writer.is_claimed()), (id("bob1"), false));
        assert_eq!(bob.heard().len(), usize::from(!wrong && lab.has_push()));
        assert_eq!(lab.renew("bob1", 1_000).status(), "renewed");
    }
}

#[test]
fn acl_with_the_least_rights_allows_every_script() {
    let server = start("");
    let mut lab = Lab::on_server_time(&server);
    lab.checked = false;
    let rights = "on >secret resetchannels -@all ~rwlease:* &*rwlease:* +eval +evalsha +time +exists \
                  +hget +hmget +hset +hdel +pexpireat";
    let mut rights: Vec<&str> = rights.split_whitespace().collect();
    if lab.has_push() {
        rights.push("+spublish");
    } else {
        // The server has no such command to allow.
        let refusal = lab.refusal(cmd("ACL").arg("SETUSER").arg("other").arg("+spublish"));
        assert!(refusal.contains("Unknown command"), "{refusal}");
    }
    lab.command::<()>(cmd("ACL").arg("SETUSER").arg("least").arg(rights));
    lab.command::<()>(cmd("AUTH").arg("least").arg("secret"));

    let subscribed = |request: Request| request.waiting().subscribed("there");
    let ann = lab.write("ann1").granted();
    lab.request(&subscribed(Request::write("bob1"))).queued();
    lab.request(&subscribed(Request::read("cat1"))).queued();
    lab.request(&subscribed(Request::read("dan1"))).queued();
    assert_eq!(lab.renew_as("ann1", 20_000, "w", ann.token).status(), "renewed");
    lab.downgrade("ann1", ann.token, 10_000).granted();
    assert_eq!(lab.release("dan1").status(), "released");
    lab.accept_transfer("ann1", "r", ann.token, "eve1").granted();
    let cat = lab.send("holds", &[HERE, &id("cat1")]).unwrap().held();
    assert_eq!(lab.renew_as("cat1", 20_000, "r", cat.token).status(), "renewed");
    lab.request(&subscribed(Request::upgrade("cat1", cat.token))).queued();
    assert_eq!(lab.release("eve1").status(), "released");
    lab.upgrade("cat1", cat.token).granted();
    assert_eq!(lab.grant_waiters().status(), "done");
    assert_eq!(lab.inspect().status(), "lock");
    assert_eq!(lab.revoke().status(), "revoked");
    assert_eq!(lab.force().status(), "forced");
    lab.wait_write("bob1").granted();
}
