//! Commands as they go over the wire.

use smallvec::SmallVec;

use crate::node::Command;
use crate::node::command::decimal;

/// The bytes of commands. Those of a usual one need no allocation.
#[derive(Debug, Default)]
pub(super) struct Request(SmallVec<[u8; 512]>);

impl Request {
    pub(super) fn of(commands: &[Command]) -> Request {
        let mut request = Request::default();
        for command in commands {
            request.add(command);
        }
        request
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn add(&mut self, command: &Command) {
        self.header(b'*', command.len());
        for word in command.iter() {
            self.header(b'$', word.len());
            self.0.extend_from_slice(word);
            self.0.extend_from_slice(b"\r\n");
        }
    }

    fn header(&mut self, kind: u8, number: usize) {
        self.0.push(kind);
        self.0.extend_from_slice(decimal(number as u64, &mut [0; 20]));
        self.0.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_go_one_behind_the_other() {
        let commands = [Command::of(["GET", ""]), Command::new().word([0xff]).number(1234567890)];
        assert_eq!(
            Request::of(&commands).bytes(),
            b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n*2\r\n$1\r\n\xff\r\n$10\r\n1234567890\r\n"
        );
        assert!(Request::of(&[]).bytes().is_empty());
        let long = "x".repeat(1000);
        let expected = format!("*1\r\n$1000\r\n{long}\r\n");
        assert_eq!(Request::of(&[Command::of([&*long])]).bytes(), expected.as_bytes());
    }
}
