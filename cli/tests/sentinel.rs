//! A server that sentinels watch.

use tokio::time::timeout;

use crate::fixture::{LONG, Tool};
use testkit::{Result, SentinelConfigForTest, SentinelDeployment, ServerSettings};

#[tokio::test]
async fn run_finds_the_master_by_its_sentinels_across_a_failover() -> Result {
    let sentinels = SentinelDeployment::start_with(SentinelConfigForTest {
        servers: ServerSettings::default().password("of-servers").line("appendonly yes"),
        sentinel_settings: ServerSettings::default().password("of-sentinels"),
        ..SentinelConfigForTest::default()
    })
    .await?;
    let tool = Tool::new([sentinels.url()]);
    let told = tool.env("RWLEASE_SENTINEL_PASSWORD", "of-sentinels");
    told.run(&["run", "a", "--", "echo", "held"]).await?.expect_output(0, "held\n");
    let old = sentinels.master().await?;
    let new = sentinels.fail_over().await?;
    assert_ne!(old, new);
    told.run(&["run", "a", "--", "echo", "again"]).await?.expect_output(0, "again\n");

    let looked = told.doctor(0).await?;
    let master = sentinels.server(new).address();
    looked.expect_out(&[
        "a single server that sentinels watch",
        &format!("names the master {master}"),
        "a lock was taken, handed over",
        "1 replica in step",
        "have two replicas, then set min-replicas-to-write 1",
    ]);
    assert!(!looked.out.contains("down-after"), "{}", looked.out);

    tool.exits(&["status", "a"], 77).await?;
    let wrong = sentinels.url_of(sentinels.sentinels(), "another");
    for command in [&["status", "a"][..], &["doctor"]] {
        let unknown = told.exits(&[command, &["--redis", &wrong]].concat(), 64).await?;
        unknown.expect_err(&["`another`"]);
    }
    let locked_out = tool.exits(&["doctor"], 77).await?;
    assert!(!locked_out.err.contains("`rwlease doctor`"), "{locked_out:?}");
    for command in [&["status", "a"][..], &["doctor"]] {
        let sentinel = sentinels.sentinel(0).url();
        let named = told.run(&[command, &["--redis", &sentinel]].concat()).await?;
        named.expect_err(&["use redis+sentinel://"]);
    }
    let both = format!("{},{}", sentinels.url(), sentinels.server(new).url());
    told.exits(&["status", "a", "--redis", &both], 64).await?;
    Ok(())
}

#[tokio::test]
async fn doctor_of_healthy_servers_and_sentinels_finds_nothing() -> Result {
    let servers = ServerSettings::default().line("appendonly yes").line("min-replicas-to-write 1");
    let sentinels = SentinelDeployment::start_with(SentinelConfigForTest {
        servers,
        ..SentinelConfigForTest::of(2)
    })
    .await?;
    let ran = Tool::new([sentinels.url()]).run(&["doctor"]).await?;
    assert!(ran.out.ends_with("0 wrong, 0 warnings\n"), "{}", ran.out);
    for server in sentinels.servers() {
        ran.expect_line("", &[&server.address(), "noeviction"]);
    }
    Ok(())
}

#[tokio::test]
async fn doctor_names_the_rights_that_a_sentinel_user_lacks() -> Result {
    let least = "user locker on nopass resetchannels -@all &+switch-master +sentinel|get-master-addr-by-name";
    let optional = ["+sentinel|master", "+sentinel|sentinels", "+sentinel|myid", "+subscribe"];
    let of_sentinels = ServerSettings::default().line(format!("{least} {}", optional.join(" ")));
    let sentinels = SentinelDeployment::start_with(SentinelConfigForTest {
        sentinel_settings: of_sentinels,
        ..SentinelConfigForTest::default()
    })
    .await?;
    let tool = Tool::new([sentinels.url()]).env("RWLEASE_SENTINEL_PASSWORD", "any");
    let doctor = &["doctor", "--sentinel-user", "locker"];
    let ran = tool.exits(doctor, 0).await?;
    assert!(!ran.out.contains("lacks"), "{}", ran.out);

    for sentinel in sentinels.sentinels() {
        sentinel
            .run_words::<()>(&format!(
                "ACL SETUSER {}",
                least.replace("user locker on", "locker reset on")
            ))
            .await?;
    }
    let ran = tool.exits(doctor, 0).await?; // the master is found
    for right in optional {
        ran.expect_line("warning", &[&format!("give {right}")]);
    }
    Ok(())
}

#[tokio::test]
async fn doctor_reports_few_slow_and_dead_sentinels() -> Result {
    let sentinels = SentinelDeployment::start_with(SentinelConfigForTest {
        sentinels: 2,
        servers: ServerSettings::default().line("min-replicas-to-write 1"),
        ..SentinelConfigForTest::default()
    })
    .await?;
    for sentinel in sentinels.sentinels() {
        sentinel.run_words::<()>("SENTINEL SET mymaster down-after-milliseconds 30000").await?;
    }
    let ran = Tool::new([sentinels.url()]).doctor(0).await?;
    ran.expect_out(&[
        "2 sentinels watch the server",
        "a failover takes up to 33s",
        "min-replicas-to-write is set, with one connected replica",
    ]);
    assert!(!ran.out.contains("cut off"), "{}", ran.out);
    sentinels.sentinel(1).kill()?;
    let ran = Tool::new([sentinels.url()]).doctor(0).await?;
    ran.expect_out(&[
        "this sentinel cannot be queried",
        "1 of 2 sentinels live, and a failover takes 2: no replica takes over",
    ]);
    Ok(())
}

/// The URL names one of the sentinels, which knows how the others are.
#[tokio::test]
async fn doctor_warns_of_dead_sentinels_that_no_url_names() -> Result {
    let sentinels = SentinelDeployment::start_with(SentinelConfigForTest {
        servers: ServerSettings::default().line("appendonly yes").line("min-replicas-to-write 1"),
        ..SentinelConfigForTest::of(2)
    })
    .await?;
    let tool = Tool::new([sentinels.url_of(&sentinels.sentinels()[..1], "mymaster")]);
    for (dead, says) in
        [(1, "if one more fails, no replica takes over"), (2, "takes 2: no replica")]
    {
        sentinels.sentinel(dead).kill()?;
        let seen = async {
            while !tool.run(&["doctor"]).await?.has_line("warning", &["sentinels live", says]) {}
            Ok::<_, testkit::Error>(())
        };
        timeout(LONG, seen).await??;
    }
    Ok(())
}

#[tokio::test]
async fn doctor_warns_of_a_replica_that_sentinels_never_promote() -> Result {
    let servers = ServerSettings::default().line("appendonly yes").line("replica-priority 0");
    let sentinels = SentinelDeployment::start_with(SentinelConfigForTest {
        servers,
        ..SentinelConfigForTest::default()
    })
    .await?;
    let ran = Tool::new([sentinels.url()]).doctor(0).await?;
    ran.expect_line("warning", &["has only replicas that never take over"]);
    Ok(())
}
