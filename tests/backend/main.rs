//! What all backends must do at the seam, on real servers, and where they differ.

mod subscriptions;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fred::types::config::{Config, ServerConfig};
use futures::future::join_all;
use rwlease::Credentials;
use rwlease::testing::{
    CommandConnection, ConnectionError, Connector, FredConnector, LIB_NAME, LIB_VERSION,
    native_connector, redis_connector,
};
use rwlease_core::resp::{Address, Command, RespValue};
use tokio::time::timeout;

use testkit::{
    ClientKind, Cluster, ClusterConfig, PollLimit, Proxy, Result, Server, ServerSettings,
    StandaloneServer,
};

const LONG: Duration = Duration::from_secs(20);

type Backends = [(&'static str, Arc<dyn Connector>); 3];

fn backends() -> Backends {
    by(None, Config::default())
}

fn with_password(password: &str) -> Backends {
    with(Credentials::password(password), None, password)
}

fn as_user(user: &str, password: &str) -> Backends {
    with(Credentials::new(user, password), Some(user.into()), password)
}

fn with(credentials: Credentials, username: Option<String>, password: &str) -> Backends {
    let fred = Config {
        username,
        password: Some(password.into()),
        server: ServerConfig::default_clustered(),
        ..Config::default()
    };
    by(Some(credentials), fred)
}

/// The database is that of `fred`.
fn by(credentials: Option<Credentials>, fred: Config) -> Backends {
    let database = fred.database.unwrap_or_default().into();
    [
        ("native", native_connector(credentials.clone(), database)),
        ("redis", redis_connector(credentials, database)),
        ("fred", Arc::new(FredConnector::new(fred))),
    ]
}

fn address(port: u16) -> Address {
    Address { host: "127.0.0.1".into(), port }
}

fn words(line: &str) -> Command {
    Command::from_words(line.split(' '))
}

async fn connect(backend: &dyn Connector, server: &Server) -> Arc<dyn CommandConnection> {
    backend.connect(&address(server.port()), None).await.expect("connected")
}

async fn say(node: &dyn CommandConnection, line: &str) -> RespValue {
    node.call(words(line)).await.expect("an answer")
}

fn text(text: &str) -> RespValue {
    RespValue::String(Bytes::copy_from_slice(text.as_bytes()))
}

/// All that a failure and its sources say.
fn chain(failure: &ConnectionError) -> String {
    let mut text = format!("{failure} {failure:?}");
    let mut source = failure.source();
    while let Some(error) = source {
        text += &format!(" {error} {error:?}");
        source = error.source();
    }
    text
}

/// The code and the detail of an error reply.
fn error(reply: RespValue) -> (String, String) {
    match reply {
        RespValue::Error(error) => (error.code, error.message),
        other => panic!("{other:?} is no error"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_come_as_the_server_gave_them() -> Result {
    let server = StandaloneServer::start().await?;
    for (name, backend) in backends() {
        let node = connect(&*backend, &server).await;
        assert_eq!(say(&*node, "SET key value").await, text("OK"), "{name}");
        assert_eq!(say(&*node, "GET nothing").await, RespValue::Nil, "{name}");
        let bytes = [0xff, 0, b'\r', b'\n', 0xc3];
        let set = Command::new().arg("SET").arg(bytes).arg(bytes);
        assert_eq!(node.call(set.clone()).await.unwrap(), text("OK"));
        let get = Command::new().arg("GET").arg(bytes);
        assert_eq!(
            node.call(get.clone()).await.unwrap(),
            RespValue::String(Bytes::copy_from_slice(&bytes)),
            "{name}"
        );

        let script = "return {1, false, 'text', {-2, ''}, redis.status_reply('QUEUED')}";
        let eval = Command::new().arg("EVAL").arg(script).arg("0");
        let list = RespValue::Array(vec![
            RespValue::Int(1),
            RespValue::Nil,
            text("text"),
            RespValue::Array(vec![RespValue::Int(-2), text("")]),
            text("QUEUED"),
        ]);
        assert_eq!(node.call(eval.clone()).await.unwrap(), list, "{name}");
        let twice = [eval.clone(), get];
        let answers = node.pipeline(&twice).await.unwrap();
        assert_eq!(answers, [list, RespValue::String(Bytes::copy_from_slice(&bytes))], "{name}");
        let RespValue::String(info) = say(&*node, "INFO server").await else {
            panic!("{name}: INFO is no text")
        };
        assert!(info.starts_with(b"# Server\r\n"), "{name}: {info:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_keep_the_words_of_the_server() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let slot = cluster.slot_of("{key}").await?;
    let master = cluster.master_of(slot).await?;
    for (name, backend) in backends() {
        let node = connect(&*backend, cluster.node(master)).await;
        let other = connect(&*backend, cluster.node(1 - master)).await;
        let (code, detail) = error(say(&*other, "GET {key}").await);
        let moved = format!("{slot} 127.0.0.1:{}", cluster.node(master).port());
        assert_eq!((code.as_str(), detail), ("MOVED", moved), "{name}");
        let unknown = format!("EVALSHA {} 1 {{key}}", "0".repeat(40));
        assert_eq!(error(say(&*node, &unknown).await).0, "NOSCRIPT", "{name}");
        say(&*node, "SET {key}text 1").await;
        assert_eq!(error(say(&*node, "HGET {key}text f").await).0, "WRONGTYPE", "{name}");
        let own = Command::new()
            .arg("EVAL")
            .arg("return redis.error_reply('LOCKTYPE not ours: 1')")
            .arg("0");
        let said = ("LOCKTYPE".to_string(), "not ours: 1".to_string());
        assert_eq!(error(node.call(own.clone()).await.unwrap()), said, "{name}");
        // An error reply is an answer, and the other replies of a pipeline stand.
        let answers = node
            .pipeline(&[words("INCR {key}n"), own.clone(), words(&unknown), words("INCR {key}n")])
            .await
            .unwrap();
        assert_eq!(answers.len(), 4, "{name}");
        assert!(
            matches!((&answers[0], &answers[3]), (RespValue::Int(a), RespValue::Int(b)) if a + 1 == *b),
            "{name}: {answers:?}"
        );
        assert_eq!(error(answers[1].clone()), said, "{name}");
        assert_eq!(error(answers[2].clone()).0, "NOSCRIPT", "{name}");
        assert_eq!(error(node.pipeline(&[own]).await.unwrap().remove(0)), said, "{name}");
        assert!(node.is_usable() && other.is_usable(), "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_goes_with_its_command_whatever_else_is_sent() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let slot = cluster.slot_of("{key}").await?;
    let step = cluster.begin_migration(slot, 1 - cluster.master_of(slot).await?).await?;
    for (name, backend) in backends() {
        let node = connect(&*backend, cluster.node(step.to)).await;
        let asked = (0..200).map(|_| async {
            let both = [words("ASKING"), words("GET {key}")];
            assert_eq!(node.pipeline(&both).await.unwrap(), [text("OK"), RespValue::Nil], "{name}");
        });
        let others = (0..200).map(|_| async {
            assert_eq!(error(say(&*node, "GET {key}").await).0, "MOVED", "{name}");
        });
        futures::future::join(join_all(asked), join_all(others)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_says_so_and_is_done_with() -> Result {
    let server = StandaloneServer::start().await?;
    for (name, backend) in backends() {
        let node = connect(&*backend, &server).await;
        let pending = tokio::spawn({
            let node = node.clone();
            async move { node.call(words("BLPOP list 0")).await }
        });
        let both = tokio::spawn({
            let node = node.clone();
            async move { node.pipeline(&[words("BLPOP list 0"), words("PING")]).await }
        });
        wait_for(&server, "blocked_clients", "1").await?;
        server.kill_clients(ClientKind::Commands).await?;
        let failure = timeout(LONG, pending).await??.expect_err("no answer");
        assert!(failure.maybe_sent && !failure.is_permanent, "{name}: {failure:?}");
        assert!(timeout(LONG, both).await??.expect_err("no answer").maybe_sent, "{name}");
        let limit = PollLimit::new("the connection to be known as broken");
        while node.is_usable() {
            limit.pause(name).await?;
        }
        let failure = timeout(LONG, node.call(words("PING"))).await?.expect_err("no connection");
        assert!(!failure.maybe_sent, "{name}");
        // It stays so: no backend dials on its own.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!node.is_usable(), "{name}");
        assert_eq!(clients(&server).await?, 0, "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_node_and_subscription_close_their_connections() -> Result {
    for (name, backend) in backends() {
        // A server of its own: the last proxy may connect to it late.
        let server = StandaloneServer::start().await?;
        let node = connect(&*backend, &server).await;
        let (subscription, notices) =
            backend.subscribe(&address(server.port()), None).await.unwrap();
        connections_become(&server, 2, name).await?;
        drop((node, subscription, notices));
        connections_become(&server, 0, name).await?;

        let proxy = Proxy::start(&server).await?;
        proxy.replies(testkit::ProxyFlow::Paused);
        let to = address(proxy.port());
        assert!(
            timeout(Duration::from_millis(200), backend.connect(&to, None)).await.is_err(),
            "{name}"
        );
        proxy.heal();
        connections_become(&server, 0, name).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_nobody_waits_for_goes_to_nobody() -> Result {
    let server = StandaloneServer::start().await?;
    for (name, backend) in backends() {
        let proxy = Proxy::start(&server).await?;
        let node = backend.connect(&address(proxy.port()), None).await.unwrap();
        proxy.replies(testkit::ProxyFlow::Paused);
        for number in 0..50 {
            let echo = words(&format!("ECHO lost{number}"));
            assert!(timeout(Duration::from_millis(2), node.call(echo.clone())).await.is_err());
        }
        proxy.heal();
        for number in 0..50 {
            let echo = format!("ECHO {number}");
            assert_eq!(
                timeout(LONG, say(&*node, &echo)).await?,
                text(&number.to_string()),
                "{name}"
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_to_connect_are_told_apart() -> Result {
    let server = StandaloneServer::start_with(ServerSettings::default().password("secret")).await?;
    let at = address(server.port());
    for (name, backend) in with_password("secret") {
        assert!(backend.connect(&at, None).await.is_ok(), "{name}");
    }
    for (name, backend) in with_password("wrong").into_iter().chain(backends()) {
        let failure = backend.connect(&at, None).await.map(drop).expect_err("let in");
        assert!(failure.is_permanent && !failure.maybe_sent, "{name}: {failure:?}");
    }
    server.kill()?;
    for (name, backend) in backends() {
        let failure =
            timeout(LONG, backend.connect(&at, None)).await?.map(drop).expect_err("connected");
        assert!(!failure.is_permanent && !failure.maybe_sent, "{name}: {failure:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_the_user_may_not_select_stays_refused() -> Result {
    let user = "user locker on >secret ~* &* +@all -select";
    let server = StandaloneServer::start_with(ServerSettings::default().line(user)).await?;
    let credentials = Some(Credentials::new("locker", "secret"));
    let fred = Config {
        username: Some("locker".into()),
        password: Some("secret".into()),
        database: Some(1),
        ..Config::default()
    };
    for (name, backend) in by(credentials, fred) {
        let at = address(server.port());
        let failures = [
            backend.connect(&at, None).await.map(drop),
            backend.subscribe(&at, None).await.map(drop),
        ];
        for failure in failures {
            let failure = failure.expect_err("let in");
            assert!(failure.is_permanent && !failure.maybe_sent, "{name}: {failure:?}");
            let said = chain(&failure);
            assert!(said.contains("NOPERM") && said.contains("'select'"), "{name}: {failure:?}");
        }
    }
    for (name, backend) in as_user("locker", "secret") {
        assert!(backend.connect(&address(server.port()), None).await.is_ok(), "{name}");
    }
    Ok(())
}

/// It answers with the arguments, as servers before 6.0 do, and managed ones that hide the command.
#[tokio::test(flavor = "multi_thread")]
async fn no_password_is_told_where_hello_is_unknown() -> Result {
    let server =
        StandaloneServer::start_with(ServerSettings::default().line("rename-command HELLO \"\""))
            .await?;
    for (name, backend) in as_user("default", "SECRET") {
        let failure = backend.connect(&address(server.port()), None).await.map(drop).unwrap_err();
        let told = chain(&failure);
        assert!(!told.contains("SECRET"), "{name}: {told}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_tells_which_address_of_the_name_it_has() -> Result {
    let server = StandaloneServer::start().await?;
    for (name, backend) in backends() {
        // Often this name resolves to `::1` too, where the server does not listen.
        let host = "localhost".into();
        let port = server.port();
        let node = backend.connect(&Address { host, port }, None).await?;
        assert_eq!(node.resolved_addr().as_deref(), Some("127.0.0.1"), "{name}");
        assert_eq!(say(&*node, "PING").await, text("PONG"), "{name}");
    }
    Ok(())
}

/// `fred` by itself does not report to which of several addresses it has connected.
#[tokio::test(flavor = "multi_thread")]
async fn fred_connect_to_one_of_skips_refused_address_and_reports_its_place() -> Result {
    let server = StandaloneServer::start_with(ServerSettings::default().password("secret")).await?;
    let named = |password: &str| {
        FredConnector::new(Config { password: Some(password.into()), ..Config::default() })
    };
    let (host, port) = ("localhost".into(), server.port());
    // Nothing listens at the first one.
    let (at, places) = (Address { host, port }, ["127.0.0.2", "127.0.0.1"].map(Into::into));
    let node = named("secret").connect_to_any(&at, &places).await?;
    assert_eq!(node.resolved_addr().as_deref(), Some("127.0.0.1"));
    let failure = named("wrong").connect_to_any(&at, &places).await.map(drop).expect_err("let in");
    assert!(failure.is_permanent, "{failure:?}");
    Ok(())
}

/// `fred` closes a connection on which a server answers CLUSTERDOWN, so the outcome of everything
/// else under way there is unknown as well.
#[tokio::test(flavor = "multi_thread")]
async fn clusterdown_is_an_answer_and_by_fred_an_end() -> Result {
    let server =
        Server::start(&ServerSettings { cluster: true, ..ServerSettings::default() }).await?;
    let [native, redis, (_, fred)] = backends();
    for (name, backend) in [native, redis] {
        let node = connect(&*backend, &server).await;
        assert_eq!(error(say(&*node, "GET key").await).0, "CLUSTERDOWN", "{name}");
        assert!(node.is_usable(), "{name}");
    }
    let node = connect(&*fred, &server).await;
    let failure = node.call(words("GET key")).await.expect_err("an answer");
    assert!(chain(&failure).contains("CLUSTERDOWN") && failure.maybe_sent, "{failure:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_told_the_name_of_the_library_and_may_refuse_it() -> Result {
    let poor = "user poor on >p resetchannels -@all +ping +client|list";
    let server = StandaloneServer::start_with(ServerSettings::default().line(poor)).await?;
    let shows_names = server.version().shows_libraries();
    let named = format!(" lib-name={LIB_NAME} lib-ver={LIB_VERSION}");
    for (name, backend) in backends() {
        let node = connect(&*backend, &server).await;
        let (_subscription, _notices) = backend.subscribe(&address(server.port()), None).await?;
        let list: String = server.run_words("CLIENT LIST").await?;
        let ours = list.lines().filter(|line| line.contains(&named)).count();
        assert_eq!(ours, if shows_names { 2 } else { 0 }, "{name}: {list}");
        assert_eq!(say(&*node, "PING").await, text("PONG"), "{name}: replies are not mixed up");
    }
    for (name, backend) in as_user("poor", "p") {
        let node = connect(&*backend, &server).await;
        assert_eq!(say(&*node, "PING").await, text("PONG"), "{name}");
        let RespValue::String(list) = say(&*node, "CLIENT LIST").await else {
            panic!("{name}: CLIENT LIST is no text")
        };
        let list = String::from_utf8_lossy(&list).into_owned();
        let mine = list.lines().find(|line| line.contains(" user=poor")).unwrap_or_default();
        assert!(!mine.is_empty() && !mine.contains(LIB_NAME), "{name}: {list}");
    }
    Ok(())
}

/// How many clients the server has beside the one that queries.
async fn clients(server: &Server) -> Result<usize> {
    let list: String = server.run_words("CLIENT LIST").await?;
    Ok(list.lines().count() - 1)
}

/// Waits until the server has that many connections. A connection of the start may close late.
async fn connections_become(server: &Server, count: usize, name: &str) -> Result {
    let limit = PollLimit::new(format!("{count} connections"));
    loop {
        match clients(server).await? {
            found if found == count => return Ok(()),
            found => limit.pause(format!("{name}: {found}")).await?,
        }
    }
}

async fn wait_for(server: &Server, field: &str, value: &str) -> Result {
    let limit = PollLimit::new(format!("{field} to be {value}"));
    loop {
        let info = server.info("clients").await?;
        match info.get(field) {
            Some(seen) if seen == value => return Ok(()),
            seen => limit.pause(format!("{seen:?}")).await?,
        }
    }
}
