//! The decoder of RESP: the parts in which bytes arrive change nothing, and what it returns is
//! bounded by what arrived.

use rwlease::testing::Frame;
use rwlease_core::resp::RespValue;

use crate::resp::{decode_in_parts, encode_frame};

/// Stands for a long run of the byte before it, so that short inputs reach the limits of lines,
/// lists and replies. The byte behind it is the length of the run.
const RUN: u8 = 0xfe;
const RUN_UNIT: usize = 256;
const MAX_INPUT: usize = 256 << 10;

/// The first byte is the size of the parts.
pub fn check(data: &[u8]) {
    let Some((&size, data)) = data.split_first() else { return };
    let bytes = expand(data);
    let (frames, failure) = decode_in_parts(&bytes, bytes.len().max(1));
    let parts = decode_in_parts(&bytes, usize::from(size) + 1);
    assert_eq!((&parts.0, &parts.1), (&frames, &failure), "in parts of {} bytes", size + 1);
    let size: usize = frames.iter().map(size_of_frame).sum();
    assert!(size <= bytes.len(), "{} bytes became values of {size}", bytes.len());
    let mut again = Vec::new();
    frames.iter().for_each(|frame| encode_frame(frame, &mut again));
    assert_eq!(decode_in_parts(&again, again.len().max(1)), (frames, None));
}

fn expand(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = data.iter().copied();
    while let Some(byte) = rest.next() {
        let (byte, count) = match (byte, bytes.last()) {
            (RUN, Some(&last)) => (last, usize::from(rest.next().unwrap_or(0)) * RUN_UNIT),
            (byte, _) => (byte, 1),
        };
        bytes.resize((bytes.len() + count).min(MAX_INPUT), byte);
    }
    bytes
}

fn size_of_frame(frame: &Frame) -> usize {
    match frame {
        Frame::Reply(reply) => size_of(reply),
        Frame::Push(parts) => parts.iter().map(size_of).sum(),
    }
}

/// Each value counts one, and each byte of a text. A byte that is not UTF-8 is shown as three.
fn size_of(reply: &RespValue) -> usize {
    match reply {
        RespValue::Nil | RespValue::Int(_) => 1,
        RespValue::String(text) => 1 + text.len(),
        RespValue::Error(error) => 1 + (error.code.len() + error.message.len()) / 3,
        RespValue::Array(items) => 1 + items.iter().map(size_of).sum::<usize>(),
    }
}
