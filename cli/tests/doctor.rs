//! `rwlease doctor`: a fault of each kind, and none.

use crate::fixture::{LONG, Tool};
use testkit::{Balancer, Cluster, ClusterConfig, Result, ServerSettings, StandaloneServer};

#[tokio::test]
async fn doctor_of_a_healthy_cluster_finds_nothing() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 1).line("appendonly yes")).await?;
    let ran = Tool::new([cluster.node(3).url()]).doctor(0).await?;
    assert!(ran.out.ends_with("0 wrong, 0 warnings\n"), "{}", ran.out);
    ran.expect_out(&[
        "a cluster of 3 masters and 3 replicas",
        "a lock was taken, handed over",
        "noeviction",
        "1 replica in step",
        "the nodes' clocks are at most",
    ]);
    assert!(!ran.out.contains('\x1b'), "colour is for terminals");
    ran.expect_line("note", &["cluster-require-full-coverage is yes"]);
    for node in cluster.nodes() {
        node.run_words::<()>("CONFIG SET cluster-require-full-coverage no").await?;
    }
    let ran = Tool::new(cluster.urls()).doctor(0).await?;
    assert!(!ran.out.contains("full-coverage"), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn doctor_warns_of_masters_too_few_for_an_election() -> Result {
    for (masters, others) in [(1, "no master is left"), (2, "the other one is no majority")] {
        let shape = ClusterConfig::of(masters, 1).line("appendonly yes");
        let cluster = Cluster::start_with(shape).await?;
        let ran = Tool::new(cluster.urls()).doctor(0).await?;
        ran.expect_line("warning", &["fewer than 3 masters", others]);
        assert!(ran.out.ends_with("0 wrong, 1 warning\n"), "{}", ran.out);
    }
    Ok(())
}

#[tokio::test]
async fn doctor_warns_of_replicas_that_never_take_over() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 2).line("appendonly yes")).await?;
    let tool = Tool::new(cluster.urls());
    let replicas = cluster.replicas_of(0).await?;
    let bar = "CONFIG SET cluster-replica-no-failover yes";
    cluster.node(replicas[0]).run_words::<()>(bar).await?;
    let master = cluster.node(0).address();
    let barred = async |level, says| -> Result {
        let seen = async {
            while !tool.run(&["doctor"]).await?.has_line(level, &[&master, says]) {}
            Ok(())
        };
        tokio::time::timeout(LONG, seen).await? // the master hears of it a little later
    };
    barred("ok", "2 replicas in step, of which 1 never take over").await?;
    cluster.node(replicas[1]).run_words::<()>(bar).await?;
    barred("warning", "has only replicas that never take over").await
}

#[tokio::test]
async fn doctor_of_a_cluster_that_loses_locks_reports_each_fault() -> Result {
    let shape =
        ClusterConfig::of(2, 0).line("maxmemory 100mb").line("maxmemory-policy allkeys-lru");
    let cluster = Cluster::start_with(ClusterConfig { node_timeout: 15_000, ..shape }).await?;
    let tool = Tool::new(cluster.urls());
    let ran = tool.doctor(1).await?;
    let lines = |level| ran.out.lines().filter(|line| line.starts_with(level)).count();
    let counted = format!("{} wrong, {} warnings\n", lines("wrong "), lines("warning "));
    assert!(ran.out.ends_with(&counted), "what several nodes have counts once: {}", ran.out);
    ran.expect_out(&[
        "the memory policy allkeys-lru evicts locks",
        "has no replica",
        "a failover takes up to 37s",
        "keeps no log",
    ]);

    for number in 0..2 {
        cluster.node(number).run_words::<()>("CONFIG SET maxmemory-policy noeviction").await?;
    }
    tool.doctor(0).await?;

    let master = cluster.master_of(7).await?;
    cluster.node(master).run_words::<()>("CLUSTER DELSLOTS 7").await?;
    let ran = tool.exits(&["doctor", "--redis", &cluster.node(master).url()], 1).await?;
    ran.expect_out(&["nobody serves slot 7: locks in it"]);
    assert!(
        ran.out.contains("cluster in state") || ran.out.contains("in state `fail`"),
        "{}",
        ran.out
    );
    Ok(())
}

#[tokio::test]
async fn doctor_with_a_dead_master_names_it() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let tool = Tool::new([cluster.node(0).url()]);
    cluster.node(1).kill()?;
    let away = cluster.node(1).address();
    tool.doctor(1).await?.expect_line("wrong", &[&away, "cannot be queried"]);
    Ok(())
}

#[tokio::test]
async fn doctor_names_the_rights_that_a_user_lacks() -> Result {
    // Of what docs/operating.md lists, all but `+hdel` for one, and `+info`, `+wait`,
    // `+ssubscribe`, `+spublish` for the other.
    let poor = "user poor on >p resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time +info \
                +cluster|slots +cluster|myid +cluster|info +ssubscribe +sunsubscribe +wait +exists +hget +hmget +hset \
                +pexpireat +spublish";
    let mute = "user mute on >p resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time \
                +cluster|slots +exists +hget +hmget +hset +hdel +pexpireat";
    let server =
        StandaloneServer::start_with(ServerSettings::default().line(poor).line(mute)).await?;
    let as_user =
        |user| Tool::new([server.url().replace("redis://", &format!("redis://{user}:p@"))]);
    as_user("poor").doctor(1).await?.expect_line("wrong", &["lacks"]);
    // Locks work, slower.
    let ran = as_user("mute").doctor(0).await?;
    ran.expect_out(&[
        "+set",
        "+get",
        "+info",
        "memory",
        "+wait",
        "+ssubscribe",
        "+spublish",
        "+scan",
        "cached locks",
    ]);
    let fsync = match server.version().has_waitaof() {
        true => "a right for `--fsync`: give +waitaof",
        false => "does not serve WAITAOF, needed for `--fsync`",
    };
    ran.expect_line("note", &[fsync]);
    // What tells nodes apart is queried in a cluster alone.
    let vague = "user vague on >p ~* &* +@all -cluster|myid -cluster|info";
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0).line(vague)).await?;
    let url = cluster.node(0).url().replace("redis://", "redis://vague:p@");
    let ran = Tool::new([url]).doctor(0).await?;
    for right in ["+cluster|myid", "+cluster|info"] {
        ran.expect_line("warning", &[right]);
    }
    Ok(())
}

/// Some rights are needed only while a slot moves, or after a failover, or once the server has
/// forgotten the scripts.
#[tokio::test]
async fn doctor_names_missing_rights_that_are_not_needed_yet() -> Result {
    let locker = "user locker on >p resetchannels -@all ~rwlease:* &{*}rwlease:* +eval +evalsha +asking +time +info \
                  +cluster|slots +cluster|myid +cluster|info +ssubscribe +sunsubscribe +wait +exists +hget +hmget +hset \
                  +hdel +pexpireat +spublish +get +set +scan +config|get +cluster|nodes";
    let shape = ClusterConfig::of(3, 1).line("appendonly yes").line(locker);
    let cluster = Cluster::start_with(shape).await?;
    let tool = Tool::new([cluster.node(0).url().replace("redis://", "redis://locker:p@")]);
    let ran = tool.run(&["doctor"]).await?;
    assert!(ran.out.ends_with("0 wrong, 0 warnings\n"), "{}", ran.out);

    let (master, replica) = (cluster.node(0), cluster.node(3));
    for (at, without, told) in [
        (master, "-asking", "give +asking"),
        (master, "-eval", "give +eval"),
        (master, "-time", "give +time"),
        (replica, "-asking", "give +asking"),
        (replica, "-evalsha -hset", "give +evalsha +hset"),
        (replica, "-cluster|slots -hset", "give +cluster|slots +hset"),
        (replica, "resetkeys", "give ~rwlease:*"),
    ] {
        at.run_words::<()>(&format!("ACL SETUSER locker {without}")).await?;
        let ran = tool.doctor(1).await?;
        ran.expect_line("wrong", &[&at.address(), told]);
        assert!(!ran.out.contains("`rwlease doctor`"), "{without}: {}", ran.out);
        let given =
            "ACL SETUSER locker +asking +eval +evalsha +time +hset +cluster|slots ~rwlease:*";
        at.run_words::<()>(given).await?;
    }

    let pushes = "-ssubscribe -sunsubscribe -spublish -scan -wait";
    replica.run_words::<()>(&format!("ACL SETUSER locker {pushes}")).await?;
    let ran = tool.doctor(0).await?;
    for right in pushes.split(" -").map(|right| right.trim_start_matches('-')) {
        ran.expect_line("warning", &[&replica.address(), &format!("give +{right}")]);
    }

    replica.run_words::<()>("ACL DELUSER locker").await?;
    let ran = tool.run(&["doctor"]).await?;
    ran.expect_line("warning", &[&replica.address(), "WRONGPASS", "and accepts this user"]);
    Ok(())
}

/// A user that needs no password is not the default user.
#[tokio::test]
async fn doctor_checks_the_rights_of_a_user_without_a_password() -> Result {
    let default = "user default on nopass ~* &* +@all -spublish";
    let locker = "user locker on nopass ~* &* +@all";
    let server =
        StandaloneServer::start_with(ServerSettings::default().line(default).line(locker)).await?;
    let url = server.url();
    Tool::new([&url]).run(&["doctor"]).await?.expect_out(&["+spublish"]);
    let ran = Tool::new([url.replace("redis://", "redis://locker:@")]).doctor(0).await?;
    assert!(!ran.out.contains("+spublish"), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn doctor_of_a_server_without_lua_reports_it() -> Result {
    let settings = ServerSettings::default()
        .line("rename-command EVAL \"\"")
        .line("rename-command EVALSHA \"\"");
    let server = StandaloneServer::start_with(settings).await?;
    let ran = Tool::new([server.url()]).doctor(1).await?;
    ran.expect_line("wrong", &[&server.address(), "no Lua"]);

    if server.version().has_lua_module() {
        let server = StandaloneServer::start_with(
            ServerSettings::default().line("enable-module-command yes"),
        )
        .await?;
        let tool = Tool::new([server.url()]);
        let ran = tool.doctor(0).await?;
        assert!(!ran.out.contains("Lua"), "{}", ran.out);
        server.run_words::<()>("MODULE UNLOAD lua").await?;
        tool.run(&["doctor"]).await?.expect_line("wrong", &[&server.address(), "no Lua"]);
    }
    Ok(())
}

#[tokio::test]
async fn doctor_of_a_server_without_some_commands_names_them() -> Result {
    // As managed servers do it.
    let without = |command: &str| format!("rename-command {command} \"\"");
    let shape = ClusterConfig::of(2, 1).line("appendonly yes").line(without("CONFIG"));
    let cluster = Cluster::start_with(shape).await?;
    let ran = Tool::new(cluster.urls()).doctor(0).await?;
    ran.expect_line("note", &["does not serve CONFIG GET", "failover"]);
    ran.expect_out(&["a cluster of 2 masters and 2 replicas"]);

    let settings = ServerSettings::default()
        .line(without("CLUSTER"))
        .line(without("WAIT"))
        .line(without("CONFIG"));
    let server = StandaloneServer::start_with(settings).await?;
    let ran = Tool::new([server.url()]).doctor(0).await?;
    ran.expect_line("note", &["a single server"]);
    assert!(!ran.out.contains("has no replica"), "the note says it: {}", ran.out);
    ran.expect_line("note", &["does not serve CONFIG GET"]);
    ran.expect_line("warning", &["does not serve WAIT", "--min-replicas"]);
    Ok(())
}

#[tokio::test]
async fn doctor_at_a_node_that_hides_its_cluster_says_so() -> Result {
    let settings =
        ServerSettings::default().line("cluster-enabled yes").line("rename-command CLUSTER \"\"");
    let server = StandaloneServer::start_with(settings).await?;
    let ran = Tool::new([server.url()]).doctor(1).await?;
    let told = "is a node of a cluster that does not serve CLUSTER";
    ran.expect_line("wrong", &[&server.address(), told]);
    assert!(!ran.out.contains("a single server, no cluster"), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn doctor_notes_how_the_server_deletes_expired_keys() -> Result {
    for (value, is_noted) in [("no", true), ("yes", false)] {
        let settings = ServerSettings::default().line(format!("lazyfree-lazy-expire {value}"));
        let server = StandaloneServer::start_with(settings).await?;
        let ran = Tool::new([server.url()]).run(&["doctor"]).await?;
        assert_eq!(ran.has_line("note", &["lazyfree-lazy-expire"]), is_noted, "{}", ran.out);
    }
    Ok(())
}

#[tokio::test]
async fn doctor_of_two_servers_behind_one_address_reports_them() -> Result {
    let (one, other) = (StandaloneServer::start().await?, StandaloneServer::start().await?);
    let both = Balancer::start(&[&one, &other]).await?;
    let ran = Tool::new([both.url()]).doctor(1).await?;
    ran.expect_line("wrong", &["2 servers answer at this address"]);

    let twice = Balancer::start(&[&one, &one]).await?;
    // It is one server, whatever is before it.
    Tool::new([twice.url()]).doctor(0).await?;
    Ok(())
}

#[tokio::test]
async fn doctor_accepts_a_load_balancer_before_one_cluster() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let entrance = Balancer::start(&[cluster.node(0), cluster.node(1)]).await?;
    // The load balancer is a way to find the cluster, and no more.
    Tool::new([entrance.url()]).doctor(0).await?;
    Ok(())
}

#[tokio::test]
async fn doctor_of_nodes_of_two_clusters_reports_them() -> Result {
    let (one, other) = (
        Cluster::start_with(ClusterConfig::of(2, 0)).await?,
        Cluster::start_with(ClusterConfig::of(2, 0)).await?,
    );
    Tool::new(one.urls()).doctor(0).await?;
    let urls = [one.node(0).url(), other.node(1).url()];
    let ran = Tool::new(urls).doctor(1).await?;
    let there = other.node(1).address();
    let told = one.nodes().iter().any(|node| {
        let than = format!("another cluster than {}", node.address());
        ran.has_line("wrong", &[&there, &than])
    });
    assert!(told, "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn doctor_of_independent_servers_reports_separate_locks() -> Result {
    let (one, other) = (StandaloneServer::start().await?, StandaloneServer::start().await?);
    let ran = Tool::new([one.url(), other.url()]).doctor(1).await?;
    ran.expect_line("wrong", &[&one.address(), &other.address(), "its own locks"]);

    // One server by two names.
    Tool::new([one.url(), one.url().replace("127.0.0.1", "localhost")]).doctor(0).await?;

    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let ran = Tool::new([cluster.node(0).url(), one.url()]).doctor(1).await?;
    ran.expect_line("wrong", &[&one.address(), "no node of the cluster"]);

    let gone = other.url();
    other.kill()?;
    let ran = Tool::new([one.url(), gone]).doctor(1).await?;
    ran.expect_line("wrong", &["no client for locks"]);
    ran.expect_line("warning", &[&other.address(), "cannot be queried"]);
    Ok(())
}

#[tokio::test]
async fn doctor_of_a_primary_behind_a_host_name_warns_of_failover() -> Result {
    let primary = StandaloneServer::start().await?;
    let replica = primary.start_replica().await?;
    let by_name = |url: String| url.replace("127.0.0.1", "localhost");
    let ran = Tool::new([by_name(primary.url())]).doctor(0).await?;
    ran.expect_line("warning", &["localhost", "failover", "another server"]);
    let ran = Tool::new([primary.url()]).run(&["doctor"]).await?;
    let alone = [&*primary.address(), "has one replica", "before you use --min-replicas"];
    ran.expect_line("note", &alone);
    assert!(!ran.out.contains("failover moves"), "{}", ran.out);
    assert!(!ran.out.contains("cannot be queried"), "{}", ran.out);
    ran.expect_line("ok", &[&replica.address(), "noeviction"]);

    let ran = Tool::new([replica.url()]).doctor(1).await?;
    ran.expect_line("wrong", &[&replica.address(), "is a replica"]);

    let ran = Tool::new([primary.url(), replica.url()]).run(&["doctor"]).await?;
    ran.expect_line("wrong", &[&replica.address(), "is another server"]);
    Ok(())
}
