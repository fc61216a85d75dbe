//! One server, a process or a container: found, started on a free port, killed, frozen, restarted,
//! and ended when it is dropped.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::container::Container;
use super::project_path::find_in_project;
use super::server_limit::acquire_server_slots;
use super::watchdog::{keeps_folders, watchdog};
use super::{Error, PollLimit, Result};

/// The server binary to use instead of the first one found.
const BINARY: &str = "RWLEASE_SERVER";
const NAMES: [&str; 2] = ["redis-server", "valkey-server"];
/// Where `make servers` puts a link to a server, from the root of the project.
const LINK: &str = "target/servers/redis-server";

const LOOPBACK: &str = "127.0.0.1";

/// Below the ports that systems give to outgoing connections, so that a restarted server finds its
/// own port free.
const PORTS: std::ops::Range<u16> = 10_000..20_000;
/// The port of the cluster bus lies this far above the port for clients.
const BUS_PORT_OFFSET: u16 = 10_000;
/// How far the port for TLS is above it, if there is one.
const TLS: u16 = 20_000;
/// A test listens here as long as it has the server, even while that is down, so that no other test
/// takes its ports.
const RESERVATION_OFFSET: u16 = 40_000;
/// Another process can take a port between the check and the start.
const STARTS: usize = 10;

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    /// A binary other than the one that is found.
    pub binary: Option<PathBuf>,
    /// Lines of the configuration file. They come after the default ones, and so override them.
    pub lines: Vec<String>,
    /// The password that clients and replicas need.
    pub password: Option<String>,
    /// A second port for clients, with TLS. The nodes of a cluster then use TLS alone.
    pub tls: Option<Certificates>,
    /// Whether it is a node of a cluster.
    pub cluster: bool,
    /// Whether it is a sentinel.
    pub sentinel: bool,
    /// An address of this machine other than 127.0.0.1.
    pub host: Option<String>,
    /// Words before the command, to start it in another network or with another clock.
    pub before: Vec<String>,
}

impl ServerSettings {
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    pub fn binary(mut self, binary: impl Into<PathBuf>) -> Self {
        self.binary = Some(binary.into());
        self
    }
}

/// What a server with TLS needs, in PEM.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// The authority that all trust.
    pub authority: String,
    /// The server's certificate, which must be valid for 127.0.0.1, and its key.
    pub certificate: String,
    pub key: String,
}

/// One server: a process on 127.0.0.1, or a container.
#[derive(Debug)]
pub struct Server {
    binary: PathBuf,
    version: Version,
    host: String,
    port: u16,
    password: Option<String>,
    tls: bool,
    sentinel: bool,
    before: Vec<String>,
    folder: PathBuf,
    container: Option<Container>,
    process: Mutex<Process>,
    _taken: Option<TcpListener>,
}

#[derive(Debug, Default)]
struct Process {
    /// `None` if it was killed.
    body: Option<ServerBody>,
    is_frozen: bool,
}

/// What is killed, stopped and started.
#[derive(Debug)]
enum ServerBody {
    Child(Child),
    Container(Container),
}

impl Server {
    /// Starts a server and waits until it answers.
    pub async fn start(settings: &ServerSettings) -> Result<Server> {
        acquire_server_slots(1).await;
        let binary = match &settings.binary {
            Some(binary) => binary.clone(),
            None => find_binary()?,
        };
        let version = Version::of_binary(&binary)?;
        let mut tries = 0..STARTS;
        loop {
            let (port, taken) = free_port()?;
            let server = Server::create(&binary, &version, (port, taken), settings)?;
            match server.restart().await {
                Ok(()) => return Ok(server),
                Err(error) if error.to_string().contains("in use") && tries.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A server in a container that runs already.
    pub async fn in_container(container: Container, host: &str, port: u16) -> Result<Server> {
        let mut server = Server {
            binary: container.to_string().into(),
            version: Version::default(),
            host: host.to_owned(),
            port,
            password: None,
            tls: false,
            sentinel: false,
            before: Vec::new(),
            folder: PathBuf::new(),
            process: Mutex::new(Process::running(ServerBody::Container(container.clone()))),
            container: Some(container),
            _taken: None,
        };
        let info: String = server.run_words("INFO server").await?;
        let unknown = || Error::new(format!("{} does not say its version", server.address()));
        server.version = Version::of_info(&info).ok_or_else(unknown)?;
        Ok(server)
    }

    pub fn version(&self) -> &Version {
        &self.version
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port for TLS, if there is one.
    pub fn tls_port(&self) -> Option<u16> {
        self.tls.then_some(self.port + TLS)
    }

    pub fn bus_port(&self) -> u16 {
        self.port + BUS_PORT_OFFSET
    }

    /// `host:port`
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@{}", self.address()),
            None => format!("redis://{}", self.address()),
        }
    }

    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Its working directory, with `server.conf` and `server.log`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A plain connection for the caller. It dies with the server, and is not made again.
    pub async fn connect(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(10)))
            .set_response_timeout(Some(Duration::from_secs(10)));
        Ok(Client::open(self.url())?.get_multiplexed_async_connection_with_config(&config).await?)
    }

    /// Runs one command on a new connection: servers are shared by tests whose runtimes come and
    /// go, and are killed.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let answer =
            async { Ok::<T, Error>(command.query_async(&mut self.connect().await?).await?) };
        answer.await.map_err(|error| {
            let what = format!("{} at {}: {error}", words(command), self.address());
            match self.has_ended() {
                Ok(true) if self.is_running() => {
                    Error::new(format!("{what}; it ended: {}", self.log_tail()))
                }
                _ => Error::new(what),
            }
        })
    }

    /// As [`run`](Self::run), with the command as one string of words.
    pub async fn run_words<T: FromRedisValue>(&self, words: &str) -> Result<T> {
        let mut command = Cmd::new();
        command.arg(words.split_whitespace().collect::<Vec<_>>());
        self.run(&command).await
    }

    /// The container, if it is in one.
    pub fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    /// The process id, unless it was killed or is in a container.
    pub fn id(&self) -> Option<u32> {
        match &self.process().body {
            Some(ServerBody::Child(child)) => Some(child.id()),
            _ => None,
        }
    }

    /// Neither killed nor frozen.
    pub fn is_running(&self) -> bool {
        let process = self.process();
        process.body.is_some() && !process.is_frozen
    }

    /// `kill -9`, and the process is reaped before this returns.
    pub fn kill(&self) -> Result {
        let mut process = self.process();
        process.is_frozen = false;
        process.body.take().map_or(Ok(()), ServerBody::kill)
    }

    /// SIGSTOP: it keeps its connections and answers nothing.
    pub fn freeze(&self) -> Result {
        self.set_frozen(true)
    }

    /// SIGCONT: it continues as if no time had passed.
    pub fn thaw(&self) -> Result {
        self.set_frozen(false)
    }

    fn set_frozen(&self, is_frozen: bool) -> Result {
        let mut process = self.process();
        if let Some(body) = &process.body
            && process.is_frozen != is_frozen
        {
            body.set_frozen(is_frozen)?;
            process.is_frozen = is_frozen;
        }
        Ok(())
    }

    /// Starts it (again) on its port and in its folder, and waits until it answers. Its in-memory
    /// data are gone.
    pub async fn restart(&self) -> Result {
        self.kill()?;
        self.spawn()?;
        let wait_limit =
            PollLimit::new(format!("{} to answer at {}", self.binary.display(), self.address()));
        loop {
            if self.has_ended()? {
                self.kill()?;
                return Err(Error::new(format!(
                    "{} ended: {}",
                    self.binary.display(),
                    self.log_tail()
                )));
            }
            match self.run_words::<String>("INFO server").await {
                Ok(info) if self.is_own_process(&info) => return Ok(()),
                Ok(_) => wait_limit.pause("another process answered").await?,
                Err(error) => wait_limit.pause(error).await?,
            }
        }
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    fn create(
        binary: &Path,
        version: &Version,
        (port, taken): (u16, TcpListener),
        settings: &ServerSettings,
    ) -> Result<Server> {
        // The number distinguishes servers of this process that chose the same port; one of them
        // will fail.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = watchdog()?.folder().join(format!("{port}-{number}"));
        fs::create_dir_all(&folder)?;
        if let Some(certificates) = &settings.tls {
            fs::write(folder.join("ca.pem"), &certificates.authority)?;
            fs::write(folder.join("server.pem"), &certificates.certificate)?;
            fs::write(folder.join("key.pem"), &certificates.key)?;
        }
        fs::write(folder.join("server.conf"), configuration(version, port, settings))?;
        Ok(Server {
            binary: binary.to_path_buf(),
            version: version.clone(),
            host: settings.host.clone().unwrap_or_else(|| LOOPBACK.into()),
            port,
            password: settings.password.clone(),
            tls: settings.tls.is_some(),
            sentinel: settings.sentinel,
            before: settings.before.clone(),
            folder,
            container: None,
            process: Mutex::default(),
            _taken: Some(taken),
        })
    }

    fn spawn(&self) -> Result {
        if let Some(container) = &self.container {
            container.start()?;
            *self.process() = Process::running(ServerBody::Container(container.clone()));
            return Ok(());
        }
        let log: File =
            OpenOptions::new().create(true).append(true).open(self.folder.join("server.log"))?;
        let before = self.before.iter().map(OsStr::new);
        let sentinel = self.sentinel.then_some(OsStr::new("--sentinel"));
        let mut words =
            before.chain([self.binary.as_os_str(), OsStr::new("server.conf")]).chain(sentinel);
        let child = Command::new(words.next().unwrap_or_default())
            .args(words)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let id = child.id();
        *self.process() = Process::running(ServerBody::Child(child));
        watchdog()?.watch(id)?;
        Ok(())
    }

    /// Whether its process has ended, for any reason. It is not reaped here: the watchdog has its
    /// id until then.
    pub fn has_ended(&self) -> io::Result<bool> {
        match &self.process().body {
            Some(ServerBody::Child(child)) => {
                let only_look =
                    WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                Ok(waitid(WaitId::Pid(Pid::from_child(child)), only_look)?.is_some())
            }
            Some(ServerBody::Container(_)) => Ok(false),
            None => Ok(true),
        }
    }

    /// A free port may have been taken by a server of another test, which would answer as well.
    fn is_own_process(&self, info: &str) -> bool {
        if self.container.is_some() {
            return true;
        }
        let said = info.lines().find_map(|line| line.strip_prefix("process_id:"));
        said.and_then(|id| id.trim().parse().ok()) == self.id()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.container.is_some() {
            return; // its owner ends it
        }
        // A failure cannot be handled here: the watchdog still has the process on its list.
        let _ = self.kill();
        if !keeps_folders() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

impl Process {
    fn running(body: ServerBody) -> Process {
        Process { body: Some(body), is_frozen: false }
    }
}

impl ServerBody {
    fn kill(self) -> Result {
        match self {
            ServerBody::Container(container) => container.kill(),
            ServerBody::Child(mut child) => {
                child.kill()?;
                watchdog()?.forget(child.id())?;
                child.wait()?;
                Ok(())
            }
        }
    }

    fn set_frozen(&self, is_frozen: bool) -> Result {
        match (self, is_frozen) {
            (ServerBody::Container(container), true) => container.pause(),
            (ServerBody::Container(container), false) => container.unpause(),
            (ServerBody::Child(child), true) => signal(child, Signal::STOP),
            (ServerBody::Child(child), false) => signal(child, Signal::CONT),
        }
    }
}

fn signal(child: &Child, signal: Signal) -> Result {
    Ok(kill_process(Pid::from_child(child), signal)?)
}

/// The configuration file.
fn configuration(version: &Version, port: u16, settings: &ServerSettings) -> String {
    let host = settings.host.as_deref().unwrap_or(LOOPBACK);
    let mut lines: Vec<String> = vec![
        format!("bind {host}"),
        format!("port {port}"),
        "protected-mode no".into(),
        "daemonize no".into(),
    ];
    if !settings.sentinel {
        lines.extend(data_lines());
    }
    if settings.cluster {
        lines.push("cluster-enabled yes".into());
        lines.push("cluster-config-file nodes.conf".into());
        lines.push(format!("cluster-announce-ip {host}"));
    }
    if version.major >= 7 && !settings.sentinel {
        lines.push("enable-debug-command local".into());
        if settings.cluster {
            lines.push(format!("cluster-port {}", port + BUS_PORT_OFFSET));
        }
    }
    if settings.tls.is_some() {
        lines.push(format!("tls-port {}", port + TLS));
        for (setting, value) in [
            ("tls-ca-cert-file", "ca.pem"),
            ("tls-cert-file", "server.pem"),
            ("tls-key-file", "key.pem"),
            ("tls-auth-clients", "no"),
            ("tls-replication", "yes"),
        ] {
            lines.push(format!("{setting} {value}"));
        }
        if settings.cluster {
            lines.push("tls-cluster yes".into());
        }
    }
    if let Some(password) = &settings.password {
        lines.push(format!("requirepass {password}"));
        if !settings.sentinel {
            lines.push(format!("masterauth {password}"));
        }
    }
    lines.extend(settings.lines.iter().cloned());
    lines.join("\n") + "\n"
}

/// Nothing on disk, and replicas in step at once.
fn data_lines() -> [String; 4] {
    ["save \"\"", "appendonly no", "repl-diskless-sync yes", "repl-diskless-sync-delay 0"]
        .map(String::from)
}

/// A free port, with those that belong to it. It is taken until the listener is dropped.
fn free_port() -> Result<(u16, TcpListener)> {
    let listen = |port| TcpListener::bind((LOOPBACK, port));
    let is_free = |port| listen(port).is_ok();
    let mut random = fastrand::Rng::new();
    std::iter::repeat_with(|| random.u16(PORTS))
        .take(1_000)
        .filter_map(|port| Some((port, listen(port + RESERVATION_OFFSET).ok()?)))
        .find(|(port, _)| is_free(*port) && is_free(port + BUS_PORT_OFFSET) && is_free(port + TLS))
        .ok_or_else(|| Error::new("no free port on 127.0.0.1"))
}

/// The server to test against. Without a server this is an error, never a reason to skip.
pub fn find_binary() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(BINARY) {
        let named = PathBuf::from(named);
        // The tests of a package in a subfolder run there.
        let found = [Some(named.clone()), find_in_project(&named)]
            .into_iter()
            .flatten()
            .find(|file| file.is_file());
        return match found {
            Some(file) => Ok(std::path::absolute(file)?), // servers start in their own folders
            None => Err(Error::new(format!("{BINARY}={} is no file", named.display()))),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = NAMES
        .into_iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)));
    on_path.chain(find_in_project(LINK)).find(|file| file.is_file()).ok_or_else(|| {
        Error::new(format!(
            "no Redis or Valkey server was found: neither {} on the PATH nor {LINK}. Run `make servers`, \
             or set {BINARY} to a server binary (6.2 or later)",
            NAMES.join(" nor "),
        ))
    })
}

fn words(command: &Cmd) -> String {
    let shown = command.args_iter().take(4).map(|argument| match argument {
        redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => "?".into(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The name and the version of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// `Redis` or `Valkey`.
    pub name: String,
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Version {
    /// `SSUBSCRIBE`, `SPUBLISH`.
    pub fn has_sharded_pubsub(&self) -> bool {
        self.major >= 7
    }

    /// `CLIENT SETINFO`.
    pub fn shows_libraries(&self) -> bool {
        (self.major, self.minor) >= (7, 2)
    }

    /// `WAITAOF`.
    pub fn has_waitaof(&self) -> bool {
        (self.major, self.minor) >= (7, 2)
    }

    /// `CLUSTER MIGRATESLOTS` of Valkey, `CLUSTER MIGRATION` of Redis.
    pub fn has_atomic_moves(&self) -> bool {
        let first = if self.name == "Valkey" { (9, 0) } else { (8, 4) };
        (self.major, self.minor) >= first
    }

    /// Whether a replica that takes over goes on with the moves of its master's slots, key by key.
    pub fn replicates_moves(&self) -> bool {
        self.name == "Valkey" && self.major >= 8
    }

    /// `DELIFEQ`.
    pub fn deletes_if_equal(&self) -> bool {
        self.name == "Valkey" && self.major >= 9
    }

    /// Whether Lua is a module that can be unloaded.
    pub fn has_lua_module(&self) -> bool {
        self.name == "Valkey" && (self.major, self.minor) >= (9, 1)
    }

    /// The version of the server that tests start.
    pub fn found() -> Result<Version> {
        Self::of_binary(&find_binary()?)
    }

    fn of_binary(binary: &Path) -> Result<Version> {
        let output = Command::new(binary).arg("--version").stdin(Stdio::null()).output();
        let output =
            output.map_err(|error| Error::new(format!("{}: {error}", binary.display())))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Self::parse(&text).ok_or_else(|| {
            Error::new(format!("{} does not say its version: {text}", binary.display()))
        })
    }

    /// Parses `Redis server v=7.0.15 sha=...`.
    fn parse(text: &str) -> Option<Version> {
        let name = text.split_whitespace().next()?;
        let number = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
        Self::numbered(name, number)
    }

    /// Parses `INFO server`.
    fn of_info(info: &str) -> Option<Version> {
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        match field("valkey_version:") {
            Some(number) => Self::numbered("Valkey", number),
            None => Self::numbered("Redis", field("redis_version:")?),
        }
    }

    fn numbered(name: &str, number: &str) -> Option<Version> {
        let mut parts = number.split('.').map(|part| part.parse().ok());
        Some(Version {
            name: name.to_string(),
            major: parts.next()??,
            minor: parts.next()??,
            patch: parts.next()??,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}.{}.{}", self.name, self.major, self.minor, self.patch)
    }
}
