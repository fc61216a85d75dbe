//! A PostgreSQL server on a free port of 127.0.0.1, in a folder of its own, run by an unprivileged
//! user.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use testkit::{Result, TempFolder, register_child, unregister_child};
use tokio_postgres::{Client, NoTls};

/// Where Debian has the programs of the server.
const DEBIAN: &str = "/usr/lib/postgresql";

#[derive(Debug)]
pub struct PostgresServer {
    process: Child,
    folder: TempFolder,
    port: u16,
}

impl PostgresServer {
    /// Starts a server with an empty database, and waits until it answers.
    pub async fn start() -> Result<PostgresServer> {
        let folder = TempFolder::new("postgres")?;
        let user = unprivileged_user()?;
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid))?;
        }
        let data = folder.join("data");
        let made = as_user("initdb", user)?
            .args(["--no-sync", "--auth=trust", "--username=postgres", "--pgdata"])
            .arg(&data)
            .current_dir(&folder)
            .output()?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(testkit::Error::new(format!("initdb failed: {said}")));
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = as_user("postgres", user)?
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "unix_socket_directories=", "-c", "fsync=off"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log"))?)
            .spawn()?;
        register_child(process.id())?;
        let server = PostgresServer { process, folder, port };
        server.wait_until_ready().await?;
        Ok(server)
    }

    pub async fn connect(&self) -> Result<Client> {
        let config = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        // A connection that breaks fails the calls of its client.
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    async fn wait_until_ready(&self) -> Result {
        for _ in 0..600 {
            if self.connect().await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        Err(testkit::Error::new(format!("PostgreSQL did not start: {log}")))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let id = self.process.id();
        if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT); // the fast shutdown
        }
        drop(unregister_child(id));
        drop(self.process.wait());
    }
}

/// A program of the server, run by this user. PostgreSQL refuses to run as root.
fn as_user(program: &str, user: Option<(u32, u32)>) -> io::Result<Command> {
    let mut command = Command::new(find(program)?);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    Ok(command)
}

fn find(program: &str) -> io::Result<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|file| file.exists());
    found.ok_or_else(|| {
        io::Error::other(format!("no program `{program}`; install the package `postgresql`"))
    })
}

/// The ids of `postgres` or `nobody` if this is root, else `None`.
fn unprivileged_user() -> io::Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string(Path::new("/etc/passwd"))?;
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let found = ids("postgres").or_else(|| ids("nobody"));
    found.map(Some).ok_or_else(|| io::Error::other("no user `postgres` and no user `nobody`"))
}
