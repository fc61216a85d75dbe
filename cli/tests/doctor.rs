//! `rwlease doctor`: a fault of each kind, and none.

use crate::fixture::{Ran, Tool};
use testkit::{Balancer, Cluster, ClusterConfig, Result, ServerSettings, StandaloneServer};

#[tokio::test]
async fn doctor_of_a_healthy_cluster_finds_nothing() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 1).line("appendonly yes")).await?;
    let ran = Tool::new([cluster.node(3).url()]).doctor(0).await?;
    assert!(ran.out.ends_with("0 wrong, 0 warnings\n"), "{}", ran.out);
    for line in [
        "a cluster of 2 masters and 2 replicas",
        "a lock was taken, handed over",
        "noeviction",
        "1 replica in step",
        "the nodes' clocks are at most",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    assert!(!ran.out.contains('\x1b'), "colour is for terminals");
    Ok(())
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
    for line in [
        "the memory policy allkeys-lru evicts locks",
        "has no replica",
        "a failover takes up to 37s",
        "keeps no log",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }

    for number in 0..2 {
        cluster.node(number).run_words::<()>("CONFIG SET maxmemory-policy noeviction").await?;
    }
    assert_eq!(tool.run(&["doctor"]).await?.status, Some(0));

    let master = cluster.master_of(7).await?;
    cluster.node(master).run_words::<()>("CLUSTER DELSLOTS 7").await?;
    let ran = tool.run(&["doctor", "--redis", &cluster.node(master).url()]).await?;
    assert_eq!(ran.status, Some(1));
    assert!(ran.out.contains("nobody serves slot 7: locks in it"), "{}", ran.out);
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
    let ran = tool.doctor(1).await?;
    let away = cluster.node(1).address().to_string();
    let told = |line: &str| {
        line.starts_with("wrong") && line.contains(&away) && line.contains("cannot be queried")
    };
    assert!(ran.out.lines().any(told), "{}", ran.out);
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
    let ran = as_user("poor").run(&["doctor"]).await?;
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let told = |line: &str| line.starts_with("wrong") && line.contains("lacks");
    assert!(ran.out.lines().any(told), "{}", ran.out);
    let ran = as_user("mute").run(&["doctor"]).await?;
    assert_eq!(ran.status, Some(0), "locks work, slower: {ran:?}");
    for right in [
        "+set",
        "+get",
        "+info",
        "memory",
        "+wait",
        "+ssubscribe",
        "+spublish",
        "+scan",
        "cached locks",
    ] {
        assert!(ran.out.contains(right), "{right}: {}", ran.out);
    }
    let fsync = match server.version().has_waitaof() {
        true => "a right for `--fsync`: give +waitaof",
        false => "does not serve WAITAOF, needed for `--fsync`",
    };
    assert!(says(&ran, "note", &[fsync]), "{}", ran.out);
    // What tells nodes apart is queried in a cluster alone.
    let vague = "user vague on >p ~* &* +@all -cluster|myid -cluster|info";
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0).line(vague)).await?;
    let url = cluster.node(0).url().replace("redis://", "redis://vague:p@");
    let ran = Tool::new([url]).doctor(0).await?;
    for right in ["+cluster|myid", "+cluster|info"] {
        let told = |line: &str| line.starts_with("warning") && line.contains(right);
        assert!(ran.out.lines().any(told), "{right}: {}", ran.out);
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
    let shape = ClusterConfig::of(1, 1).line("appendonly yes").line(locker);
    let cluster = Cluster::start_with(shape).await?;
    let tool = Tool::new([cluster.node(0).url().replace("redis://", "redis://locker:p@")]);
    let ran = tool.run(&["doctor"]).await?;
    assert!(ran.out.ends_with("0 wrong, 0 warnings\n"), "{}", ran.out);

    let (master, replica) = (cluster.node(0), cluster.node(1));
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
        assert!(says(&ran, "wrong", &[&at.address(), told]), "{without}: {}", ran.out);
        assert!(!ran.out.contains("`rwlease doctor`"), "{without}: {}", ran.out);
        let given =
            "ACL SETUSER locker +asking +eval +evalsha +time +hset +cluster|slots ~rwlease:*";
        at.run_words::<()>(given).await?;
    }

    let pushes = "-ssubscribe -sunsubscribe -spublish -scan -wait";
    replica.run_words::<()>(&format!("ACL SETUSER locker {pushes}")).await?;
    let ran = tool.doctor(0).await?;
    for right in pushes.split(" -").map(|right| right.trim_start_matches('-')) {
        let told = format!("give +{right}");
        assert!(says(&ran, "warning", &[&replica.address(), &told]), "{right}: {}", ran.out);
    }

    replica.run_words::<()>("ACL DELUSER locker").await?;
    let ran = tool.run(&["doctor"]).await?;
    let told = [&*replica.address(), "WRONGPASS", "and accepts this user"];
    assert!(says(&ran, "warning", &told), "{}", ran.out);
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
    let ran = Tool::new([&url]).run(&["doctor"]).await?;
    assert!(ran.out.contains("+spublish"), "{}", ran.out);
    let ran = Tool::new([url.replace("redis://", "redis://locker:@")]).doctor(0).await?;
    assert!(!ran.out.contains("+spublish"), "{}", ran.out);
    Ok(())
}

/// Whether a line at this level says all of that.
fn says(ran: &Ran, level: &str, parts: &[&str]) -> bool {
    let mut lines = ran.out.lines().filter(|line| line.starts_with(level));
    lines.any(|line| parts.iter().all(|part| line.contains(part)))
}

#[tokio::test]
async fn doctor_of_a_server_without_lua_reports_it() -> Result {
    let settings = ServerSettings::default()
        .line("rename-command EVAL \"\"")
        .line("rename-command EVALSHA \"\"");
    let server = StandaloneServer::start_with(settings).await?;
    let ran = Tool::new([server.url()]).doctor(1).await?;
    let address = server.address();
    assert!(says(&ran, "wrong", &[&address, "no Lua"]), "{}", ran.out);

    if server.version().has_lua_module() {
        let server = StandaloneServer::start_with(
            ServerSettings::default().line("enable-module-command yes"),
        )
        .await?;
        let tool = Tool::new([server.url()]);
        let ran = tool.doctor(0).await?;
        assert!(!ran.out.contains("Lua"), "{}", ran.out);
        server.run_words::<()>("MODULE UNLOAD lua").await?;
        let ran = tool.run(&["doctor"]).await?;
        assert!(says(&ran, "wrong", &[&server.address(), "no Lua"]), "{}", ran.out);
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
    assert!(says(&ran, "note", &["does not serve CONFIG GET", "failover"]), "{}", ran.out);
    assert!(ran.out.contains("a cluster of 2 masters and 2 replicas"), "{}", ran.out);

    let settings = ServerSettings::default()
        .line(without("CLUSTER"))
        .line(without("WAIT"))
        .line(without("CONFIG"));
    let server = StandaloneServer::start_with(settings).await?;
    let ran = Tool::new([server.url()]).doctor(0).await?;
    assert!(says(&ran, "note", &["a single server"]), "{}", ran.out);
    assert!(!ran.out.contains("has no replica"), "the note says it: {}", ran.out);
    assert!(says(&ran, "note", &["does not serve CONFIG GET"]), "{}", ran.out);
    assert!(says(&ran, "warning", &["does not serve WAIT", "--min-replicas"]), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn doctor_at_a_node_that_hides_its_cluster_says_so() -> Result {
    let settings =
        ServerSettings::default().line("cluster-enabled yes").line("rename-command CLUSTER \"\"");
    let server = StandaloneServer::start_with(settings).await?;
    let ran = Tool::new([server.url()]).doctor(1).await?;
    let told = [&*server.address(), "is a node of a cluster that does not serve CLUSTER"];
    assert!(says(&ran, "wrong", &told), "{}", ran.out);
    assert!(!ran.out.contains("a single server, no cluster"), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn doctor_notes_how_the_server_deletes_expired_keys() -> Result {
    for (value, is_noted) in [("no", true), ("yes", false)] {
        let settings = ServerSettings::default().line(format!("lazyfree-lazy-expire {value}"));
        let server = StandaloneServer::start_with(settings).await?;
        let ran = Tool::new([server.url()]).run(&["doctor"]).await?;
        assert_eq!(says(&ran, "note", &["lazyfree-lazy-expire"]), is_noted, "{}", ran.out);
    }
    Ok(())
}

#[tokio::test]
async fn doctor_of_two_servers_behind_one_address_reports_them() -> Result {
    let (one, other) = (StandaloneServer::start().await?, StandaloneServer::start().await?);
    let both = Balancer::start(&[&one, &other]).await?;
    let ran = Tool::new([both.url()]).doctor(1).await?;
    assert!(says(&ran, "wrong", &["2 servers answer at this address"]), "{}", ran.out);

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
        says(&ran, "wrong", &[&there, &than])
    });
    assert!(told, "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn doctor_of_independent_servers_reports_separate_locks() -> Result {
    let (one, other) = (StandaloneServer::start().await?, StandaloneServer::start().await?);
    let ran = Tool::new([one.url(), other.url()]).doctor(1).await?;
    let told = [&one.address(), &other.address(), "its own locks"];
    assert!(says(&ran, "wrong", &told.map(|part| part as &str)), "{}", ran.out);

    let ran = Tool::new([one.url(), one.url().replace("127.0.0.1", "localhost")]);
    let ran = ran.run(&["doctor"]).await?;
    assert_eq!(ran.status, Some(0), "one server by two names: {ran:?}");

    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let ran = Tool::new([cluster.node(0).url(), one.url()]).doctor(1).await?;
    assert!(says(&ran, "wrong", &[&one.address(), "no node of the cluster"]), "{}", ran.out);

    let gone = other.url();
    other.kill()?;
    let ran = Tool::new([one.url(), gone]).doctor(1).await?;
    assert!(says(&ran, "wrong", &["no client for locks"]), "{}", ran.out);
    assert!(says(&ran, "warning", &[&other.address(), "cannot be queried"]), "{}", ran.out);
    Ok(())
}

#[tokio::test]
async fn doctor_of_a_primary_behind_a_host_name_warns_of_failover() -> Result {
    let primary = StandaloneServer::start().await?;
    let replica = primary.start_replica().await?;
    let by_name = |url: String| url.replace("127.0.0.1", "localhost");
    let ran = Tool::new([by_name(primary.url())]).doctor(0).await?;
    assert!(says(&ran, "warning", &["localhost", "failover", "another server"]), "{}", ran.out);
    let ran = Tool::new([primary.url()]).run(&["doctor"]).await?;
    let alone = [&*primary.address(), "has one replica", "before you use --min-replicas"];
    assert!(says(&ran, "note", &alone), "{}", ran.out);
    assert!(!ran.out.contains("failover moves"), "{}", ran.out);
    assert!(!ran.out.contains("cannot be queried"), "{}", ran.out);
    assert!(says(&ran, "ok", &[&replica.address(), "noeviction"]), "{}", ran.out);

    let ran = Tool::new([replica.url()]).doctor(1).await?;
    assert!(says(&ran, "wrong", &[&replica.address(), "is a replica"]), "{}", ran.out);

    let ran = Tool::new([primary.url(), replica.url()]).run(&["doctor"]).await?;
    assert!(says(&ran, "wrong", &[&replica.address(), "is another server"]), "{}", ran.out);
    Ok(())
}
