//! The locks of others. They are in a separate package, so that their dependencies are not this
//! library's. It runs as a child process, reads orders line by line, and answers with the times.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use load::{Crowd, LoadRun};
use testkit::{Error, Result};

pub struct OtherLibraries {
    _child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl OtherLibraries {
    /// Builds the package if need be and starts it. `server` is any node of the cluster; the names
    /// of their locks begin with `key`.
    pub async fn start(server: &str, key: &str) -> Result<OtherLibraries> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut child = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--release", "--locked", "--manifest-path"])
            .arg(package.join("peers/Cargo.toml"))
            .arg("--target-dir")
            .arg(package.join("../target/peers"))
            .args(["--", server, key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let gone = || Error::new("the peers have no pipes");
        let orders = child.stdin.take().ok_or_else(gone)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        let mut peers = OtherLibraries { _child: child, orders, answers };
        peers.answer().await?; // says that it is ready
        Ok(peers)
    }

    pub async fn hand_offs(&mut self, peer: &str, count: usize) -> Result<Vec<Duration>> {
        self.order(&format!("{peer} hand_offs {count}")).await?;
        self.answer().await
    }

    pub async fn crowd(&mut self, peer: &str, tasks: usize, writes: usize) -> Result<Crowd> {
        self.order(&format!("{peer} crowd {tasks} {writes}")).await?;
        Ok(Crowd {
            elapsed: self.answer().await?.into_iter().sum(),
            waits: self.answer().await?,
            holds: self.answer().await?,
        })
    }

    /// A run of the generator: `how` is an order without the peer's name.
    pub async fn run(&mut self, peer: &str, how: &str) -> Result<LoadRun> {
        self.order(&format!("{peer} {how}")).await?;
        Ok(LoadRun {
            elapsed: self.answer().await?.into_iter().sum(),
            pairs: self.answer().await?,
            open: self.answer().await?,
            start_delays: self.answer().await?,
            ..LoadRun::default()
        })
    }

    async fn order(&mut self, order: &str) -> Result {
        self.orders.write_all(format!("{order}\n").as_bytes()).await?;
        Ok(())
    }

    /// A line of microseconds.
    async fn answer(&mut self) -> Result<Vec<Duration>> {
        let line = self.answers.next_line().await?;
        let line = line.ok_or_else(|| Error::new("the peers have ended"))?;
        line.split_whitespace().map(|word| Ok(Duration::from_micros(word.parse()?))).collect()
    }
}
