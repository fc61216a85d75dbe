//! A server that sentinels watch.

use crate::fixture::{self, Tool};
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
    let ran = async |args: &[&str]| {
        let mut command = tool.command(args);
        command.env("RWLEASE_SENTINEL_PASSWORD", "of-sentinels");
        fixture::ran(command).await
    };
    let held = ran(&["run", "a", "--", "echo", "held"]).await?;
    assert_eq!((held.status, held.out.as_str()), (Some(0), "held\n"), "{held:?}");
    let old = sentinels.master().await?;
    let new = sentinels.fail_over().await?;
    assert_ne!(old, new);
    let held = ran(&["run", "a", "--", "echo", "again"]).await?;
    assert_eq!((held.status, held.out.as_str()), (Some(0), "again\n"), "{held:?}");

    let looked = ran(&["doctor"]).await?;
    assert_eq!(looked.status, Some(0), "{looked:?}");
    let master = sentinels.server(new).address();
    for line in [
        "a single server that sentinels watch",
        &format!("names the master {master}"),
        "a lock was taken, handed over",
        "1 replica in step",
        "have two replicas, then set min-replicas-to-write 1",
    ] {
        assert!(looked.out.contains(line), "{line}: {}", looked.out);
    }
    assert!(!looked.out.contains("down-after"), "{}", looked.out);

    let locked_out = tool.run(&["status", "a"]).await?;
    assert_eq!(locked_out.status, Some(77), "{locked_out:?}");
    let wrong = sentinels.url_of(sentinels.sentinels(), "another");
    let unknown = ran(&["status", "a", "--redis", &wrong]).await?;
    assert_eq!(unknown.status, Some(64), "{unknown:?}");
    assert!(unknown.err.contains("`another`"), "{unknown:?}");
    let unknown = ran(&["doctor", "--redis", &wrong]).await?;
    assert_eq!(unknown.status, Some(64), "{unknown:?}");
    assert!(unknown.err.contains("`another`"), "{unknown:?}");
    let locked_out = tool.run(&["doctor"]).await?;
    assert_eq!(locked_out.status, Some(77), "{locked_out:?}");
    assert!(!locked_out.err.contains("`rwlease doctor`"), "{locked_out:?}");
    for command in [&["status", "a"][..], &["doctor"]] {
        let sentinel = sentinels.sentinel(0).url();
        let named = ran(&[command, &["--redis", &sentinel]].concat()).await?;
        assert!(named.err.contains("use redis+sentinel://"), "{named:?}");
    }
    let both = format!("{},{}", sentinels.url(), sentinels.server(new).url());
    let both = ran(&["status", "a", "--redis", &both]).await?;
    assert_eq!(both.status, Some(64), "{both:?}");
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
        let told = |line: &str| line.contains(&server.address()) && line.contains("noeviction");
        assert!(ran.out.lines().any(told), "{}", ran.out);
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
    let doctor = async || {
        let mut command =
            Tool::new([sentinels.url()]).command(&["doctor", "--sentinel-user", "locker"]);
        command.env("RWLEASE_SENTINEL_PASSWORD", "any");
        fixture::ran(command).await
    };
    let ran = doctor().await?;
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(!ran.out.contains("lacks"), "{}", ran.out);

    for sentinel in sentinels.sentinels() {
        sentinel
            .run_words::<()>(&format!(
                "ACL SETUSER {}",
                least.replace("user locker on", "locker reset on")
            ))
            .await?;
    }
    let ran = doctor().await?;
    assert_eq!(ran.status, Some(0), "the master is found: {ran:?}");
    for right in optional {
        let told =
            |line: &str| line.starts_with("warning") && line.contains(&format!("give {right}"));
        assert!(ran.out.lines().any(told), "{right}: {}", ran.out);
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
    assert!(ran.out.contains("2 sentinels watch the server"), "{}", ran.out);
    assert!(ran.out.contains("a failover takes up to 33s"), "{}", ran.out);
    assert!(
        ran.out.contains("min-replicas-to-write is set, with one connected replica"),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains("cut off"), "{}", ran.out);
    sentinels.sentinel(1).kill()?;
    let ran = Tool::new([sentinels.url()]).doctor(0).await?;
    assert!(ran.out.contains("this sentinel cannot be queried"), "{}", ran.out);
    Ok(())
}
