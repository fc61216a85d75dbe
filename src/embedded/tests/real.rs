//! Real servers to compare the engine with: processes of this test, on free loopback ports.

#![allow(clippy::disallowed_methods)]

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::backend::RespValue;
use crate::embedded::reply::ErrorReply;

/// A server that ends when this is dropped.
pub(super) struct RealServer {
    process: Child,
    pub(super) port: u16,
    /// The port for the other servers of a cluster.
    pub(super) bus: u16,
    directory: PathBuf,
}

impl RealServer {
    pub(super) fn start(is_cluster: bool) -> Self {
        // One at a time: until a server listens, its port looks free to the next one, and both
        // tests would use the same server.
        static STARTING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = STARTING.lock();
        let (port, bus) = (free_port(), free_port());
        let directory = env::temp_dir().join(format!("rwlease-embedded-{port}"));
        std::fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new(program());
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--dir".as_ref(), directory.as_os_str()]);
        if is_cluster {
            command.args(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]);
        }
        let process = command.stdout(Stdio::null()).spawn().expect("the server starts");
        let mut server = RealServer { process, port, bus, directory };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the server does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        let ended = server.process.try_wait().expect("it can be looked at");
        assert_eq!(ended, None, "another process has taken the port");
        server
    }

    pub(super) fn connect(&self) -> RealConnection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        RealConnection(BufReader::new(stream))
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A connection that speaks RESP2.
pub(super) struct RealConnection(BufReader<TcpStream>);

impl RealConnection {
    pub(super) fn query<W: AsRef<[u8]>>(&mut self, words: &[W]) -> RespValue {
        self.0.get_mut().write_all(&request(words)).unwrap();
        self.reply()
    }

    /// Sends all commands before it reads the first reply.
    pub(super) fn ask_all<'a>(
        &mut self,
        commands: impl Iterator<Item = &'a [Vec<u8>]>,
    ) -> Vec<RespValue> {
        let requests: Vec<Vec<u8>> = commands.map(request).collect();
        self.0.get_mut().write_all(&requests.concat()).unwrap();
        requests.iter().map(|_| self.reply()).collect()
    }

    pub(super) fn reply(&mut self) -> RespValue {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).unwrap();
        assert!(line.ends_with(b"\r\n"), "the server closed the connection");
        let rest = &line[1..line.len() - 2];
        let text = String::from_utf8_lossy(rest);
        match &line[..1] {
            b"+" => RespValue::String(Bytes::copy_from_slice(rest)),
            b"-" => ErrorReply::new(text).into(),
            b":" => RespValue::Int(text.parse().unwrap()),
            b"$" => match text.parse::<usize>() {
                Err(_) => RespValue::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.0.read_exact(&mut bytes).unwrap();
                    bytes.truncate(length);
                    RespValue::String(bytes.into())
                }
            },
            b"*" => match text.parse::<usize>() {
                Err(_) => RespValue::Nil,
                Ok(length) => RespValue::Array((0..length).map(|_| self.reply()).collect()),
            },
            _ => panic!("unexpected reply: {text}"),
        }
    }
}

fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        request.extend(format!("${}\r\n", word.len()).bytes());
        request.extend(word.iter().chain(b"\r\n"));
    }
    request
}

/// The server that the environment names, the one on the path, or the one that was fetched for the
/// tests.
pub(super) fn program() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/servers/redis-server");
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = ["redis-server", "valkey-server"]
        .into_iter()
        .flat_map(|name| env::split_paths(&path).map(move |directory| directory.join(name)));
    let candidates = env::var_os("RWLEASE_SERVER").map(PathBuf::from);
    let mut candidates = candidates.into_iter().chain(on_path).chain([fetched]);
    candidates
        .find(|program| program.exists())
        .expect("a Redis or Valkey server: set RWLEASE_SERVER to its path, or put one on the PATH")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
