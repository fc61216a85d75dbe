//! Real servers to compare the engine with.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use rwlease::testing::{Decoder, Frame};
use rwlease_core::resp::{Command, RespValue};
use testkit::{EXPIRE_TIME, Server, ServerSettings};
use tokio::runtime::Builder;

use crate::Words;
use crate::judge::Judge;
use crate::side::CommandServer;

/// Starts a server, which ends when this is dropped.
pub fn start_server() -> Server {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Server::start(&ServerSettings::default())).unwrap()
}

/// A connection that speaks RESP2.
pub struct RealConnection {
    stream: TcpStream,
    decoder: Decoder,
}

impl RealConnection {
    pub fn to(server: &Server) -> RealConnection {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        RealConnection { stream, decoder: Decoder::default() }
    }

    pub fn query<W: AsRef<[u8]>>(&mut self, words: &[W]) -> RespValue {
        self.stream.write_all(&request(words)).unwrap();
        self.reply()
    }

    pub fn reply(&mut self) -> RespValue {
        loop {
            match self.decoder.next_frame().unwrap() {
                Some(Frame::Reply(reply)) => return reply,
                Some(push) => panic!("unexpected: {push:?}"),
                None => {}
            }
            let mut bytes = [0; 4096];
            let length = self.stream.read(&mut bytes).unwrap();
            assert!(length > 0, "the server closed the connection");
            self.decoder.read_buffer().extend_from_slice(&bytes[..length]);
        }
    }
}

/// A server, a connection for commands, and one that is subscribed.
pub struct RealSubscriber {
    pub judge: Judge,
    connection: RealConnection,
    listener: RealConnection,
    _server: Server,
}

impl RealSubscriber {
    pub fn start(channels: impl Iterator<Item = String>) -> RealSubscriber {
        let server = start_server();
        let mut listener = RealConnection::to(&server);
        for channel in channels {
            listener.query(&["SSUBSCRIBE", &channel]);
        }
        let mut connection = RealConnection::to(&server);
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
                request([b"EVAL", script.as_bytes(), b"1", key])
            }
            command => request(command),
        };
        let requests: Vec<u8> = commands.iter().flat_map(known).collect();
        self.connection.stream.write_all(&requests).unwrap();
        commands.iter().map(|_| self.connection.reply()).collect()
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

fn request<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Vec<u8> {
    let command = Command::from_words(words);
    [format!("*{}\r\n", command.word_count()).as_bytes(), command.bytes()].concat()
}
