//! A minimal connection of our own, as a floor: it writes ready commands together, and matches
//! replies to commands by their order. It panics on errors, and has no TLS, no pushes and no time
//! limits.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};

#[derive(Debug, Default)]
struct State {
    outgoing: Vec<u8>,
    waiting: VecDeque<oneshot::Sender<Vec<u8>>>,
}

#[derive(Debug, Default)]
pub struct BaselineConnection {
    state: Mutex<State>,
    wake: Notify,
}

impl BaselineConnection {
    pub async fn open(port: u16) -> Arc<BaselineConnection> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("not connected");
        stream.set_nodelay(true).expect("a TCP connection");
        let (read_half, write_half) = stream.into_split();
        let connection = Arc::<BaselineConnection>::default();
        tokio::spawn(write(connection.clone(), write_half));
        tokio::spawn(read(connection.clone(), read_half));
        connection
    }

    /// Returns the reply as the server sent it.
    pub async fn call(&self, words: &[&[u8]]) -> Vec<u8> {
        let (tell, told) = oneshot::channel();
        let is_first = {
            let mut state = self.state.lock().expect("not poisoned");
            let is_first = state.outgoing.is_empty();
            write!(state.outgoing, "*{}\r\n", words.len()).expect("it has room");
            for word in words {
                write!(state.outgoing, "${}\r\n", word.len()).expect("it has room");
                state.outgoing.extend_from_slice(word);
                state.outgoing.extend_from_slice(b"\r\n");
            }
            state.waiting.push_back(tell);
            is_first
        };
        if is_first {
            self.wake.notify_one();
        }
        told.await.expect("no answer")
    }
}

async fn write(connection: Arc<BaselineConnection>, mut half: OwnedWriteHalf) {
    let mut batch = Vec::with_capacity(1 << 16);
    loop {
        connection.wake.notified().await;
        loop {
            // Every ready caller can add its command before the write.
            tokio::task::yield_now().await;
            std::mem::swap(
                &mut connection.state.lock().expect("not poisoned").outgoing,
                &mut batch,
            );
            if batch.is_empty() {
                break;
            }
            half.write_all(&batch).await.expect("not written");
            batch.clear();
        }
    }
}

async fn read(connection: Arc<BaselineConnection>, mut half: OwnedReadHalf) {
    let mut buffer = Vec::with_capacity(1 << 16);
    while half.read_buf(&mut buffer).await.is_ok_and(|size| size > 0) {
        let (mut begin, mut replies) = (0, Vec::new());
        while let Some(end) = reply_end(&buffer, begin) {
            replies.push(buffer[begin..end].to_vec());
            begin = end;
        }
        buffer.drain(..begin);
        let mut state = connection.state.lock().expect("not poisoned");
        let told: Vec<_> = state.waiting.drain(..replies.len()).collect();
        drop(state);
        for (tell, reply) in told.into_iter().zip(replies) {
            let _ = tell.send(reply);
        }
    }
}

/// The end of the reply that begins at `begin`, if the reply is complete.
fn reply_end(buffer: &[u8], begin: usize) -> Option<usize> {
    let line = buffer[begin..].windows(2).position(|two| two == b"\r\n")? + begin;
    let number = || std::str::from_utf8(&buffer[begin + 1..line]).ok()?.parse::<i64>().ok();
    let end = match buffer[begin] {
        b'$' => line + 2 + usize::try_from(number()?).map_or(0, |length| length + 2),
        b'*' => (0..number()?).try_fold(line + 2, |end, _| reply_end(buffer, end))?,
        _ => line + 2,
    };
    (end <= buffer.len()).then_some(end)
}
