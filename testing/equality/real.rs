//! Real servers to compare the engine with.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use rwlease_core::resp::{RespValue, ServerError};
use testkit::{EXPIRE_TIME, Server, ServerSettings};
use tokio::runtime::Builder;

use crate::Words;
use crate::judge::Judge;
use crate::side::CommandServer;

/// A server that ends when this is dropped.
pub struct RealServer(Server);

impl RealServer {
    pub fn start(is_cluster: bool) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let settings = ServerSettings { cluster: is_cluster, ..ServerSettings::default() };
        RealServer(runtime.block_on(Server::start(&settings)).unwrap())
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// The port for the other servers of a cluster.
    pub fn bus_port(&self) -> u16 {
        self.0.bus_port()
    }

    pub fn connect(&self) -> RealConnection {
        let stream = TcpStream::connect(self.0.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        RealConnection(BufReader::new(stream))
    }
}

/// A connection that speaks RESP2.
pub struct RealConnection(BufReader<TcpStream>);

impl RealConnection {
    pub fn query<W: AsRef<[u8]>>(&mut self, words: &[W]) -> RespValue {
        self.0.get_mut().write_all(&request(words)).unwrap();
        self.reply()
    }

    pub fn reply(&mut self) -> RespValue {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).unwrap();
        assert!(line.ends_with(b"\r\n"), "the server closed the connection");
        let rest = &line[1..line.len() - 2];
        let text = String::from_utf8_lossy(rest);
        match &line[..1] {
            b"+" => RespValue::String(Bytes::copy_from_slice(rest)),
            b"-" => RespValue::Error(ServerError::parse(&text)),
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

/// A server, a connection for commands, and one that is subscribed.
pub struct RealSubscriber {
    pub judge: Judge,
    connection: RealConnection,
    listener: RealConnection,
    _server: RealServer,
}

impl RealSubscriber {
    pub fn start(channels: impl Iterator<Item = String>) -> RealSubscriber {
        let server = RealServer::start(false);
        let mut listener = server.connect();
        for channel in channels {
            listener.query(&["SSUBSCRIBE", &channel]);
        }
        let mut connection = server.connect();
        let judge = Judge::of(&mut connection);
        RealSubscriber { judge, connection, listener, _server: server }
    }
}

impl CommandServer for RealSubscriber {
    /// Sends all commands before it reads the first reply.
    fn query(&mut self, commands: &[Words]) -> Vec<RespValue> {
        let known = |command: &Words| match &command[..] {
            [name, key] if self.judge.is_old() && name == b"PEXPIRETIME" => {
                let script = format!("{EXPIRE_TIME}return expire_time");
                request(&[b"EVAL", script.as_bytes(), b"1", key])
            }
            command => request(command),
        };
        let requests: Vec<Vec<u8>> = commands.iter().map(known).collect();
        self.connection.0.get_mut().write_all(&requests.concat()).unwrap();
        requests.iter().map(|_| self.connection.reply()).collect()
    }

    fn messages(&mut self) -> Vec<(Bytes, Bytes)> {
        let mut messages = Vec::new();
        let mut reply = self.listener.query(&["PING"]);
        while let Some(message) = message(&reply) {
            messages.push(message);
            reply = self.listener.reply();
        }
        messages
    }

    fn fill_memory(&mut self, is_full: bool) {
        let limit = if is_full { "1" } else { "0" };
        self.connection.query(&["CONFIG", "SET", "maxmemory", limit]);
    }
}

fn message(reply: &RespValue) -> Option<(Bytes, Bytes)> {
    let RespValue::Array(parts) = reply else { return None };
    match parts.as_slice() {
        [RespValue::String(kind), RespValue::String(channel), RespValue::String(payload)]
            if kind.as_ref() == b"smessage" =>
        {
            Some((channel.clone(), payload.clone()))
        }
        _ => None,
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
