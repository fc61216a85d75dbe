//! The test support itself: clusters form, slots move, masters die and are replaced, and no process
//! is left running.

use std::path::Path;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};
use rustix::process::{Pid, test_kill_process};
use testkit::{
    ClientKind, Cluster, ClusterConfig, CutPoint, FailoverMode, PollLimit, Proxies, Proxy,
    ProxyFlow, Result, ServerSettings, StandaloneServer,
};
use tokio::time::timeout;

#[tokio::test]
async fn a_single_server_answers_and_ends() -> Result {
    let server = StandaloneServer::start().await?;
    let _: () = server.run(cmd("SET").arg("a").arg(1)).await?;
    assert_eq!(server.run_words::<i64>("GET a").await?, 1);

    let (id, folder) = (server.id(), server.folder().to_path_buf());
    drop(server);
    assert!(!is_alive(id));
    assert!(!folder.exists());
    Ok(())
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let wrong = ServerSettings::default().line("no-such-setting yes");
    let error = StandaloneServer::start_with(wrong).await.expect_err("started").to_string();
    assert!(error.contains("no-such-setting"), "{error}");

    let missing = ServerSettings::default().binary("/no/such/server");
    let error = StandaloneServer::start_with(missing).await.expect_err("started").to_string();
    assert!(error.contains("/no/such/server"), "{error}");
}

/// Redis would otherwise count the votes of the first failover again, or start no election.
#[tokio::test]
async fn a_replica_takes_over_twice_at_one_order_each() -> Result {
    let cluster = Cluster::start().await?;
    for replica in [3, 0, 3] {
        cluster.fail_over(replica, FailoverMode::Orderly).await?;
    }
    let log = std::fs::read_to_string(cluster.node(3).folder().join("server.log"))?;
    for (event, times) in
        [("anual failover user request accepted", 2), ("tarting a failover election", 2)]
    {
        assert_eq!(log.matches(event).count(), times, "{event}: {log}");
    }
    assert!(!log.contains("unable to failover: Failover attempt expired"), "{log}");
    Ok(())
}

#[tokio::test]
async fn slots_move_with_their_keys() -> Result {
    let cluster = Cluster::start().await?;
    assert_eq!(cluster.masters().await?, [0, 1, 2]);
    assert_eq!(cluster.replicas_of(1).await?, [4]);

    let slot = cluster.slot_of("{move}").await?;
    let from = cluster.master_of(slot).await?;
    let to = (from + 1) % 3;
    for number in 0..250 {
        let _: () =
            cluster.node(from).run(cmd("SET").arg(format!("{{move}}{number}")).arg(number)).await?;
    }

    let step = cluster.begin_migration(slot, to).await?;
    cluster.move_key(step, "{move}7").await?;
    let refusal = cluster
        .node(from)
        .run_words::<i64>("GET {move}7")
        .await
        .expect_err("not redirected")
        .to_string();
    assert!(refusal.to_uppercase().contains("ASK"), "{refusal}");
    assert_eq!(cluster.node(from).run_words::<i64>("GET {move}8").await?, 8);
    assert_eq!(cluster.move_keys(step).await?, 249);
    cluster.finish_migration(step).await?;

    assert_eq!(cluster.master_of(slot).await?, to);
    assert_eq!(cluster.node(to).run_words::<i64>("GET {move}249").await?, 249);
    for turn in 0..10 {
        spawnable(cluster.move_slot(slot, turn % 3)).await?;
        assert_eq!(cluster.master_of(slot).await?, turn % 3);
    }
    let there = cluster.master_of(slot).await?;
    let moved = spawnable(cluster.migrate_slots_atomically(slot, slot, (there + 1) % 3)).await;
    if cluster.version().has_atomic_moves() {
        moved?;
        assert_eq!(cluster.node((there + 1) % 3).run_words::<i64>("GET {move}8").await?, 8);
    } else {
        let refused = moved.expect_err("it cannot").to_string().to_lowercase();
        assert!(refused.contains("unknown subcommand"), "{refused}");
        assert_eq!(cluster.master_of(slot).await?, there);
    }
    Ok(())
}

#[tokio::test]
async fn connections_are_killed() -> Result {
    let server = StandaloneServer::start().await?;
    let mut connection = server.connect().await?;
    assert_eq!(server.kill_clients(ClientKind::Subscribed).await?, 0);
    // At least this connection. The server may still count that of the previous command, which is
    // closed.
    assert!(server.kill_clients(ClientKind::Commands).await? >= 1);
    assert!(ping(&mut connection).await.is_err());

    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let mut connection = cluster.node(0).connect().await?;
    assert!(spawnable(cluster.kill_clients_repeatedly(2, Duration::ZERO)).await? >= 1);
    assert!(ping(&mut connection).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_proxy_keeps_back_loses_and_cuts() -> Result {
    let server = StandaloneServer::start().await?;
    let proxy = Proxy::start(&server).await?;
    let mut connection = connect(&proxy.url()).await?;
    proxy.requests(ProxyFlow::Slow(Duration::from_millis(1)));
    ping(&mut connection).await?;

    proxy.replies(ProxyFlow::Paused);
    let mut held = connection.clone();
    let mut held = tokio::spawn(async move { ping(&mut held).await });
    assert!(timeout(Duration::from_millis(100), &mut held).await.is_err());
    proxy.heal();
    held.await??;

    proxy.drop_all();
    assert!(timeout(Duration::from_millis(100), ping(&mut connection)).await.is_err());
    let mut fresh = tokio::net::TcpStream::connect(("127.0.0.1", proxy.port())).await?;
    tokio::io::AsyncWriteExt::write_all(&mut fresh, b"PING\r\n").await?;
    proxy.heal();
    proxy.cut();
    assert!(ping(&mut connection).await.is_err());

    let mut connection = connect(&proxy.url()).await?;
    proxy.close();
    assert!(ping(&mut connection).await.is_err());
    assert!(connect(&proxy.url()).await.is_err());
    proxy.heal();
    connect(&proxy.url()).await?;
    Ok(())
}

#[tokio::test]
async fn a_proxy_cuts_before_or_after_one_command() -> Result {
    let server = StandaloneServer::start().await?;
    let proxy = Proxy::start(&server).await?;
    for (cut, expected) in [(CutPoint::BeforeIt, None), (CutPoint::AfterIt, Some(1))] {
        let mut connection = connect(&proxy.url()).await?;
        let sprung = proxy.trap("Incr", cut);
        ping(&mut connection).await?;
        assert!(cmd("INCR").arg("n").query_async::<i64>(&mut connection).await.is_err());
        sprung.await?;
        assert_eq!(server.run_words::<Option<i64>>("GET n").await?, expected);
    }
    Ok(())
}

#[tokio::test]
async fn proxies_stand_in_front_of_all_nodes() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let proxies = Proxies::start(&cluster).await?;
    let translate = proxies.translation();
    for (number, node) in cluster.nodes().iter().enumerate() {
        let (host, port) = translate("127.0.0.1", node.port());
        assert_eq!(port, proxies.at(number).port());
        let mut connection = connect(&format!("redis://{host}:{port}")).await?;
        let id: String = cmd("CLUSTER").arg("MYID").query_async(&mut connection).await?;
        assert_eq!(id, cluster.id(number));
    }
    Ok(())
}

/// A killed process cleans nothing up, but its servers must still end.
#[tokio::test]
async fn servers_end_with_a_killed_process() -> Result {
    const CHILD: &str = "RWLEASE_TEST_CHILD";
    let server = StandaloneServer::start().await?;
    if let Ok(note) = std::env::var(CHILD) {
        server.freeze()?;
        std::fs::write(
            &note,
            format!("{} {}", server.id().unwrap_or(0), server.folder().display()),
        )?;
        tokio::time::sleep(Duration::from_secs(600)).await;
        return Ok(());
    }

    let note = server.folder().join("note");
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .args(["--exact", "cluster::servers_end_with_a_killed_process"])
        .env(CHILD, &note)
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let wait_limit = PollLimit::new("the child's note");
    let text = loop {
        match std::fs::read_to_string(&note) {
            Ok(text) if text.contains(' ') => break text,
            _ => wait_limit.pause("nothing yet").await?,
        }
    };
    let (id, folder) = text.split_once(' ').unwrap_or_default();
    let id = id.parse().ok();
    assert!(is_alive(id) && Path::new(folder).exists());

    child.kill()?;
    child.wait()?;
    let wait_limit = PollLimit::new("the server of the killed process to end");
    while is_alive(id) || Path::new(folder).exists() {
        wait_limit.pause("it is there").await?;
    }
    Ok(())
}

/// Tests cause faults from spawned tasks, so these futures must be `Send`.
fn spawnable<F: Future + Send>(future: F) -> F {
    future
}

async fn connect(url: &str) -> Result<MultiplexedConnection> {
    Ok(Client::open(url)?.get_multiplexed_async_connection().await?)
}

async fn ping(connection: &mut MultiplexedConnection) -> Result<String> {
    Ok(cmd("PING").query_async(connection).await?)
}

/// Whether the process runs. A process that has ended counts as alive until it is reaped, unless
/// `init` has to reap it.
fn is_alive(id: Option<u32>) -> bool {
    let Some(id) = id.and_then(|id| Pid::from_raw(id as i32)) else {
        return false;
    };
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).unwrap_or_default();
    let is_left_to_init = stat.contains(") Z 1 ");
    test_kill_process(id).is_ok() && !is_left_to_init
}
